"""What an export or a check has to say beside its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Note", "Severity"]

Severity: TypeAlias = Literal["refusal", "warning", "note"]
"""refusal: the engine rejects or drops the table; warning: it runs, but not as meant; note: worth knowing."""


@dataclass(frozen=True, slots=True)
class Note:
    """One remark. ``code`` is a short stable word, ``source`` says where the knowledge is from."""

    severity: Severity
    code: str
    message: str
    source: str = ""

    def __str__(self) -> str:
        return f"{self.severity}: {self.message}" + (f" [{self.source}]" if self.source else "")

    def to_json(self) -> dict[str, str]:
        return {"severity": self.severity, "code": self.code, "message": self.message, "source": self.source}
