"""``set_gamma: none``: the engine keeps the gamma it was started with, and requests are only routed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adaptive_gamma.engines.actuator import ActuatorState, GammaSet
from adaptive_gamma.errors import ActuatorError

__all__ = ["NoActuator"]


class NoActuator:
    """Sets nothing."""

    name = "none"
    smallest_gamma = 0
    schedules = False
    paths: frozenset[str] = frozenset()
    field_names: frozenset[str] = frozenset()
    answer_mark = b""
    state: ActuatorState = "ready"
    problem: str | None = None
    waits_for: str | None = None
    gamma: GammaSet | None = None
    largest_gamma: int | None = None
    largest_batch: int | None = None
    settable: frozenset[int] | None = None

    async def look(self) -> None:
        """Nothing to see."""

    async def change(self, gamma: GammaSet) -> None:
        """Raises ActuatorError."""
        raise ActuatorError("not_settable", "set_gamma is none: the engine's gamma is not to be changed")

    async def withdraw(self) -> None:
        """Nothing was set."""

    def settled(self) -> bool:
        return True

    def request_field(self) -> tuple[str, int] | None:
        return None

    def answered(self, sent: int | None, body: Mapping[str, object]) -> None:
        """Nothing to learn."""

    def refused(self, sent: int | None, status: int) -> None:
        """Nothing was sent."""

    def restarted(self) -> None:
        """Nothing was set."""

    def details(self) -> Mapping[str, Any]:
        return {}

    async def close(self) -> None:
        """Nothing was opened."""
