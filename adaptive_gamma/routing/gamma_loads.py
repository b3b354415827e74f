"""The loads a replica has had of late, and what a gamma or a schedule drafts at them."""

from __future__ import annotations

import math
from collections import deque
from typing import TypeAlias

from adaptive_gamma.routing.replica import GammaSchedule, GammaSetting

__all__ = ["LoadTrack", "Loads", "drafted_at", "gamma_for", "mean_load", "median_load"]

Loads: TypeAlias = tuple[tuple[float, float], ...]
"""(sequences in the batch, share of the time with so many), loads rising; the shares sum to 1."""

_NO_LOAD = 1e-6
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
    """Usual and highest load of late, and all loads of late with their shares of the time.

    The usual load is the mean over sequences, not over time: the batch that a token is computed in. Five busy minutes
    with 30 sequences and five quiet ones with 2 have nearly all their tokens at 30, and that is what gamma must suit.
    It is the mean of the squares over the mean; at a steady load it is that load. A load that has fallen for good would
    be remembered for minutes so, and therefore it is never above the highest of the last quarter of the window.

    Args:
        window_s: how far back the highest load counts, and the half-life of the distribution; a quarter of it is the
            half-life of the means.
    """

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._means: tuple[float, float] | None = None
        """Of the load and of its square, over time."""
        self._at = 0.0
        self._falling: deque[tuple[float, int]] = deque()
        """(time, load): the loads that no later one has reached, the highest first."""
        self._seconds: dict[int, float] = {}
        """Decayed seconds by load."""

    def saw(self, load: int, at: float) -> None:
        """The load at a moment. One seen at an earlier moment than the last counts as seen with it."""
        new = float(load), float(load) ** 2
        if self._means is None:
            self._means, self._at, self._seconds = new, at, {load: 1.0}
        elif at > self._at:
            elapsed = at - self._at
            share = 1.0 - 0.5 ** (elapsed * 4.0 / self.window_s)
            first, second = self._means
            self._means = first + (new[0] - first) * share, second + (new[1] - second) * share
            self._note(load, elapsed)
            self._at = at
        falling = self._falling
        while falling and falling[-1][1] <= load:
            falling.pop()
        falling.append((self._at, load))
        self._forget(self._at)

    def usual(self, now: float) -> float | None:
        """As described, 0 without any sequences; None when nothing was seen within the window."""
        if self._means is None or now - self._at > self.window_s:
            return None
        first, second = self._means
        lately = next((load for at, load in self._falling if at >= now - self.window_s / 4.0), None)
        usual = second / first if first > _NO_LOAD else 0.0
        return usual if lately is None else min(usual, float(lately))

    def peak(self, now: float) -> int | None:
        """The highest in the window; None when nothing was seen within it."""
        self._forget(now)
        return self._falling[0][1] if self._falling else None

    def shares(self, now: float) -> Loads | None:
        """How the time was spent in which anything ran; a load of 1 where nothing ever did.

        None when nothing was seen within the window.
        """
        if self.usual(now) is None:
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
