"""The mix of classes that a replica has had of late. Time is an argument."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["ClassMix"]

_LEAST_WEIGHT = 1e-3


class ClassMix:
    """Requests by class, those of late weighing more.

    Args:
        window_s: as of ``LoadTrack``, whose mean has the same half-life: a quarter of it. May be set anew.
    """

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._weights: dict[str, float] = {}
        self._at: float | None = None

    def saw(self, open_requests: Mapping[str, int], at: float) -> None:
        """So many requests of each class are open at a moment."""
        if self._at is not None:
            kept = 0.5 ** (max(at - self._at, 0.0) * 4.0 / self.window_s)
            self._weights = {name: w for name, weight in self._weights.items() if (w := weight * kept) > _LEAST_WEIGHT}
        self._at = at
        for name, count in open_requests.items():
            self._weights[name] = self._weights.get(name, 0.0) + count

    @property
    def weights(self) -> Mapping[str, float]:
        """By class, on no scale."""
        return self._weights
