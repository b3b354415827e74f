"""How far a measured rate can be trusted. Time is an argument."""

from __future__ import annotations

import math

__all__ = ["RateNoise"]

_LEAST_LOOKS = 5.0
_HALF_LIFE_S = 600.0
"""Long, as the looks are of observed against predicted: load and gamma may change in it. How well a ratio is known
grows with the time it was looked at; over half a minute it is known to some percent only, and that is more than
neighbouring gammas differ by."""


class RateNoise:
    """The standard error of observed over predicted tokens, looks of late weighing more and long ones more than short.

    What a prediction knows is no noise: load, gamma, and the prompts read between.
    """

    __slots__ = ("_looks", "_observed", "_oo", "_op", "_pp", "_predicted")

    def __init__(self) -> None:
        self._looks = self._observed = self._predicted = 0.0
        self._oo = self._op = self._pp = 0.0

    def saw(self, observed: float, predicted: float, elapsed: float) -> None:
        """One look.

        Args:
            observed: tokens counted since the look before.
            predicted: tokens expected in the same time.
            elapsed: seconds since the look before.
        """
        kept = 0.5 ** (elapsed / _HALF_LIFE_S)
        self._looks = self._looks * kept + 1.0
        self._observed = self._observed * kept + observed
        self._predicted = self._predicted * kept + predicted
        kept *= kept  # weights are squared in a variance
        self._oo = self._oo * kept + observed * observed
        self._op = self._op * kept + observed * predicted
        self._pp = self._pp * kept + predicted * predicted

    @property
    def relative_error(self) -> float | None:
        """Of the ratio of the sums, relative to it; None after too few looks."""
        if self._looks < _LEAST_LOOKS or self._observed <= 0 or self._predicted <= 0:
            return None
        ratio = self._observed / self._predicted
        variance = max(self._oo - 2.0 * ratio * self._op + ratio * ratio * self._pp, 0.0)
        return math.sqrt(variance) / self._observed
