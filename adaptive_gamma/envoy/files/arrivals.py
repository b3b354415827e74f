"""How many requests of each kind arrive, out of Envoy's counts."""

from __future__ import annotations

import math
from collections import Counter

__all__ = ["Arrivals"]


class Arrivals:
    """Requests per second by cluster, smoothed.

    Args:
        smoothing_s: time after which what was counted has lost two thirds of its weight, in seconds.
    """

    def __init__(self, smoothing_s: float = 1.0) -> None:
        self._smoothing_s = smoothing_s
        self._rates: dict[str, float] = {}
        self._totals: Counter[str] | None = None
        self._at = 0.0

    def count(self, totals: Counter[str], now: float) -> None:
        """Take Envoy's counts at a time. A count that fell (a restart, an endpoint that has gone) begins anew."""
        before, passed = self._totals, now - self._at
        if before is not None and passed > 0:
            kept = math.exp(-passed / self._smoothing_s)
            for name in self._rates.keys() | totals.keys():
                rate = max(0, totals[name] - before[name]) / passed if name in before else 0.0
                self._rates[name] = kept * self._rates.get(name, 0.0) + (1.0 - kept) * rate
        if before is None or passed > 0:
            self._totals, self._at = totals, now

    def rate(self, name: str) -> float:
        """Requests per second of a cluster; 0 while nothing is known."""
        return self._rates.get(name, 0.0)
