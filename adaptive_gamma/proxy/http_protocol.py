"""The server side of HTTP/1.1: uvicorn's httptools protocol, made strict.

What it adds: heads over 64 KiB are 431; framing that two parsers could read differently is 400 and the connection
closes; the application can cut a response (scope extension ``CUT``) so that it has no clean end; HTTP/1.0 clients get
no chunked bodies; a client that disconnects is noticed even when it has pipelined further requests; a client that stops
reading, or stops in the middle of a head or a body, does not hold its connection for ever.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import urllib.parse
from collections import deque
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from adaptive_gamma.proxy.answers import raw_answer
from adaptive_gamma.proxy.http_cycle import Cycle, OldCycle

__all__ = ["CUT", "ListenerConfig", "StrictHttpProtocol"]

CUT = "adaptive_gamma.cut"
"""Scope extension: its ``call`` cuts the response under way."""


HEAD_LIMIT = 64 * 1024
_HELD_LIMIT = 64 * 1024
_BODY_HIGH = 64 * 1024
_LINGER_S = 5.0


class ListenerConfig(uvicorn.Config):
    """uvicorn's configuration with what the strict protocol needs to know.

    ``closing`` makes every further answer say ``Connection: close``. ``stall_s`` is how long a client may leave a
    full send buffer unread, in seconds.
    """

    closing: bool = False
    stall_s: float = 300.0


class StrictHttpProtocol(HttpToolsProtocol):
    """One client connection."""

    config: ListenerConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = False
        self._head_bytes = 0
        self._head_fed = 0
        self._offered = False
        """The head just read asks for another protocol."""
        self._refusal: tuple[int, str, str] | None = None
        self._starting: Cycle | None = None
        self._running: Cycle | None = None
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self._deaf = False
        """Nothing more is read as HTTP from this client."""
        self._stall_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._body_moved_at = 0.0

    @property
    def busy(self) -> bool:
        """Whether a request is under way, or the last answer is still being written out."""
        running = self._running
        if running is None:
            return False
        if not running.response_complete or self.pipeline:
            return True
        return self.transport.get_write_buffer_size() > 0

    # -- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  # uvicorn narrows the parameter
        self._await_head()

    def _await_head(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self.pipeline:
            self._hold(data)
            return
        if not self._in_head:
            self._unset_keepalive_if_required()
        all_head = self._in_head or self.cycle is None or not self.cycle.more_body
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self._refusal = self._refusal or (400, "the request is not valid HTTP/1.1", "invalid_http")
        if self._in_head and all_head and not self.pipeline and self._refusal is None:
            self._head_fed += len(data)
            if self._head_fed > HEAD_LIMIT:
                self._refusal = _HEAD_TOO_LARGE
        if self._refusal is not None:
            self._refuse_request(*self._refusal)
            return
        if self._in_head and self.timeout_keep_alive_task is None:
            self._await_head()
        starting, self._starting = self._starting, None
        if starting is not None:
            self._start(starting)
        if self.cycle is not None and self.cycle.more_body:
            self._body_moved_at = self.loop.time()
            if self._body_timer is None:
                self._body_timer = self.loop.call_later(self.config.stall_s, self._check_body)
        if self.pipeline and not self._body_waits():
            # Keep reading, or the client's going away would not be seen.
            self.flow.resume_reading()

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as offer:
                # An offer we do not take (some clients make it with every first request). The parser stops behind
                # such a head and would lose the body, so it is given the head again, without the offer.
                data = self._head_without_offer() + data[offer.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def _head_without_offer(self) -> bytes:
        lines = [b"%b %b HTTP/1.1\r\n" % (self.parser.get_method(), self.url)]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(token for token in tokens if token.lower() not in _OFFER)
            if name not in _OFFER:
                lines.append(b"%b: %b\r\n" % (name, value))
        lines.append(b"\r\n")
        return b"".join(lines)

    def _check_body(self) -> None:
        """Not for ever is a body waited for that a client has announced."""
        self._body_timer = None
        if self.cycle is None or not self.cycle.more_body or self.cycle.response_complete:
            return
        left = self.config.stall_s - (self.loop.time() - self._body_moved_at)
        if left > 0.002 or self.flow.read_paused:
            self._body_timer = self.loop.call_later(max(left, 0.1), self._check_body)
        else:
            self._refuse_request(408, f"the request body stopped for {self.config.stall_s:g} s", "body_timeout")

    def _hold(self, data: bytes) -> None:
        """Keep what a client pipelines behind requests that still wait; past a limit stop reading it."""
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > _HELD_LIMIT:
            self.flow.pause_reading()

    def _body_waits(self) -> bool:
        return len(self.cycle.body) > _BODY_HIGH

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._stall_timer, self._linger_timer, self._body_timer):
            if timer is not None:
                timer.cancel()
        for cycle in (self._running, *(waiting for waiting, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        self._held.clear()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall_timer = self.loop.call_later(self.config.stall_s, self.cut)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def cut(self, reset: bool = True) -> None:
        """Close without a clean end. ``reset`` sends RST, which an unframed body needs to be seen as cut."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if not reset:
            transport.close()
            return
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    # -- refusals -----------------------------------------------------------------------------------------------------

    def refuse(self, status: int, message: str, code: str) -> None:
        """Answer for the application and close."""
        self._deaf = True
        self.transport.write(raw_answer(status, message, code))
        # The client may still be sending; a close now would reset the connection under the answer.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._linger_timer = self.loop.call_later(_LINGER_S, self.timeout_keep_alive_handler)

    def _refuse_request(self, status: int, message: str, code: str) -> None:
        self._deaf = True
        starting, self._starting = self._starting, None
        if starting is not None and not starting.more_body:
            # Rubbish behind a request that came whole in the same bytes.
            self._start(starting)
        running = self._running
        if running is None or running.response_complete:
            self.refuse(status, message, code)
        elif running.more_body and running is self.cycle:
            # The request that runs is itself broken, in its body.
            if not running.response_started:
                running.disconnected = True
                running.message_event.set()
                self.refuse(status, message, code)
            else:
                self.cut()
        else:
            # Rubbish behind a good request: that one is answered, then the connection closes.
            running.keep_alive = False
            self.pipeline.clear()
            self.flow.resume_reading()

    # -- parser callbacks ---------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0
        self._head_fed = 0

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(name) + len(value) + 4
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        refusal = self._judge_head()
        if refusal is not None:
            self._refusal = refusal
            raise httptools.HttpParserError
        self._offered = self.parser.should_upgrade()
        if self._offered:
            return
        version = self.parser.get_http_version()
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope = self.scope
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["http_version"] = version
        scope["path"] = urllib.parse.unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        before = self.cycle
        cycle = (Cycle if version == "1.1" else OldCycle)(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue and version == "1.1",
            keep_alive=version == "1.1" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        cycle.protocol = self
        scope["extensions"] = {CUT: {"call": cycle.cut}}
        self.cycle = cycle
        if before is None or (before.response_complete and not self.pipeline and self._starting is None):
            self._starting = cycle
        else:
            self.pipeline.appendleft((cycle, self.app))

    def _judge_head(self) -> tuple[int, str, str] | None:
        if self._head_bytes > HEAD_LIMIT:
            return _HEAD_TOO_LARGE
        if self.parser.get_method() == b"CONNECT":
            return 400, "CONNECT is not supported", "invalid_http"
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            return 505, f"HTTP/{version} is not supported", "invalid_http"
        hosts = codings = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding":
                codings += 1
                if value.strip().lower() != b"chunked" or codings > 1 or version == "1.0":
                    return 400, "the only Transfer-Encoding accepted is a single 'chunked'", "invalid_framing"
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            return 400, "exactly one Host header is required", "invalid_http"
        return None

    def _start(self, cycle: Cycle) -> None:
        self._running = cycle
        if self.config.closing:
            cycle.keep_alive = False
        task = self.loop.create_task(cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_message_complete(self) -> None:
        if self._offered:
            return
        super().on_message_complete()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None
            self._await_head()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self.loop.call_soon(self._next_pipelined)
            return
        self._await_head()
        if self.cycle.more_body:
            # Answered before its body was read. Closing now would reset the connection under the answer.
            self._linger_timer = self.loop.call_later(_LINGER_S, self.timeout_keep_alive_handler)

    def _next_pipelined(self) -> None:
        if self.transport.is_closing() or not self.pipeline:
            return
        cycle, _ = self.pipeline.pop()
        self._start(cycle)  # type: ignore[arg-type]  # the pipeline holds only what this class put there
        while self._held and not self.pipeline:
            data = self._held.popleft()
            self._held_bytes -= len(data)
            self.data_received(data)

    def shutdown(self) -> None:
        """Close when idle, else after the response under way (and those the client has pipelined)."""
        running = self._running
        if running is None or running.response_complete:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()
        else:
            running.keep_alive = False


_OFFER = frozenset({b"upgrade", b"http2-settings"})
_HEAD_TOO_LARGE = (431, "the request head is over 64 KiB", "head_too_large")
