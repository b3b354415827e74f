"""The way to one engine: a pool of kept-alive connections without a cap, and the answer as a stream of bytes.

A connection rests at most 4 s, below the 5 s after which a vLLM server closes it. A connection that was reused and
dies before the first byte of an answer, right after the request was written, met the engine's own idle close: the
request is sent once more on a fresh connection. A fresh connection that dies has taken the request; that is an error.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from adaptive_gamma.errors import ConnectError
from adaptive_gamma.proxy.connection import ConnectionDied, EngineConnection, RawHeaders, request_head

__all__ = ["Upstream", "UpstreamLimits", "UpstreamResponse"]

IDLE_S = 4.0
RACE_S = 1.0
"""A reused connection that dies later than this after the request was not closed for idleness."""


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """Longest waits, in seconds."""

    connect_s: float = 5.0
    first_byte_s: float = 600.0
    idle_s: float = 300.0


class UpstreamResponse:
    """An answer whose head has come. ``close`` must be called, whatever happened; it keeps or drops the connection."""

    __slots__ = ("_connection", "_pool", "headers", "read", "status")

    def __init__(self, connection: EngineConnection, pool: Upstream) -> None:
        self.status = connection.status
        self.headers: RawHeaders = connection.headers
        """Names in lower case, in the engine's order, repeated ones repeated."""
        self.read = connection.read
        self._connection: EngineConnection | None = connection
        self._pool = pool

    @property
    def complete(self) -> bool:
        """Whether the last byte of the body has arrived here (it may still be unread)."""
        return self._connection is None or self._connection.complete

    def close(self) -> None:
        """Give the connection back when the answer was read to its end, else abort it, so that the engine stops."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.release(connection)


class Upstream:
    """Connections to one engine, ``http://`` or ``https://``.

    ``on_open`` is called for each connection opened, ``on_resend`` for each request sent a second time.
    """

    def __init__(
        self,
        url: str,
        limits: UpstreamLimits,
        *,
        ssl_context: ssl.SSLContext | None = None,
        on_open: Callable[[], None] | None = None,
        on_resend: Callable[[], None] | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._tls = ssl_context or ssl.create_default_context()
        self._port = parts.port or (443 if self._tls else 80)
        self.host_header = parts.netloc.encode("ascii")
        self._limits = limits
        self._idle_s = idle_s
        self._on_open = on_open
        self._on_resend = on_resend
        self._idle: deque[EngineConnection] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    async def request(
        self, method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes = b""
    ) -> UpstreamResponse:
        """Send a request and wait for the head of the answer. ``headers`` hold Host and the framing.

        Raises:
            ConnectError: no connection; the engine has not seen the request.
            UpstreamTimeout: the engine kept silent for too long.
            ProtocolError: the engine broke off, or its bytes are not HTTP.
        """
        head = request_head(method, target, headers)
        connection = self._take_idle()
        if connection is not None:
            sent_at = asyncio.get_running_loop().time()
            try:
                return await self._exchange(connection, method, head, body)
            except ConnectionDied:
                if asyncio.get_running_loop().time() - sent_at > RACE_S:
                    raise
            if self._on_resend is not None:
                self._on_resend()
        return await self._exchange(await self._connect(), method, head, body)

    async def _exchange(
        self, connection: EngineConnection, method: bytes, head: bytes, body: bytes
    ) -> UpstreamResponse:
        connection.begin(method=method, first_byte_s=self._limits.first_byte_s, idle_s=self._limits.idle_s)
        answered = False
        try:
            await connection.send(head, body)
            await connection.head()
            answered = True
        finally:
            if not answered:
                connection.abort()
                connection.end()
        return UpstreamResponse(connection, self)

    async def _connect(self) -> EngineConnection:
        loop = asyncio.get_running_loop()
        connection = EngineConnection(loop)
        made = False
        try:
            async with asyncio.timeout(self._limits.connect_s):
                await loop.create_connection(
                    lambda: connection,
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._host if self._tls else None,
                )
            made = True
        except TimeoutError as error:
            raise ConnectError(f"no connection within {self._limits.connect_s:g} s") from error
        except (OSError, UnicodeError) as error:  # a host that cannot be encoded has no address either
            raise ConnectError(str(error) or type(error).__name__) from error
        finally:
            if not made:
                connection.abort()
        if self._on_open is not None:
            self._on_open()
        return connection

    # -- the idle ones ------------------------------------------------------------------------------------------------

    @property
    def idle_connections(self) -> int:
        return len(self._idle)

    def _take_idle(self) -> EngineConnection | None:
        oldest = asyncio.get_running_loop().time() - self._idle_s
        while self._idle:
            connection = self._idle.pop()
            connection.wake()
            if connection.usable and connection.idle_since > oldest:
                return connection
            connection.abort()
        return None

    def release(self, connection: EngineConnection) -> None:
        """End a connection's exchange and keep it for the next where that is safe."""
        if not connection.end():
            return
        if self._closed:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        connection.rest(loop.time(), self._forget)
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(self._idle_s, self._expire)

    def _forget(self, connection: EngineConnection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._idle and self._idle[0].idle_since <= now - self._idle_s:
            connection = self._idle.popleft()
            connection.wake()
            connection.abort()
        self._sweep = None
        if self._idle:
            self._sweep = loop.call_later(self._idle[0].idle_since + self._idle_s - now, self._expire)

    def close(self) -> None:
        """Drop the idle connections; busy ones are dropped as their exchanges end."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        while self._idle:
            connection = self._idle.pop()
            connection.wake()
            connection.abort()
