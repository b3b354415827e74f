"""Server-sent events (WHATWG HTML, section 9.2) out of a feed, as an ASGI answer."""

from __future__ import annotations

import asyncio
from typing import Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from adaptive_gamma.page.feed import Feed

__all__ = ["Connections", "EventStream", "event"]

_STALL_S = 20.0
"""A reader that takes nothing for this long has gone, though its connection has not."""
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_RETRY = b"retry: 2000\n\n"
_FULL = b"too many pages are open on this process; close one\n"


def event(name: str, data: bytes) -> bytes:
    """One event. ``data`` is one line, as JSON without indentation is."""
    return b"event: %b\ndata: %b\n\n" % (name.encode("ascii"), data)


class Connections(Protocol):
    """Those of the port that streams are asked for on; one is named by the ASGI scope's ``client``."""

    def narrow(self, client: object) -> None:
        """Hold little for this one, so that it soon shows when its other end takes nothing."""

    def cut(self, client: object) -> None:
        """Break it: what waits to be written to one that reads nothing would else keep it open."""


class _NoConnections:
    """Where there is no port of our own."""

    def narrow(self, client: object) -> None:
        """There is none."""

    def cut(self, client: object) -> None:
        """There is none."""


class EventStream(Response):
    """Sends what a feed tells until the reader leaves, the feed ends, or the reader has taken nothing for too long.

    When the feed takes no more listeners the answer is 503.

    Args:
        feed: what is sent; its sections are whole events.
        connections: those of the port.
        stall_s: see ``_STALL_S``.
    """

    def __init__(self, feed: Feed, *, connections: Connections | None = None, stall_s: float = _STALL_S) -> None:
        super().__init__()
        self._feed = feed
        self._connections: Connections = _NoConnections() if connections is None else connections
        self._stall_s = stall_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        listener = self._feed.listen()
        if listener is None:
            await Response(_FULL, 503, {"Retry-After": "10"}, "text/plain; charset=utf-8")(scope, receive, send)
            return

        self._connections.narrow(scope.get("client"))

        async def write() -> bool:
            """Whether the stream came to its own end."""
            try:
                async with asyncio.timeout(self._stall_s):
                    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                    await send({"type": "http.response.body", "body": _RETRY, "more_body": True})
                while (events := await listener.take()) is not None:
                    async with asyncio.timeout(self._stall_s):
                        await send({"type": "http.response.body", "body": b"".join(events), "more_body": True})
                async with asyncio.timeout(self._stall_s):
                    await send({"type": "http.response.body", "body": event("end", b"{}"), "more_body": False})
            except TimeoutError:
                return False
            return True

        tasks = [asyncio.create_task(_until_left(receive)), asyncio.create_task(write())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[1] in done and not tasks[1].result():
                self._connections.cut(scope.get("client"))
        finally:
            self._feed.leave(listener)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _until_left(receive: Receive) -> bool:
    while (await receive())["type"] != "http.disconnect":
        pass
    return True
