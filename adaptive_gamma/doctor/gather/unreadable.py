"""An input that gave nothing to look at."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Unreadable"]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Which input, and why."""

    given: str
    reason: str

    def to_json(self) -> dict[str, str]:
        """As plain data."""
        return {"input": self.given, "reason": self.reason}
