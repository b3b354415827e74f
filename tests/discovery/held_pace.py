"""Time and chance in the test's hand."""

from __future__ import annotations

import asyncio

from adaptive_gamma.discovery import Pace

__all__ = ["HeldPace"]


class HeldPace(Pace):
    """Time stands until it is moved; a sleep ends when its time has come, and every one is noted.

    Where ``hurried``, a sleep moves the time itself: what waits is then never waited for.
    """

    def __init__(self, *, hurried: bool = False) -> None:
        self.time = 1000.0
        self.luck = 0.0
        self.sleeps: list[float] = []
        self.hurried = hurried
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        if self.hurried or seconds <= 0:
            self.time += max(seconds, 0.0)
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        self._waiting.append((self.time + seconds, woken))
        await woken

    def chance(self) -> float:
        return self.luck

    def advance(self, seconds: float) -> None:
        self.time += seconds
        for due, woken in self._waiting:
            if due <= self.time and not woken.done():
                woken.set_result(None)
        self._waiting = [(due, woken) for due, woken in self._waiting if not woken.done()]
