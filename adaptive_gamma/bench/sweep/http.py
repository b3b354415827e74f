"""HTTP/1.1 towards an engine under test: one exchange at a time, every piece stamped the moment it is read.

A client that measures must not be what is measured, so nothing stands between the socket and the stamp: no task is
woken and no iterator stepped before the clock is read.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import cast
from urllib.parse import urlsplit

import httptools

from adaptive_gamma._version import __version__
from adaptive_gamma.errors import ConnectError, ProtocolError, UpstreamTimeout

__all__ = ["Address", "Answer", "BodySink", "Clock", "Connection", "fetch"]

Clock = Callable[[], float]
"""Seconds on a clock that never goes back."""
BodySink = Callable[[int, bytes, float], None]
"""Called with the answer's status, a piece of its body, and when it was read. May raise ProtocolError."""

_LARGEST_PAGE = 8 * 1024 * 1024
_NOTHING: Mapping[str, str] = MappingProxyType({})


class _ConnectionLost(ProtocolError):
    """The engine closed the connection before the first byte of its answer."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine listens."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: _NOTHING, repr=False)
    """Sent with every request; the place of the key, so never shown."""

    @classmethod
    def of(cls, url: str, headers: Mapping[str, str] = _NOTHING) -> Address:
        """The address of a checked url ``http(s)://host[:port]``."""
        parts = urlsplit(url)
        assert parts.hostname is not None, "checked before"
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        return cls(parts.hostname, parts.port or (443 if tls else 80), tls, headers)

    def without_key(self, text: str) -> str:
        """The text with the key blotted out, should an engine have repeated it."""
        for value in self.headers.values():
            text = text.replace(value.removeprefix("Bearer "), "***")
        return text

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The bytes of a request."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [
            f"{method} {path} HTTP/1.1",
            f"host: {host}:{self.port}",
            f"user-agent: adaptive-gamma/{__version__}",
            "accept: */*",
            "accept-encoding: identity",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        if method != "GET":
            lines += ["content-type: application/json", f"content-length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of an answer whose body has gone to the sink."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case; of repeated ones the last."""


class Connection(asyncio.Protocol):
    """A connection to an engine that carries one exchange after the other."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self.address = address
        self.exchanges = 0
        """Number of answers that came to their end on it."""
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._done: asyncio.Future[None] | None = None
        self._sink: BodySink | None = None
        self._status = 0
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._received = self._complete = self._interim = self._until_close = False
        self._keep_alive = True

    @classmethod
    async def open(cls, address: Address, clock: Clock, timeout_s: float) -> Connection:
        """Connect. Raises ConnectError."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    lambda: cls(address, clock), address.host, address.port, ssl=address.tls
                )
        except TimeoutError:
            raise ConnectError(f"no connection within {timeout_s:g} s") from None
        except (OSError, ssl.SSLError, UnicodeError) as error:
            raise ConnectError(str(error) or type(error).__name__) from error
        return connection

    @property
    def usable(self) -> bool:
        """Whether another exchange may start on it."""
        return self._transport is not None and not self._transport.is_closing() and self._done is None

    async def exchange(self, request: bytes, sink: BodySink) -> Answer:
        """Send a request and read its answer to the end.

        Raises:
            ProtocolError: the bytes are not HTTP or broke off, or the sink refused them. The connection is closed.
        """
        assert self.usable, "one exchange at a time"
        transport = self._transport
        assert transport is not None
        self._reset()
        self._sink = sink
        self._done = done = asyncio.get_running_loop().create_future()
        try:
            transport.write(request)
            await done
        finally:
            self._done = self._sink = None
            if not self._complete or not self._keep_alive:
                transport.abort()
        self.exchanges += 1
        return Answer(self._status, self._headers)

    @staticmethod
    def came_to_nothing(error: ProtocolError) -> bool:
        """Whether the connection was gone before the first byte of the answer: on one that had rested, chance."""
        return isinstance(error, _ConnectionLost)

    def close(self) -> None:
        """Drop it; an engine sees that its client has left."""
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        at = self._clock()
        if self._done is None:
            self.close()  # an answer that nobody asked for
            return
        self._received = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(ProtocolError("the engine switched to another protocol"))
        except httptools.HttpParserError as error:
            self._fail(ProtocolError(f"not HTTP: {error}"))
        if self._pieces and not self._done.done():
            piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces.clear()
            assert self._sink is not None
            try:
                self._sink(self._status, piece, at)
            except ProtocolError as error:
                self._fail(error)
        if self._complete and not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is None or self._done.done():
            return
        if not self._received:
            self._fail(_ConnectionLost("the connection was closed before the answer"))
        elif self._until_close and exc is None:
            self._complete = True
            self._keep_alive = False
            self._done.set_result(None)
        else:
            self._fail(ProtocolError("the connection was closed in the middle of the answer"))

    # -- httptools ----------------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        self._interim = 100 <= self._status < 200
        self._until_close = not {"content-length", "transfer-encoding"} & self._headers.keys()

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._interim:
            self._headers = {}
            self._interim = False
            return
        self._keep_alive = self._parser.should_keep_alive()
        self._complete = True

    # -- own ----------------------------------------------------------------------------------------------------------

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._status = 0
        self._headers = {}
        self._pieces = []
        self._received = self._complete = self._interim = self._until_close = False
        self._keep_alive = True

    def _fail(self, error: ProtocolError) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)


async def fetch(address: Address, path: str, *, clock: Clock, timeout_s: float) -> tuple[Answer, bytes]:
    """GET a page on a connection of its own, whatever its status.

    Raises:
        ConnectError: no connection.
        UpstreamTimeout: no whole answer within ``timeout_s`` seconds.
        ProtocolError: the answer is not HTTP, broke off, or is over 8 MiB.
    """
    body = bytearray()

    def take(status: int, piece: bytes, at: float) -> None:
        body.extend(piece)
        if len(body) > _LARGEST_PAGE:
            raise ProtocolError(f"{path} is over {_LARGEST_PAGE} bytes")

    connection = await Connection.open(address, clock, timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            answer = await connection.exchange(address.request("GET", path), take)
    except TimeoutError:
        raise UpstreamTimeout(f"{path}: no whole answer within {timeout_s:g} s") from None
    finally:
        connection.close()
    return answer, bytes(body)
