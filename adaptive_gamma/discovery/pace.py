"""Time and chance, as the loops of discovery see them: given to them, so that tests hold both in their hand."""

from __future__ import annotations

import asyncio
import random
import time

__all__ = ["Backoff", "Pace"]

_FIRST_S = 0.5


class Pace:
    """The process's own time."""

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def chance(self) -> float:
        """Anything from 0 up to 1."""
        return random.random()  # nosec B311  # spreads retries; no secret


class Backoff:
    """Waits after failures: each twice as long as the one before, up to ``most_s``, and by chance up to half shorter,
    so that many processes that lost one server do not come back to it all at once."""

    def __init__(self, pace: Pace, most_s: float) -> None:
        self._pace = pace
        self._most_s = most_s
        self._failures = 0

    def next_s(self) -> float:
        """Seconds to wait now."""
        whole = min(_FIRST_S * 2.0 ** min(self._failures, 30), self._most_s)
        self._failures += 1
        return whole * (1.0 - 0.5 * self._pace.chance())

    def reset(self) -> None:
        """Something came of it: the next failure is the first again."""
        self._failures = 0
