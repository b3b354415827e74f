"""Many small requests at little cost: an engine and a client of a few callbacks, for counts that need thousands."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any

import httptools

from tests.support.gated_engine import METRICS_PAGE

__all__ = ["LeanEngine", "hammer"]

_OK = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}'
_PAGE = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(METRICS_PAGE), METRICS_PAGE.encode())


class LeanEngine:
    """Answers every request with the same JSON.

    ``act`` is told of each generation request, before it is answered: the connection, and how many came on it so far.
    What it returns says what happens: None answers it, ``close`` and ``reset`` end the connection instead, ``answer and
    close`` does both without a word of it in the answer's head.
    """

    def __init__(self, act: Callable[[int], str | None] | None = None) -> None:
        self.act = act
        self.served = 0
        self.connections = 0
        self._server: asyncio.Server | None = None
        self.open: set[asyncio.Transport] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> LeanEngine:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Served(self), "127.0.0.1", 0, backlog=1024)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for transport in list(self.open):
            transport.abort()


class _Served(asyncio.Protocol):
    def __init__(self, engine: LeanEngine) -> None:
        self._engine = engine
        self._parser = httptools.HttpRequestParser(self)
        self._count = 0
        self._target = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._engine.open.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._engine.open.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._target = url

    def on_message_complete(self) -> None:
        if self._transport.is_closing():
            return
        if self._target in (b"/metrics", b"/health", b"/v1/models"):
            self._transport.write(_PAGE)
            return
        engine = self._engine
        self._count += 1
        engine.connections += self._count == 1
        act = engine.act(self._count) if engine.act is not None else None
        if act is None or act == "answer and close":
            engine.served += 1
            self._transport.write(_OK)
        if act == "reset":
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
        elif act is not None:
            self._transport.close()


async def hammer(port: int, requests: Iterable[bytes], connections: int) -> Counter[int]:
    """Send all requests over so many connections, one after the other on each; the count of answers by status.

    A connection the server closes between two answers is opened again; one that breaks inside an answer counts as 0.
    """
    seen: Counter[int] = Counter()
    left = deque(requests)

    async def one() -> None:
        while left:
            asking = _Asking(left, seen)
            await asyncio.get_running_loop().create_connection(lambda asking=asking: asking, "127.0.0.1", port)  # type: ignore[misc]
            await asking.over.wait()

    async with asyncio.timeout(110):
        await asyncio.gather(*(one() for _ in range(connections)))
    return seen


class _Asking(asyncio.Protocol):
    def __init__(self, left: deque[bytes], seen: Counter[int]) -> None:
        self._left = left
        self._seen = seen
        self._asked = False
        self.over = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        if not self._left:
            self._transport.close()
            return
        self._asked = True
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(self._left.popleft())

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        if self._asked or self._transport.is_closing():
            return
        if self._parser.should_keep_alive():
            self._next()
        else:
            self._transport.close()

    def on_message_complete(self) -> None:
        self._seen[self._parser.get_status_code()] += 1
        self._asked = False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._asked:
            self._seen[0] += 1
        self.over.set()
