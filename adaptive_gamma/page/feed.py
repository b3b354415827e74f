"""What the live page is told: made once a tick for all who listen, not at all while nobody does.

A listener has a place for the latest of each section, and no queue: one who reads slowly misses what was in between,
holds nobody up and costs no more memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

__all__ = ["Feed", "Listener"]

_log = logging.getLogger("adaptive_gamma.page")

_FAULTS = (ArithmeticError, ValueError, TypeError, LookupError, AttributeError)
"""What making a tick can raise by a fault of ours over states nobody foresaw: it is logged, and the next is made."""


class Listener:
    """One who listens. ``take`` gives what is new."""

    def __init__(self) -> None:
        self._pending: dict[str, bytes] = {}
        self._wake = asyncio.Event()
        self._over = False

    def put(self, sections: Mapping[str, bytes]) -> None:
        """Have these in place of what was not taken yet."""
        self._pending.update(sections)
        self._wake.set()

    def end(self) -> None:
        """Nothing more comes after what is there."""
        self._over = True
        self._wake.set()

    async def take(self) -> list[bytes] | None:
        """Wait for something new; None when there is nothing more to come."""
        while not self._pending:
            if self._over:
                return None
            self._wake.clear()
            await self._wake.wait()
        taken, self._pending = list(self._pending.values()), {}
        return taken


class Feed:
    """Calls ``compute`` once an interval while somebody listens, and gives each listener the sections that changed.

    Args:
        compute: makes the sections, each ready to be sent; a section whose bytes are as before is not sent again.
        interval_s: from the start of a tick to the start of the next; a tick that takes longer delays the next.
        most: listeners at a time.
    """

    def __init__(
        self,
        compute: Callable[[], Awaitable[Mapping[str, bytes]]],
        *,
        interval_s: float = 1.0,
        most: int = 16,
    ) -> None:
        self.ticks = 0
        """Times that ``compute`` was called."""
        self._compute = compute
        self._interval_s = interval_s
        self._most = most
        self._listeners: set[Listener] = set()
        self._last: dict[str, bytes] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._empty = asyncio.Event()
        self._faulty = False

    @property
    def listeners(self) -> int:
        """Those who listen now."""
        return len(self._listeners)

    @property
    def running(self) -> bool:
        """Whether ticks are being made."""
        return self._task is not None

    def listen(self) -> Listener | None:
        """A new listener, in the running event loop; None when there are too many or the feed is closed."""
        if self._closed or len(self._listeners) >= self._most:
            return None
        listener = Listener()
        self._listeners.add(listener)
        self._empty.clear()
        if self._task is None:
            self._last = {}
            self._task = asyncio.get_running_loop().create_task(self._run(), name="live page")
        elif self._last:
            listener.put(self._last)
        return listener

    def leave(self, listener: Listener) -> None:
        """The listener has gone; its place is free."""
        self._listeners.discard(listener)
        if self._listeners:
            return
        self._empty.set()
        if self._task is not None:
            self._task.cancel()
            self._task, self._last = None, {}

    def close(self) -> None:
        """Let every listener come to its end, and take no more."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            self._task = None
        for listener in self._listeners:
            listener.end()

    async def emptied(self, within_s: float) -> bool:
        """Wait until nobody listens any more, at most for so long; whether that came."""
        if not self._listeners:
            return True
        try:
            async with asyncio.timeout(within_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + self._interval_s
            self.ticks += 1
            try:
                self._tell(await self._compute())
                self._faulty = False
            except _FAULTS:
                if not self._faulty:
                    _log.exception("the live page met a fault of ours; its figures stand still while that lasts")
                self._faulty = True
            await asyncio.sleep(max(due - loop.time(), 0.0))

    def _tell(self, sections: Mapping[str, bytes]) -> None:
        changed = {name: body for name, body in sections.items() if self._last.get(name) != body}
        self._last = dict(sections)
        if changed:
            for listener in self._listeners:
                listener.put(changed)
