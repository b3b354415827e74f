"""All checks over a case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from adaptive_gamma.doctor.case import Case
from adaptive_gamma.doctor.checks import CHECKS, Check
from adaptive_gamma.doctor.finding import Finding, Unseen
from adaptive_gamma.doctor.gather.unreadable import Unreadable
from adaptive_gamma.doctor.looked import idle_checks, looked_over

__all__ = ["SCHEMA", "Diagnosis", "Verdict", "diagnose"]

SCHEMA = "adaptive-gamma/doctor/v1"
_SEVERITIES = ("problem", "warning", "note")

Verdict: TypeAlias = Literal["clean", "findings", "could_not_look"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found; what could not be looked at, and why."""

    findings: tuple[Finding, ...]
    unseen: tuple[Unseen, ...]
    unreadable: tuple[Unreadable, ...]
    looked_at: tuple[str, ...]
    seen: tuple[str, ...] = ()
    """A line for each of them: what it is, how much was seen of it."""
    checks: int = 0
    """Checks that there are."""
    idle: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of checks that nothing was given for, by what is lacking."""

    @property
    def ran(self) -> int:
        """Checks that had something to look at."""
        return self.checks - sum(map(len, self.idle.values()))

    @property
    def verdict(self) -> Verdict:
        """Findings count where they are problems or warnings; an input that could not be read keeps the rest from being
        called clean."""
        if any(finding.severity != "note" for finding in self.findings):
            return "findings"
        return "could_not_look" if self.unreadable or not self.looked_at else "clean"

    @property
    def exit_code(self) -> int:
        """0 clean, 1 findings, 2 could not look."""
        return {"clean": 0, "findings": 1, "could_not_look": 2}[self.verdict]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "looked_at": list(self.looked_at),
            "findings": [finding.to_json() for finding in self.findings],
            "unreadable": [each.to_json() for each in self.unreadable],
            "not_looked_at": [each.to_json() for each in self.unseen],
            "seen": list(self.seen),
            "checks": {
                "all": self.checks,
                "ran": self.ran,
                "did_not_run": [{"checks": list(names), "why": why} for why, names in self.idle.items()],
            },
        }


def diagnose(
    case: Case, unreadable: Iterable[Unreadable] = (), unseen: Iterable[Unseen] = (), checks: Iterable[Check] = CHECKS
) -> Diagnosis:
    """Run the checks; findings come with the most severe first, and in the order of the checks within that.

    ``unreadable`` and ``unseen`` are what was found missing before, while gathering and joining.
    """
    findings: list[Finding] = []
    missing, checks = list(unseen), tuple(checks)
    for check in checks:
        for said in check.look(case):
            if isinstance(said, Finding):
                findings.append(said)
            else:
                missing.append(said)
    findings.sort(key=lambda finding: _SEVERITIES.index(finding.severity))
    return Diagnosis(
        tuple(findings), tuple(dict.fromkeys(missing)), tuple(unreadable), case.looked_at,
        looked_over(case), len(checks), idle_checks(case, checks),
    )  # fmt: skip
