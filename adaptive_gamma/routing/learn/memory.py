"""What the memories of one class and of a mix of classes share: time that passes with traffic, and dispersion."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["BEYOND_CHANCE", "LEAST_CHANGE", "SPLITS", "Dispersion", "Elapsing", "parts_to_keep"]

SPLITS = (1, 2, 4, 8)
"""How many of the newest parts of a memory are compared with all older ones."""
BEYOND_CHANCE = 4.0
"""The normal score from which a difference is a change. It is looked for every second."""
_BEYOND_CHANCE_AFTER = 3.0
"""The same soon after a change for the oldest one or two parts kept, which may reach back to before it."""
LEAST_CHANGE = 0.05
"""In a rate. A smaller change fades in with the half-life."""

_REVIEW_S = 1.0
"""Observations closer together than this share one look at the memory."""
_LONGEST_PAUSE_S = 10.0
"""A pause counts as no more than this: a class that rests for a night is not forgotten by the morning."""


def parts_to_keep(parts: int, score: Callable[[int], float], *, after_change: bool) -> int | None:
    """How many of the newest parts are of one population where the older ones are of another; None where all agree.

    Args:
        parts: how many there are.
        score: how far beyond chance so many newest parts differ from all that is older.
        after_change: whether a change was found of late.
    """
    if max((score(size) for size in SPLITS if size <= parts), default=0.0) > BEYOND_CHANCE:
        return max(range(1, parts + 1), key=score)
    if after_change:
        for size in (parts - 1, parts - 2):
            if size >= 2 and score(size) > _BEYOND_CHANCE_AFTER:
                return size
    return None


class Elapsing:
    """Turns moments into factors by which older counts lose weight.

    Args:
        half_life_s: seconds of traffic in which half of the weight is lost, > 0.
    """

    __slots__ = ("_last", "half_life_s")

    def __init__(self, half_life_s: float) -> None:
        if not (half_life_s > 0 and math.isfinite(half_life_s)):
            raise ValueError(f"half_life_s must be positive, not {half_life_s}")
        self.half_life_s = half_life_s
        self._last: float | None = None

    def due(self, at: float) -> bool:
        """Whether enough time has passed since the last look for another one."""
        return self._last is None or at - self._last >= _REVIEW_S

    def factor(self, now: float) -> float:
        """What is left of a weight since the last look, which is now; time never runs backwards."""
        last, self._last = self._last, now if self._last is None else max(now, self._last)
        if last is None:
            return 1.0
        return float(0.5 ** (min(max(now - last, 0.0), _LONGEST_PAUSE_S) / self.half_life_s))

    def idle(self, now: float) -> None:
        """A look that found no traffic: the time since the look before does not count."""
        self._last = now if self._last is None else max(now, self._last)


class Dispersion:
    """A ratio of observed to expected variance, decayed; starts from what is usual.

    Args:
        usual: the ratio believed before anything was seen.
        weight: how much that counts, in the unit of ``expected``.
    """

    __slots__ = ("expected", "observed", "usual", "weight")

    def __init__(self, usual: float, weight: float, observed: float = 0.0, expected: float = 0.0) -> None:
        self.usual = usual
        self.weight = weight
        self.observed = observed
        self.expected = expected

    def add(self, observed: float, expected: float) -> None:
        self.observed += observed
        self.expected += expected

    def add_part(self, observed: float, expected: float, most: float) -> None:
        """Count a part, but by no more than a ratio of ``most``: one that a change falls into scatters without being
        usual, and would hide the change."""
        self.add(min(observed, most * expected), expected)

    def scale(self, factor: float) -> None:
        self.observed *= factor
        self.expected *= factor

    @property
    def value(self) -> float:
        return (self.observed + self.usual * self.weight) / (self.expected + self.weight)
