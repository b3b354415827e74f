"""The way to one engine: a pool of kept-alive connections without a cap, and calls that tell how their answer goes.

A connection rests at most 4 s, below the 5 s after which a vLLM server closes it. A connection that was reused and
dies before the first byte of an answer, reset or right after the request was written, met the engine's own idle close:
the request is sent once more on a fresh connection. A fresh connection that dies has taken the request; that is an
error.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from urllib.parse import urlsplit

from adaptive_gamma.errors import ConnectError, UpstreamError
from adaptive_gamma.proxy.deadline import Deadline
from adaptive_gamma.proxy.engine_connection import AnswerSink, ConnectionDied, EngineConnection

__all__ = ["Upstream", "UpstreamCall", "UpstreamLimits"]

_log = logging.getLogger("adaptive_gamma.proxy")

IDLE_S = 4.0
RACE_S = 1.0
"""A reused connection that is closed, not reset, later than this after the request was not closed for idleness."""


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """Longest waits, in seconds."""

    connect_s: float = 5.0
    first_byte_s: float = 600.0
    idle_s: float = 300.0


class UpstreamCall:
    """One request on its way to an engine; its ``sink`` is told of the answer and may be replaced meanwhile.

    The sink's failures are ``ConnectError`` (the engine has not seen the request), ``UpstreamTimeout`` (silent for too
    long) and ``ProtocolError`` (it broke off, or its bytes are not HTTP).

    Args:
        pool: the way to the engine.
        sink: who is told.
        method: the request's.
        head: the whole head as it is sent, with Host and the framing.
        body: the whole body.
    """

    __slots__ = ("_body", "_connecting", "_connection", "_head", "_method", "_pool", "_reused", "sink")

    def __init__(self, pool: Upstream, sink: AnswerSink, method: bytes, head: bytes, body: bytes) -> None:
        self.sink = sink
        self._pool = pool
        self._method = method
        self._head = head
        self._body = body
        self._connecting: asyncio.Task[None] | None = None
        self._connection: EngineConnection | None = None
        self._reused = False
        """It was sent on a connection that was open already, and has not been sent again."""

    def cancel(self) -> None:
        """Stop whatever is under way; the engine sees its connection closed. Harmless when all is over."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def forget_request(self) -> None:
        """The request will not be sent again."""
        self._head = self._body = b""

    def pause(self) -> None:
        """Read nothing more of the answer until ``resume``."""
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        if self._connection is not None:
            self._connection.resume()

    def start(self) -> None:
        """Send on an idle connection where there is one."""
        connection = self._pool.take_idle()
        if connection is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        else:
            self._reused = True
            self._connection = connection
            connection.begin(self, self._method, self._head, self._body)

    async def _connect(self) -> None:
        try:
            try:
                connection = await self._pool.connect()
            except ConnectError as error:
                self._connecting = None
                self.sink.on_failure(error)
                return
            self._connecting = None
            self._connection = connection
            connection.begin(self, self._method, self._head, self._body)
        except Exception:
            _log.exception("a call to %s met a fault", self._pool.host_header.decode("ascii"))
            self.sink.on_fault()

    # -- the connection's side (AnsweredCall) -------------------------------------------------------------------------

    def on_end(self) -> None:
        self._connection = None
        self.sink.on_end()

    def on_failure(self, error: UpstreamError) -> None:
        connection, self._connection = self._connection, None
        if isinstance(error, ConnectionDied) and self._reused and connection is not None:
            loop = asyncio.get_running_loop()
            self._reused = False
            if error.unread or loop.time() <= connection.begun_at + RACE_S:
                self._pool.resent()
                self._connecting = loop.create_task(self._connect())
                return
        self.sink.on_failure(error)

    def on_fault(self) -> None:
        self._connection = None
        self.sink.on_fault()


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
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop of the connections, once there were any: to ask for the running one takes a call of the system."""
        self._idle: deque[EngineConnection] = deque()
        self._expiry: Deadline | None = None
        self._closed = False

    async def connect(self) -> EngineConnection:
        """A fresh connection. Raises ConnectError."""
        loop = self._loop = asyncio.get_running_loop()
        limits = self._limits
        connection = EngineConnection(loop, self, first_byte_s=limits.first_byte_s, idle_s=limits.idle_s)
        made = False
        try:
            async with asyncio.timeout(limits.connect_s):
                await loop.create_connection(
                    lambda: connection,
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._host if self._tls else None,
                )
            made = True
        except TimeoutError as error:
            raise ConnectError(f"no connection within {limits.connect_s:g} s") from error
        except (OSError, UnicodeError) as error:  # a host that cannot be encoded has no address either
            raise ConnectError(str(error) or type(error).__name__) from error
        finally:
            if not made:
                connection.abort()
        if not connection.usable:
            raise ConnectError("the engine closed the connection as it was made")
        if self._on_open is not None:
            self._on_open()
        return connection

    def resent(self) -> None:
        """A request is sent a second time."""
        if self._on_resend is not None:
            self._on_resend()

    # -- the idle ones ------------------------------------------------------------------------------------------------

    @property
    def idle_connections(self) -> int:
        return len(self._idle)

    def take_idle(self) -> EngineConnection | None:
        """The idle connection used last, if it may still be used."""
        idle, loop = self._idle, self._loop
        while idle and loop is not None:
            connection = idle.pop()
            if connection.idle_since > loop.time() - self._idle_s and connection.fit_for_another():
                return connection
            connection.abort()
        return None

    def rest(self, connection: EngineConnection) -> None:
        """Keep a connection, idle since now, for the next request."""
        if self._closed:
            connection.abort()
            return
        self._idle.append(connection)
        expiry = self._expiry
        if expiry is None:
            expiry = self._expiry = Deadline(asyncio.get_running_loop(), self._expire)
        if expiry.at == inf:
            expiry.set(self._idle[0].idle_since + self._idle_s)

    def forget(self, connection: EngineConnection) -> None:
        """Drop a connection that was lost while idle."""
        if connection in self._idle:
            self._idle.remove(connection)

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        idle = self._idle
        # A connection is aborted before anything else may have taken it: the engine's own limit is near.
        while idle and idle[0].idle_since <= now - self._idle_s + 0.01:
            idle.popleft().abort()
        if idle and self._expiry is not None:
            self._expiry.set(idle[0].idle_since + self._idle_s)

    def close(self) -> None:
        """Drop the idle connections; busy ones are dropped as their exchanges end."""
        self._closed = True
        if self._expiry is not None:
            self._expiry.close()
            self._expiry = None
        while self._idle:
            self._idle.pop().abort()
