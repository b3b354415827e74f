"""Requests that wait because every replica that could take them is at its cap."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

__all__ = ["WaitingRoom", "Waits"]

_log = logging.getLogger("adaptive_gamma.proxy")

_LOOK_AGAIN_S = 0.25
"""A replica that comes up, or a cap that is raised, tells nobody here."""


class Waits(Protocol):
    """A request in the waiting room."""

    @property
    def waits_for(self) -> object:
        """What tells it apart: of requests that are alike in this none finds room where another found none."""

    def try_again(self) -> bool:
        """Try to be sent; False when there is still no room. Called while still in the room."""

    def waited_too_long(self) -> None:
        """It has been taken out of the room."""

    def on_fault(self) -> None:
        """One of the calls above raised, which has been logged; it has been taken out of the room."""


class WaitingRoom:
    """First come, first served, with a limit on how many wait and how long.

    Args:
        places: gives the most that may wait; 0 lets nobody wait.
        longest_s: gives the longest wait in seconds.
    """

    __slots__ = ("_longest_s", "_places", "_tick", "_trying", "_waiting")

    def __init__(self, places: Callable[[], int], longest_s: Callable[[], float]) -> None:
        self._places = places
        self._longest_s = longest_s
        self._waiting: dict[Waits, float] = {}
        """Each with the loop's time at which it has waited too long, in the order of arrival."""
        self._tick: asyncio.TimerHandle | None = None
        self._trying = False

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, request: Waits) -> bool:
        """Wait; False when there is no place."""
        if len(self._waiting) >= self._places():
            return False
        loop = asyncio.get_running_loop()
        self._waiting[request] = loop.time() + self._longest_s()
        if self._tick is None:
            self._tick = loop.call_later(_LOOK_AGAIN_S, self._look_again)
        return True

    def leave(self, request: Waits) -> None:
        """Stop waiting; harmless for one that does not wait."""
        self._waiting.pop(request, None)

    def room_made(self) -> None:
        """A request ended somewhere: send who has waited longest and can go now."""
        if self._waiting and not self._trying:
            self._try()

    def _try(self) -> None:
        # Requests for different models wait side by side, so those that cannot go do not hold up those behind them.
        self._trying = True
        full: set[object] = set()
        try:
            for request in list(self._waiting):
                if request not in self._waiting or request.waits_for in full:
                    continue
                if self._guarded(request, request.try_again):
                    self._waiting.pop(request, None)
                else:
                    full.add(request.waits_for)
        finally:
            self._trying = False

    def _guarded(self, request: Waits, call: Callable[[], bool | None]) -> bool | None:
        """A fault of one who waits must not reach whoever made the room."""
        try:
            return call()
        except Exception:
            _log.exception("a waiting request met a fault")
            self._waiting.pop(request, None)
            request.on_fault()
            return True

    def _look_again(self) -> None:
        self._tick = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        # What follows from one that is sent away must not touch the others before they have been looked at.
        self._trying = True
        try:
            for request in [request for request, until in self._waiting.items() if until <= now]:
                if self._waiting.pop(request, None) is not None:
                    self._guarded(request, request.waited_too_long)
        finally:
            self._trying = False
            # Whatever was met above: those who still wait are looked at again.
            if self._waiting and self._tick is None:
                self._tick = loop.call_later(_LOOK_AGAIN_S, self._look_again)
        self._try()
