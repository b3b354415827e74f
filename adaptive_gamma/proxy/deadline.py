"""One timer of a connection, moved by writing a number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

__all__ = ["Deadline"]

_CLOCK_GRAIN_S = 0.002
"""The loop's clock may be coarser than its timers."""


def _nothing() -> None:
    """In place of the call."""


class Deadline:
    """Calls once when the loop's clock passes ``at``.

    ``at`` may be written directly to move the moment back or to infinity: that costs nothing, the running timer finds
    out. Only ``set`` can bring it forward.
    """

    __slots__ = ("_call", "_loop", "_timer", "_timer_at", "at")

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop = loop
        self._call = call
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self.at = inf
        """Seconds on the loop's clock; infinity is never."""

    def set(self, at: float) -> None:
        """Move the deadline, forward or back."""
        self.at = at
        if at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self._loop.call_at(at, self._fire)

    def close(self) -> None:
        """Never call again, and let go of who would be called: a connection that is gone is freed at once."""
        self.at = inf
        self._call = _nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._timer_at = inf

    def _fire(self) -> None:
        self._timer = None
        self._timer_at = inf
        at = self.at
        if at == inf:
            return
        if self._loop.time() < at - _CLOCK_GRAIN_S:
            self.set(at)
        else:
            self.at = inf
            self._call()
