"""One HTTP/1.1 connection of a client: asyncio.Protocol serving one request at a time, by callbacks.

It is the class uvicorn makes for each connection, in the place of its own. An answer that breaks off has no clean end;
a client that stops reading, or stops in the middle of a head or a body, does not hold its connection for ever. Reading
goes on while an answer is under way, or the client's leaving would not be seen; a request pipelined meanwhile is not
served: the answer under way ends the connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, cast

from adaptive_gamma.proxy.answer_framing import AnswerFraming
from adaptive_gamma.proxy.answers import ErrorAnswer, raw_answer
from adaptive_gamma.proxy.deadline import Deadline
from adaptive_gamma.proxy.request_reader import Refusal, RequestReader, Unreadable
from adaptive_gamma.proxy.socket_buffers import untaken_bytes
from adaptive_gamma.routing.body_room import HeldBody

if TYPE_CHECKING:
    from uvicorn.server import ServerState

    from adaptive_gamma.proxy.data_path import DataPath
    from adaptive_gamma.proxy.exchange import Exchange
    from adaptive_gamma.proxy.headers import Pairs
    from adaptive_gamma.proxy.http_server import DataListenerConfig
    from adaptive_gamma.proxy.intake import Intake

__all__ = ["ClientConnection"]

_log = logging.getLogger("adaptive_gamma.proxy")

_LINGER_S = 5.0


class _Phase(Enum):
    """What the connection waits for."""

    HEAD = "head"
    BODY = "body"
    ANSWER = "answer"
    LINGER = "linger"
    """The client's close: a close of ours while it sends would reset the connection under the answer."""


_HEAD, _BODY, _ANSWER, _LINGER = _Phase  # a member read off its class costs as much as a call


class ClientConnection(asyncio.Protocol):
    """One client. Its requests go to the data path, one at a time; the answer comes back through the methods below."""

    __slots__ = (
        "_answered_now", "_body", "_body_size", "_config", "_deadline", "_deaf", "_discarding", "_framing", "_intake",
        "_keep_alive", "_loop", "_outbox", "_path", "_peer", "_phase", "_reader", "_ready", "_state", "_transport",
        "_unheard", "_untaken", "exchange", "paused",
    )  # fmt: skip

    def __init__(
        self,
        config: DataListenerConfig,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._loop = loop = _loop or asyncio.get_running_loop()
        self._config = config
        self._path: DataPath = config.data_path
        self._state = server_state
        self._deadline = Deadline(loop, self._overdue)
        self._phase = _HEAD
        self._reader = RequestReader(self)
        self._deaf = self._discarding = self._ready = False
        self.paused = False
        """The client leaves so much unread that nothing more should be sent."""
        self._intake: Intake | None = None
        self._body = HeldBody(self._path.body_room)
        self._body_size = 0
        self._keep_alive = True
        self._outbox = b""
        self._unheard = b""
        """What came while the client did not read its answer, at most one read."""
        self._answered_now = False
        """A request was answered in the read under way; what stands behind it was sent before that."""
        self.exchange: Exchange | None = None
        """The request being answered by an engine; the exchange sets and clears it."""

    @property
    def busy(self) -> bool:
        """Whether a request is being answered, or the last answer is still being written out."""
        if self._phase is _ANSWER or (self._phase is _BODY and not self._discarding):
            return True
        return self.unsent_bytes > 0

    @property
    def unsent_bytes(self) -> int:
        """What the client has not taken yet of what was sent to it."""
        return self._transport.get_write_buffer_size()

    # -- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has the methods without the base class.
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._peer = peer[0].encode("ascii", "replace") if isinstance(peer, tuple) else None
        self._state.connections.add(self)  # type: ignore[arg-type]  # uvicorn's set is typed with its own two classes
        if len(self._state.connections) > self._config.most_connections:
            self._deaf = True
            self._refuse(*self._path.turned_away())
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(self)
        self._deadline.close()
        self._reader.close()
        self._deaf = True
        self._body.let_go()
        intake, self._intake = self._intake, None
        if self.exchange is not None:
            self.exchange.client_gone()
        elif intake is not None and not self._discarding:
            self._path.ended(intake, "client_closed")

    def eof_received(self) -> bool:
        if self.exchange is not None:
            # It left. A close would wait until what it does not read any more is written out, and the engine with it.
            self._transport.abort()
        return False

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self.paused and self._phase is _HEAD:
            # It asks on without reading; answers to that would pile up.
            self._unheard += data
            self._transport.pause_reading()
            return
        self._answered_now = False
        was_in_head = self._reader.in_head
        try:
            self._reader.feed(data)
        except Unreadable as error:
            self._stop(error.refusal)
            return
        if self.paused:
            return
        if self._ready:
            self._begin()
        elif self._phase is _BODY:
            if not self._discarding:
                self._deadline.set(self._loop.time() + self._path.stall_s)
        elif self._reader.in_head and not was_in_head:
            self._deadline.at = self._loop.time() + self._config.keep_alive_s

    def _stop(self, refusal: Refusal) -> None:
        """The client's bytes make no sense from here on."""
        self._deaf = True
        if self._phase is _LINGER:
            return
        if self._ready or self._phase is _ANSWER:
            # What stands behind a whole request does not matter to it: it is answered, then the connection ends.
            self._keep_alive = False
            if self._ready and not self.paused:
                self._begin()
            return
        intake, self._intake = self._intake, None
        if intake is not None and not self._discarding:
            self._path.ended(intake, "client_error", refusal[0], code=refusal[2])
        self._refuse(*refusal)

    def pause_writing(self) -> None:
        self.paused = True
        self._untaken = untaken_bytes(self._transport)
        self._deadline.set(self._loop.time() + self._path.stall_s)
        if self.exchange is not None:
            self.exchange.client_paused()

    def resume_writing(self) -> None:
        self.paused = False
        self._deadline.at = inf
        if self._ready:
            self._begin()
        elif self._phase is _HEAD:
            self._await_head()
            if self._unheard:
                unheard, self._unheard = self._unheard, b""
                self._transport.resume_reading()
                self.data_received(unheard)
        elif self._phase is _BODY:
            wait_s = _LINGER_S if self._discarding else self._path.stall_s
            self._deadline.set(self._loop.time() + wait_s)
        elif self._phase is _LINGER:
            closing = self._transport.is_closing()
            self._deadline.set(self._loop.time() + (self._path.stall_s if closing else _LINGER_S))
        if self.exchange is not None:
            self.exchange.client_resumed()

    def shutdown(self) -> None:
        """Close when idle, else after the answer under way."""
        if self._phase is _HEAD and not self._reader.in_head:
            self._phase = _LINGER
            self._deaf = True
            self._close()
        self._keep_alive = False

    def cut(self, reset: bool = True) -> None:
        """Close without a clean end. ``reset`` sends RST, which an unframed body needs to be seen as cut."""
        transport = self._transport
        self._deaf = True
        self._phase = _LINGER
        if not reset:
            if not transport.is_closing():
                self._close()
            return
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    def _await_head(self) -> None:
        self._phase = _HEAD
        if not self.paused:
            self._deadline.set(self._loop.time() + self._config.keep_alive_s)

    def _linger(self) -> None:
        """Say no more, and wait for the client to close."""
        self._deaf = True
        self._phase = _LINGER
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if not self.paused:
            self._deadline.set(self._loop.time() + _LINGER_S)

    def _close(self) -> None:
        """Close once all is written out, which a client that does not read must not put off for ever."""
        self._transport.close()
        if not self.paused:
            self._deadline.set(self._loop.time() + self._path.stall_s)

    def _overdue(self) -> None:
        if self.paused:
            before, self._untaken = self._untaken, untaken_bytes(self._transport)
            if self._untaken < before:
                self._deadline.set(self._loop.time() + self._path.stall_s)
                return
            _log.info("a client read nothing for %g s; its connection is cut", self._path.stall_s)
            self.cut()
        elif self._phase is _BODY:
            self._stop((408, f"the request body stopped for {self._path.stall_s:g} s", "body_timeout"))
        elif self._transport.is_closing():
            self._transport.abort()
        else:
            self._close()

    # -- answering ----------------------------------------------------------------------------------------------------

    def start(self, status: int, lines: list[bytes], *, has_length: bool, more: bool) -> None:
        """Send the head of an answer; ``lines`` are its fields, ``has_length`` is whether Content-Length is among them.
        ``more`` follows at once."""
        if self._config.closing:
            self._keep_alive = False
        self._body.let_go()
        framing = self._framing
        head = framing.head(status, lines, has_length=has_length, keep_alive=self._keep_alive)
        if more:
            self._outbox = head
        else:
            self._transport.write(head)
        if framing.until_close:
            self._keep_alive = False

    def send(self, pieces: list[bytes], *, more: bool) -> None:
        """Send parts of the body. ``more``, or the end, follows at once."""
        data = self._outbox + self._framing.body(pieces)
        if more:
            # Each write is a call of the system, much of what a short answer costs.
            self._outbox = data
        else:
            self._outbox = b""
            self._transport.write(data)

    def finish(self) -> None:
        """The answer is whole."""
        data = self._outbox + self._framing.end
        if data:
            self._outbox = b""
            self._transport.write(data)
        self._answered()

    def break_off(self) -> None:
        """The answer will not be whole; the client must see that."""
        self.cut(reset=self._framing.until_close)

    def answer(self, status: int, fields: Pairs, body: bytes) -> None:
        """Send an answer of our own, its length among the fields."""
        self.start(status, [b"%b: %b\r\n" % field for field in fields], has_length=True, more=True)
        if not self._framing.head_only:
            self._outbox += body
        self.finish()

    def _answered(self) -> None:
        self._state.total_requests += 1
        self._intake = None
        if self._transport.is_closing():
            return
        if self._discarding:
            # Answered before its body was read.
            self._deadline.set(self._loop.time() + _LINGER_S)
        elif self._keep_alive:
            self._await_head()
        elif self._deaf:
            self._linger()
        else:
            self._phase = _LINGER
            self._close()

    def _refuse(self, status: int, message: str, code: str) -> None:
        """Answer what never became a request, and close."""
        if not self._discarding:
            self._transport.write(raw_answer(status, message, code))
        self._linger()

    def _begin(self) -> None:
        self._ready = False
        self._phase = _ANSWER
        self._deadline.at = inf
        intake, self._intake = self._intake, None
        assert intake is not None
        body = self._body.whole()
        try:
            self._path.begin(intake, body, self)
        except Exception:
            _log.exception("request %s: the proxy failed", intake.client.request_id.decode())
            if self.exchange is not None:
                self.exchange.on_fault()
            else:
                self._path.ended(intake, "internal_error", 500, code="internal_error")
                self._keep_alive = False
                self._refuse(500, "the proxy failed", "internal_error")

    # -- what is read (RequestEvents) ---------------------------------------------------------------------------------

    def on_request_begin(self) -> bool:
        return self._phase is _HEAD and not self._ready and not self._answered_now

    def on_request_head(
        self, method: bytes, target: bytes, path: str, fields: Pairs, *, is_1_1: bool, keep_alive: bool
    ) -> None:
        intake = self._path.accept(method, target, path, fields, is_1_1=is_1_1, peer=self._peer)
        self._phase, self._intake = _BODY, intake
        self._framing = AnswerFraming(method == b"HEAD", is_1_1)
        self._keep_alive = keep_alive and not self._config.closing
        self._body_size = 0
        if intake.refusal is not None:
            if intake.client.expects_continue:
                # It may send the body or, told no, its next request: nobody can tell which.
                self._keep_alive = False
            self._answer_early(intake, intake.refusal)
        elif is_1_1 and intake.client.expects_continue:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_request_body(self, data: bytes) -> None:
        if self._discarding:
            return
        intake = self._intake
        assert intake is not None
        if intake.client.content_length is None:
            self._body_size += len(data)
            if (too_large := self._path.body_refusal(self._body_size)) is not None:
                self._answer_early(intake, too_large)
                return
        if (full := self._body.add(data)) is not None:
            self._answer_early(intake, full)

    def on_request_end(self) -> None:
        if not self._discarding:
            self._ready = True
            return
        self._discarding = False
        if self._keep_alive:
            self._await_head()
        else:
            self._linger()

    def _answer_early(self, intake: Intake, refusal: ErrorAnswer) -> None:
        """Answer a request whose body is still to come; what comes of it is not kept."""
        self._discarding = self._answered_now = True
        self._path.answer_error(intake, refusal, self)
