"""Scripted acceptance: how many draft tokens of a verify step the simulated target accepts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

from adaptive_gamma.routing import canonical_class

__all__ = ["DEFAULT_ACCEPTANCE", "ScriptedAcceptance"]

DEFAULT_ACCEPTANCE: Final[Mapping[str, tuple[float, ...]]] = {
    "structured": (0.84, 0.83),
    "chat": (0.73, 0.69),
    "unsure": (0.78, 0.76),
}
"""Conditional acceptance by class where the caller gives none: a plausible shape, measured on nothing."""


class ScriptedAcceptance:
    """Conditional acceptance by class and position; the last rate holds for every later position.

    The rate at position i is the chance that draft token i+1 is accepted given that all before it were. A class that
    is not scripted takes ``unsure``'s rates, or the first scripted class's where there is no ``unsure``.

    Raises:
        ValueError: no class, a class without rates, or a rate outside 0..1.
    """

    def __init__(self, rates: Mapping[str, Sequence[float]]) -> None:
        self._rates: dict[str, tuple[float, ...]] = {}
        for name, values in rates.items():
            if not values:
                raise ValueError(f"class {name!r} has no rates")
            if any(not 0.0 <= value <= 1.0 for value in values):
                raise ValueError(f"class {name!r}: a rate lies in 0..1")
            self._rates[canonical_class(name)] = tuple(float(value) for value in values)
        if not self._rates:
            raise ValueError("no class has rates")
        self._fallback = self._rates.get("unsure", next(iter(self._rates.values())))

    @property
    def rates(self) -> dict[str, tuple[float, ...]]:
        """Conditional rates by class."""
        return dict(self._rates)

    def conditional(self, request_class: str, position: int) -> float:
        """Chance that the draft token at ``position`` (from 0) is accepted, all before it having been accepted."""
        rates = self._rates.get(canonical_class(request_class), self._fallback)
        return rates[min(position, len(rates) - 1)]

    def accepted(self, rng: random.Random, request_class: str, drafted: int) -> int:
        """Draft tokens accepted of ``drafted``: position by position, up to the first refusal."""
        for position in range(drafted):
            if rng.random() >= self.conditional(request_class, position):
                return position
        return drafted
