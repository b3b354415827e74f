"""Faults that a tester may ask of the simulated engine, at start or while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from adaptive_gamma.errors import nearest

__all__ = ["GENERATION_FAULTS", "METRICS_FAULTS", "FaultError", "Faults"]

METRICS_FAULTS = ("html", "empty", "500", "cut", "silent")
GENERATION_FAULTS = ("500", "503", "error_event", "cut", "silent")


class FaultError(ValueError):
    """A fault that does not exist."""


@dataclass(slots=True)
class Faults:
    """What goes wrong now; None means that nothing does."""

    metrics: str | None = None
    """``html``: 200 with an HTML page; ``empty``: 200 with no bytes; ``500``; ``cut``: 200 with a page that ends in the
    middle of a line; ``silent``: no answer at all."""
    health: int | None = None
    """The status of ``/health`` and ``/ping`` instead of 200, 400..599."""
    generation: str | None = None
    """``500`` and ``503``: refused before the engine sees it; ``error_event``: a stream ends with vLLM's error event,
    an answer that is no stream is 500; ``cut``: the connection closes in the middle; ``silent``: it stays open and
    nothing comes."""
    after_events: int = 1
    """Token events that a stream still delivers before ``error_event``, ``cut`` or ``silent``."""

    def change(self, asked: Mapping[str, Any]) -> None:
        """Set the named faults; all are checked before one is set.

        Raises:
            FaultError: an unknown name or value.
        """
        names = [field.name for field in fields(self)]
        for name, value in asked.items():
            if name not in names:
                near = nearest(name, names)
                raise FaultError(f"no fault {name!r}" + (f" (did you mean {near!r}?)" if near else ""))
            if not _is_allowed(name, value):
                raise FaultError(f"{name} cannot be {value!r}")
        for name, value in asked.items():
            setattr(self, name, value)

    def as_dict(self) -> dict[str, Any]:
        """All faults, null where nothing goes wrong."""
        return asdict(self)


def _is_allowed(name: str, value: object) -> bool:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if name == "after_events":
        return is_number and isinstance(value, int) and value >= 0
    if value is None:
        return True
    if name == "health":
        return is_number and isinstance(value, int) and 400 <= value <= 599
    return value in (METRICS_FAULTS if name == "metrics" else GENERATION_FAULTS)
