"""One HTTP/1.1 connection to an engine: asyncio.Protocol over httptools, one exchange at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import httptools

from adaptive_gamma.errors import ProtocolError, UpstreamError, UpstreamTimeout

__all__ = ["ConnectionDied", "EngineConnection", "RawHeaders", "request_head"]

RawHeaders = list[tuple[bytes, bytes]]

_BUFFER_HIGH = 64 * 1024
_HEAD_LIMIT = 64 * 1024
_UPLOAD_SLICE = 256 * 1024
_FRAMING = (b"content-length", b"transfer-encoding")


class ConnectionDied(ProtocolError):
    """The engine closed the connection before the first byte of its answer."""


class EngineConnection(asyncio.Protocol):
    """A connection that is idle or carries one exchange.

    The reader pulls with ``head`` and ``read``; what it does not pull stays at the engine: beyond 64 KiB buffered the
    socket is no longer read. One timer per exchange watches for silence; nothing is armed or cancelled per chunk.
    """

    __slots__ = (
        "_buffer", "_buffered", "_drained", "_first_byte_s", "_head_bytes", "_idle_s",
        "_last_activity", "_loop", "_no_body", "_on_idle_loss", "_parser", "_read_paused", "_timer", "_waiter",
        "_write_paused", "busy", "complete", "error", "head_done", "headers", "idle_since", "keep_alive",
        "received_any", "status", "transport",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.transport: asyncio.Transport | None = None
        self.busy = False
        self.complete = False
        self.keep_alive = True
        self.idle_since = 0.0
        self.error: UpstreamError | None = None
        self._on_idle_loss: Callable[[EngineConnection], None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._write_paused = False
        self._read_paused = False

    @property
    def usable(self) -> bool:
        """Whether another exchange may start on it."""
        return self.transport is not None and not self.transport.is_closing()

    # -- one exchange -------------------------------------------------------------------------------------------------

    def begin(self, *, method: bytes, first_byte_s: float, idle_s: float) -> None:
        """Make ready for an exchange; times are the longest silences allowed, in seconds."""
        self._parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: RawHeaders = []
        self.error = None
        self.busy = True
        self.complete = self.head_done = self.received_any = False
        self.keep_alive = True
        self._no_body = method == b"HEAD"
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._head_bytes = 0
        self._first_byte_s = first_byte_s
        self._idle_s = idle_s
        self._last_activity = self._loop.time()
        self._timer = self._loop.call_later(first_byte_s, self._check_silence)

    async def send(self, head: bytes, body: bytes) -> None:
        """Write the request, no faster than the engine reads it.

        Returns early when the answer begins before the whole body is written; the connection is then not reused.
        """
        transport = self.transport
        if transport is None:
            raise ConnectionDied("the engine closed the connection")
        if len(body) <= _UPLOAD_SLICE:
            transport.write(head + body if body else head)
            return
        transport.write(head)
        for start in range(0, len(body), _UPLOAD_SLICE):
            if self._write_paused:
                await self._drain()
            if self.head_done or self.error is not None or self.transport is None:
                self.keep_alive = False
                return
            transport.write(body[start : start + _UPLOAD_SLICE])

    async def head(self) -> None:
        """Wait for the final head (1xx are skipped); raises UpstreamTimeout or ProtocolError."""
        while not self.head_done:
            if self.error is not None:
                raise self.error
            await self._wait()

    async def read(self) -> bytes | None:
        """The body bytes that have come, at least one, or None after the last; the error where the engine broke off.

        Bytes that came before an engine broke off are returned before the error is raised.
        """
        while not self._buffer:
            if self.complete:
                return None
            if self.error is not None:
                raise self.error
            await self._wait()
        buffer = self._buffer
        data = buffer[0] if len(buffer) == 1 else b"".join(buffer)
        self._buffer = []
        self._buffered = 0
        if self._read_paused:
            self._read_paused = False
            self._last_activity = self._loop.time()
            if self.transport is not None:
                self.transport.resume_reading()
        return data

    def end(self) -> bool:
        """Finish the exchange; True when the connection may carry another one, else it is aborted."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        reusable = self.complete and self.keep_alive and not self._buffer and not self._write_paused and self.usable
        self.busy = False
        if not reusable:
            self.abort()
        return reusable

    def rest(self, now: float, on_loss: Callable[[EngineConnection], None]) -> None:
        """Go idle; ``on_loss`` is called when the engine closes the connection meanwhile."""
        self.idle_since = now
        self._on_idle_loss = on_loss

    def wake(self) -> None:
        """Leave the idle state."""
        self._on_idle_loss = None

    def abort(self) -> None:
        """Drop the connection at once, unsent and unread bytes with it."""
        self.keep_alive = False
        if self.transport is not None:
            self.transport.abort()

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _notify(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _drain(self) -> None:
        self._drained = self._loop.create_future()
        try:
            await self._drained
        finally:
            self._drained = None

    def _release_writer(self) -> None:
        drained = self._drained
        if drained is not None and not drained.done():
            drained.set_result(None)

    def _fail(self, error: UpstreamError) -> None:
        if self.error is None and not self.complete:
            self.error = error
        self.abort()
        self._notify()
        self._release_writer()

    def _check_silence(self) -> None:
        limit = self._idle_s if self.received_any else self._first_byte_s
        now = self._loop.time()
        if self._read_paused or self.complete:
            # The reader is the slow side, or there is nothing left to wait for.
            self._last_activity = now
        silent = now - self._last_activity
        # The loop's clock may be coarser than its timers.
        if silent >= limit - 0.002:
            what = "sent nothing more" if self.received_any else "did not begin to answer"
            self._timer = None
            self._fail(UpstreamTimeout(f"the engine {what} within {limit:g} s"))
        else:
            self._timer = self._loop.call_later(limit - silent, self._check_silence)

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has the methods without the base class.
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self.busy or self.complete:
            # Nothing was asked: bytes here would be taken for the answer to the next request.
            self.abort()
            return
        if not self.received_any:
            self.received_any = True
            if self._idle_s < self._first_byte_s and self._timer is not None:
                self._timer.cancel()
                self._timer = self._loop.call_later(self._idle_s, self._check_silence)
        self._last_activity = self._loop.time()
        if not self.head_done:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(ProtocolError("the engine switched protocols unasked"))
            return
        except httptools.HttpParserError as error:
            if not self.complete:
                self._fail(ProtocolError(f"the engine's bytes are not HTTP: {error.__context__ or error}"))
                return
            self.keep_alive = False
        if not self.head_done and self._head_bytes > _HEAD_LIMIT:
            self._fail(ProtocolError("the head of the engine's answer is over 64 KiB"))
            return
        if self._buffered > _BUFFER_HIGH and not self._read_paused and not self.complete and self.transport is not None:
            self._read_paused = True
            self.transport.pause_reading()
        self._notify()
        if self._drained is not None and self.head_done:
            self._release_writer()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        if self.busy:
            self._last_activity = self._loop.time()
        self._release_writer()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.keep_alive = False
        if self._on_idle_loss is not None:
            self._on_idle_loss(self)
        if self.busy and not self.complete and self.error is None:
            if not self.received_any:
                self.error = ConnectionDied("the engine closed the connection before it answered")
            elif not self.head_done:
                self.error = ProtocolError("the engine closed the connection inside the head of its answer")
            elif exc is None and not self._framed():
                self.complete = True
            else:
                self.error = ProtocolError("the engine closed the connection in the middle of its answer")
        self._notify()
        self._release_writer()

    def _framed(self) -> bool:
        return any(name in _FRAMING for name, _ in self.headers)

    # -- httptools callbacks ------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.head_done:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self.head_done:
            raise ProtocolError("a second answer came unasked")
        if sum(len(name) + len(value) for name, value in self.headers) > _HEAD_LIMIT:
            raise ProtocolError("the head is over 64 KiB")
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            self.headers = []
            self._head_bytes = 0
            return
        if not 200 <= status <= 599:
            raise ProtocolError(f"status {status}")
        self.status = status
        self.head_done = True
        if self._no_body:
            # The parser cannot be told that no body follows, so it must not see another answer.
            self.complete = True
            self.keep_alive = False

    def on_body(self, body: bytes) -> None:
        if not self._no_body:
            self._buffer.append(body)
            self._buffered += len(body)

    def on_message_complete(self) -> None:
        if self.head_done and not self.complete:
            self.complete = True
            if not self._parser.should_keep_alive():
                self.keep_alive = False


def request_head(method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The bytes of a request's head."""
    lines = [b"%b %b HTTP/1.1\r\n" % (method, target)]
    lines += [b"%b: %b\r\n" % header for header in headers]
    lines.append(b"\r\n")
    return b"".join(lines)
