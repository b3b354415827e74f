"""The loads a replica has had of late, and what a gamma or a schedule drafts at them."""

from __future__ import annotations

import math
from collections import deque
from typing import TypeAlias

from adaptive_gamma.routing.replica import GammaSchedule, GammaSetting

__all__ = ["LoadTrack", "Loads", "drafted_at", "gamma_for", "mean_load", "median_load"]

Loads: TypeAlias = tuple[tuple[float, float], ...]
"""(sequences in the batch, share of the time with so many), loads rising; the shares sum to 1."""

_LEAST_SHARE = 1e-3
"""A load with less of the time is not worth a price of its own."""


def gamma_for(setting: GammaSetting, load: float) -> int:
    """The gamma of a setting at a load; a schedule's at the nearest whole batch."""
    return setting.at(round(load)) if isinstance(setting, GammaSchedule) else setting


def drafted_at(setting: GammaSetting, loads: Loads) -> float:
    """Mean gamma over the loads."""
    return math.fsum(share * gamma_for(setting, load) for load, share in loads)


def mean_load(loads: Loads) -> float:
    """0 without loads."""
    return math.fsum(load * share for load, share in loads)


def median_load(loads: Loads) -> float | None:
    """The load that half of the time does not exceed; None without loads."""
    seen = 0.0
    for load, share in loads:
        seen += share
        if seen >= 0.5:
            return load
    return loads[-1][0] if loads else None


class LoadTrack:
    """Mean, highest and usual loads of late.

    Args:
        window_s: how far back the highest load counts, and the half-life of the distribution; a quarter of it is the
            half-life of the mean.
    """

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._mean: float | None = None
        self._at = 0.0
        self._falling: deque[tuple[float, int]] = deque()
        """(time, load): the loads that no later one has reached, the highest first."""
        self._seconds: dict[int, float] = {}
        """Decayed seconds by load."""

    def saw(self, load: int, at: float) -> None:
        """The load at a moment. One seen at an earlier moment than the last counts as seen with it."""
        if self._mean is None:
            self._mean, self._at, self._seconds = float(load), at, {load: 1.0}
        elif at > self._at:
            elapsed = at - self._at
            self._mean += (load - self._mean) * (1.0 - 0.5 ** (elapsed * 4.0 / self.window_s))
            self._note(load, elapsed)
            self._at = at
        falling = self._falling
        while falling and falling[-1][1] <= load:
            falling.pop()
        falling.append((self._at, load))
        self._forget(self._at)

    def mean(self, now: float) -> float | None:
        """None when nothing was seen within the window."""
        return self._mean if self._mean is not None and now - self._at <= self.window_s else None

    def peak(self, now: float) -> int | None:
        """The highest in the window; None when nothing was seen within it."""
        self._forget(now)
        return self._falling[0][1] if self._falling else None

    def shares(self, now: float) -> Loads | None:
        """How the time was spent in which anything ran; a load of 1 where nothing ever did.

        None when nothing was seen within the window.
        """
        if self.mean(now) is None:
            return None
        busy = {load: seconds for load, seconds in self._seconds.items() if load > 0}
        whole = math.fsum(busy.values())
        kept = {load: seconds for load, seconds in busy.items() if seconds > whole * _LEAST_SHARE}
        if not kept:
            return ((1.0, 1.0),)
        whole = math.fsum(kept.values())
        return tuple((float(load), kept[load] / whole) for load in sorted(kept))

    def _note(self, load: int, elapsed: float) -> None:
        kept = 0.5 ** (elapsed / self.window_s)
        # What runs for longer than the window counts as the window: a pause between two looks is no load.
        seconds = min(elapsed, self.window_s)
        self._seconds = {each: left for each, s in self._seconds.items() if (left := s * kept) > seconds * 1e-6}
        self._seconds[load] = self._seconds.get(load, 0.0) + seconds

    def _forget(self, now: float) -> None:
        while self._falling and self._falling[0][0] < now - self.window_s:
            self._falling.popleft()
