"""What an import left out, refused or doubts, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from adaptive_gamma.bench.source import Source, printable
from adaptive_gamma.errors import SweepError

__all__ = ["FindingKind", "Findings", "ImportFinding"]

_LONGEST = 16_384
"""Characters of a finding as text."""

FindingKind: TypeAlias = Literal["skipped", "refused", "note"]


@dataclass(frozen=True, slots=True)
class ImportFinding:
    """One remark on a file.

    kind: ``skipped`` holds no results that can be read; ``refused`` was read but must not be believed; ``note`` was
    used, with a doubt a person should know of.
    """

    source: Source
    field: str
    problem: str
    kind: FindingKind

    def __str__(self) -> str:
        where = f"{self.source}: {self.field}" if self.field else str(self.source)
        return printable(f"{where}: {self.problem}", _LONGEST)


class Findings:
    """Collects findings in the order in which they come up."""

    def __init__(self) -> None:
        self.items: list[ImportFinding] = []

    def skipped(self, source: Source, problem: str, field: str = "") -> None:
        """A file or line without results."""
        self.items.append(ImportFinding(source, field, problem, "skipped"))

    def refused(self, source: Source, problem: str, field: str = "") -> None:
        """Results that must not be believed."""
        self.items.append(ImportFinding(source, field, problem, "refused"))

    def note(self, source: Source, problem: str, field: str = "") -> None:
        """Results that were used, with a doubt."""
        self.items.append(ImportFinding(source, field, problem, "note"))

    def error(self, source: Source, error: SweepError) -> None:
        """Results refused because a value makes no sense."""
        self.refused(source, error.problem, error.key)
