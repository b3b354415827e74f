"""What the doctor says: findings with their evidence, and what it could not look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

__all__ = ["Cost", "Evidence", "EvidenceKind", "Finding", "Fix", "Severity", "Unseen"]

Severity: TypeAlias = Literal["problem", "warning", "note"]
"""problem: it costs now, or what is believed is wrong; warning: it costs in some situations, or hides what it costs;
note: worth knowing, and no reason to act (the exit code does not count it)."""

EvidenceKind: TypeAlias = Literal["line", "metric", "figure", "setting"]
"""line: of a log; metric: read off an engine's page; figure: worked out of such; setting: of a configuration."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a finding rests on."""

    kind: EvidenceKind
    where: str
    """``file:line``, a URL, or whose figure it is."""
    text: str

    def to_json(self) -> dict[str, str]:
        """As plain data."""
        return {"kind": self.kind, "where": self.where, "text": self.text}


@dataclass(frozen=True, slots=True)
class Cost:
    """What it costs, and who says so: ``here`` is measured on what was looked at."""

    text: str
    source: str

    def to_json(self) -> dict[str, str]:
        """As plain data."""
        return {"text": self.text, "source": self.source}


@dataclass(frozen=True, slots=True)
class Fix:
    """What to do, and the flags of that engine and version that do it."""

    text: str
    flags: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"text": self.text, "flags": list(self.flags)}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found. ``code`` is a short stable word, ``subject`` the server or file it is about."""

    code: str
    severity: Severity
    subject: str
    title: str
    evidence: tuple[Evidence, ...]
    cause: str
    cost: Cost | None = None
    fix: Fix | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "code": self.code,
            "severity": self.severity,
            "subject": self.subject,
            "title": self.title,
            "evidence": [each.to_json() for each in self.evidence],
            "cause": self.cause,
            "cost": None if self.cost is None else self.cost.to_json(),
            "fix": None if self.fix is None else self.fix.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Unseen:
    """A check that could not look."""

    check: str
    subject: str
    why: str

    def to_json(self) -> dict[str, str]:
        """As plain data."""
        return {"check": self.check, "subject": self.subject, "why": self.why}
