"""One HTTP/1.1 connection to an engine: asyncio.Protocol over httptools, one exchange at a time, told by callbacks."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from math import inf
from typing import Protocol, cast

import httptools

from adaptive_gamma.errors import ProtocolError, UpstreamError, UpstreamTimeout
from adaptive_gamma.proxy.deadline import Deadline
from adaptive_gamma.proxy.headers import usual_name

__all__ = ["AnswerSink", "AnsweredCall", "ConnectionDied", "ConnectionOwner", "EngineConnection", "RawHeaders"]

RawHeaders = list[tuple[bytes, bytes]]

_DRY_LIMIT = 64 * 1024
"""Bytes that bring neither a whole head nor a part of the body: long heads, 1xx without end, trailers, extensions."""
_UPLOAD_SLICE = 256 * 1024
_FRAMING = (b"content-length", b"transfer-encoding")


class ConnectionDied(ProtocolError):
    """The engine closed the connection before the first byte of its answer.

    ``unread`` is True where the connection was reset: the engine's kernel does so when what we sent was not read.
    """

    def __init__(self, message: str, *, unread: bool) -> None:
        self.unread = unread
        super().__init__(message)


class AnswerSink(Protocol):
    """Who is told how an answer goes: a head, then parts of the body, then the end; or a failure in place of the rest.

    Every method is called from the event loop, never from inside a call the sink has made. ``more`` tells that the next
    call follows at once, so that what is to be written may be written in one go.
    """

    def on_head(self, status: int, headers: RawHeaders, *, more: bool) -> None:
        """The final head. Names are in lower case, in the engine's order, repeated ones repeated."""

    def on_body(self, pieces: list[bytes], *, more: bool) -> None:
        """What came in one read; of a chunked body each piece is a chunk, or the part of one that came."""

    def on_end(self) -> None:
        """The answer is whole; the connection has been given back."""

    def on_failure(self, error: UpstreamError) -> None:
        """Nothing more will come."""

    def on_fault(self) -> None:
        """One of the calls above, or what it led to, raised; the event loop will log that. Nothing more will come."""


class AnsweredCall(Protocol):
    """A call as the connection that carries it sees it: it is told of the end itself, of what comes before its sink."""

    sink: AnswerSink
    """Is told of the head and of the body; may be replaced by another at any time."""

    def on_end(self) -> None:
        """As in ``AnswerSink``."""

    def on_failure(self, error: UpstreamError) -> None:
        """As in ``AnswerSink``."""

    def on_fault(self) -> None:
        """As in ``AnswerSink``."""


class ConnectionOwner(Protocol):
    """Who keeps idle connections."""

    def rest(self, connection: EngineConnection) -> None:
        """The exchange is over and the connection can carry another."""

    def forget(self, connection: EngineConnection) -> None:
        """An idle connection was lost."""


class EngineConnection(asyncio.Protocol):
    """A connection that is idle or carries one exchange.

    While the sink has it paused nothing is read, so that what a slow client does not take stays at the engine. Silence
    is watched by one timer that outlives exchanges; nothing is armed or cancelled per chunk.
    """

    __slots__ = (
        "_call", "_complete", "_deadline", "_dry", "_first_byte_s", "_head_done", "_head_told", "_headers", "_idle_s",
        "_keep_alive", "_loop", "_no_body", "_owner", "_parser", "_paused", "_pieces", "_poll", "_received_any",
        "_shorter_wait_s", "_status", "_transport", "_unsent", "_write_paused", "begun_at", "idle_since",
    )  # fmt: skip

    def __init__(
        self, loop: asyncio.AbstractEventLoop, owner: ConnectionOwner, *, first_byte_s: float, idle_s: float
    ) -> None:
        self._loop = loop
        self._owner = owner
        self._first_byte_s = first_byte_s
        self._idle_s = idle_s
        self._shorter_wait_s = min(first_byte_s, idle_s)
        self._transport: asyncio.Transport | None = None
        self._call: AnsweredCall | None = None
        self._deadline = Deadline(loop, self._too_silent)
        self._parser = httptools.HttpResponseParser(self)
        self._write_paused = False
        self._paused = False
        self._complete = False
        self._unsent: memoryview | None = None
        self.begun_at = self.idle_since = 0.0
        """When its last exchange began, and when it ended; seconds on the loop's clock."""

    @property
    def usable(self) -> bool:
        """Whether another exchange may start on it."""
        return self._transport is not None and not self._transport.is_closing()

    def fit_for_another(self) -> bool:
        """Whether another exchange may start on it now: what has come and is unread would be taken for its answer."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and not self._poll.poll(0)

    # -- one exchange -------------------------------------------------------------------------------------------------

    def begin(self, call: AnsweredCall, method: bytes, head: bytes, body: bytes) -> None:
        """Send a request, no faster than the engine reads it, and tell ``call`` of the answer."""
        self._call = call
        self._status = 0
        self._headers: RawHeaders = []
        self._pieces: list[bytes] = []
        self._complete = self._head_done = self._head_told = self._received_any = False
        self._keep_alive = True
        self._no_body = method == b"HEAD"
        self._dry = 0
        # A timer that fires early finds out; one set for the longer wait would have to be replaced at the first byte.
        now = self.begun_at = self._loop.time()
        self._deadline.set(now + self._shorter_wait_s)
        self._deadline.at = now + self._first_byte_s
        transport = self._transport
        assert transport is not None
        if len(body) <= _UPLOAD_SLICE:
            transport.write(head + body if body else head)
        else:
            transport.write(head)
            self._unsent = memoryview(body)
            self._pump()

    def pause(self) -> None:
        """Leave what comes at the engine until ``resume``."""
        if not self._paused and self._transport is not None:
            self._paused = True
            self._deadline.at = inf
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._deadline.set(self._loop.time() + self._idle_s)
            if self._transport is not None:
                self._transport.resume_reading()

    def abort(self) -> None:
        """Drop the connection at once, unsent and unread bytes with it; the sink hears nothing more."""
        self._call = None
        self._unsent = None
        self._deadline.close()
        if self._transport is not None:
            self._transport.abort()

    def _pump(self) -> None:
        """Write on until the engine does not keep up. An answer that begins before that ends the upload."""
        unsent, transport = self._unsent, self._transport
        while unsent is not None and transport is not None and not self._write_paused:
            transport.write(unsent[:_UPLOAD_SLICE])
            unsent = unsent[_UPLOAD_SLICE:] or None
        self._unsent = unsent

    def _fail(self, error: UpstreamError) -> None:
        call = self._call
        self.abort()
        if call is not None:
            _guarded(call, lambda: call.on_failure(error))

    def _too_silent(self) -> None:
        if self._call is None:
            return
        what, limit = (
            ("sent nothing more", self._idle_s) if self._head_done else ("did not begin to answer", self._first_byte_s)
        )
        self._fail(UpstreamTimeout(f"the engine {what} within {limit:g} s"))

    def _finish(self, call: AnsweredCall) -> None:
        self._call = None
        self._deadline.at = inf
        transport = self._transport
        if (
            self._keep_alive
            and self._unsent is None
            and not self._write_paused
            and not self._paused
            and transport is not None
            and not transport.is_closing()
        ):
            self.idle_since = self._loop.time()
            self._owner.rest(self)
        else:
            self.abort()
        call.on_end()

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has the methods without the base class.
        self._transport = cast(asyncio.Transport, transport)
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        call = self._call
        if call is None:
            # Nothing was asked: bytes here would be taken for the answer to the next request.
            self.abort()
            return
        try:
            failure = self._parse(data)
            pieces, complete = self._pieces, self._complete
            if self._head_done and not self._head_told and failure is None:
                self._head_told = True
                if not complete:
                    self._deadline.set(self._loop.time() + self._idle_s)
                if self._unsent is not None:
                    self._unsent = None
                    self._keep_alive = False
                call.sink.on_head(self._status, self._headers, more=complete or bool(pieces))
            if pieces and self._head_told and self._call is call:
                self._pieces = []
                if not complete and not self._paused:
                    self._deadline.at = self._loop.time() + self._idle_s
                call.sink.on_body(pieces, more=complete and failure is None)
            if self._call is call:
                if failure is not None:
                    self._fail(failure)
                elif complete:
                    self._finish(call)
        except Exception:
            # A sink that failed must hear nothing more, also not that this connection is then closed.
            self._call = None
            call.on_fault()
            raise

    def _parse(self, data: bytes) -> ProtocolError | None:
        """Read on; the error, when what came is no answer."""
        self._received_any = True
        self._dry += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return ProtocolError("the engine switched protocols unasked")
        except httptools.HttpParserError as error:
            if not self._complete:
                return ProtocolError(f"the engine's bytes are not HTTP: {error.__context__ or error}")
            self._keep_alive = False
        if self._pieces or self._complete:
            self._dry = 0
        elif self._dry > _DRY_LIMIT:
            what = "answer went on for 64 KiB without a body" if self._head_done else "head is over 64 KiB"
            return ProtocolError(f"the engine's {what}")
        return None

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._call is not None and not self._head_done:
            self._deadline.at = self._loop.time() + self._first_byte_s
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._keep_alive = False
        self._unsent = None
        self._deadline.close()
        # The parser holds on to this: what is gone is freed at once, not when the collector runs.
        del self._parser
        call, self._call = self._call, None
        if call is None:
            self._owner.forget(self)
        elif not self._received_any:
            unread = isinstance(exc, ConnectionResetError | BrokenPipeError)
            error = ConnectionDied("the engine closed the connection before it answered", unread=unread)
            _guarded(call, lambda: call.on_failure(error))
        elif not self._head_done:
            inside = ProtocolError("the engine closed the connection inside the head of its answer")
            _guarded(call, lambda: call.on_failure(inside))
        elif exc is None and not any(name in _FRAMING for name, _ in self._headers):
            _guarded(call, call.on_end)
        else:
            middle = ProtocolError("the engine closed the connection in the middle of its answer")
            _guarded(call, lambda: call.on_failure(middle))

    # -- httptools callbacks ------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            raise ProtocolError("a second answer came unasked")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_done:
            self._headers.append((usual_name(name) or name.lower(), value))

    def on_headers_complete(self) -> None:
        # What has been read holds the head, so in nearly every case it need not be added up.
        if self._dry > _DRY_LIMIT and sum(len(name) + len(value) for name, value in self._headers) > _DRY_LIMIT:
            raise ProtocolError("the head is over 64 KiB")
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            self._headers = []
            return
        if not 200 <= status <= 599:
            raise ProtocolError(f"status {status}")
        self._status = status
        self._head_done = True
        if self._no_body:
            # The parser cannot be told that no body follows, so it must not see another answer.
            self._complete = True
            self._keep_alive = False

    def on_body(self, body: bytes) -> None:
        if not self._no_body:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._head_done and not self._complete:
            self._complete = True
            if not self._parser.should_keep_alive():
                self._keep_alive = False


def _guarded(call: AnsweredCall, tell: Callable[[], None]) -> None:
    """Tell a call that this connection has let go of; the event loop logs what it raises."""
    try:
        tell()
    except Exception:
        call.on_fault()
        raise
