"""A client of the proxy over a raw connection: sends a case, reads as fast as the case says, leaves when it says so."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from typing import Any

import httptools

from tests.soak.plan import PLAN_HEADER
from tests.soak.scenarios import Case, Leave
from tests.soak.seen import Ended, Seen

__all__ = ["LATE_S", "Client"]

LATE_S = 90.0
"""An answer that is not over by then never will be: every limit of the proxy is far below."""
_SMALL_BUFFER = 16 * 1024


class _Connection(asyncio.Protocol):
    """One connection; ``seen`` is the request under way."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.seen: Seen | None = None
        self.over: asyncio.Future[None] | None = None
        self.continued = asyncio.Event()
        self.moved = asyncio.Event()
        """Set whenever something came; who waits clears it."""
        self.writable = asyncio.Event()
        self.writable.set()
        self.keep = False
        self.read_bytes_s: float | None = None
        self._read_bytes = 0
        self._read_from = 0.0
        self._lost = False
        self._head_done = False
        self._framed = False

    @property
    def usable(self) -> bool:
        return self.keep and not self._lost and not self.transport.is_closing()

    def begin(self, seen: Seen) -> None:
        self.seen = seen
        self.over = asyncio.get_running_loop().create_future()
        self.keep = self._head_done = self._framed = False
        self.read_bytes_s = seen.case.read_bytes_s
        self._read_bytes, self._read_from = 0, 0.0
        self.continued.clear()
        self.moved.clear()
        self._parser = httptools.HttpResponseParser(self)
        if self._lost:
            self.finish("cut")

    def finish(self, ended: Ended) -> None:
        seen, over = self.seen, self.over
        if seen is not None and over is not None and not over.done():
            seen.finish(ended, time.monotonic())
            over.set_result(None)
        self.moved.set()
        self.continued.set()
        self.writable.set()

    async def flushed(self) -> None:
        """Wait until the kernel has what was written: an abort drops the rest, and the request was never made."""
        while self._unwritten():  # noqa: ASYNC110  # no event tells that the buffer is empty
            await asyncio.sleep(0.001)

    def _unwritten(self) -> bool:
        return not self._lost and not self.transport.is_closing() and bool(self.transport.get_write_buffer_size())

    def leave(self) -> None:
        """Close at once."""
        if self.seen is not None and self.over is not None and not self.over.done():
            self.seen.left_at = time.monotonic()
        self.transport.abort()
        self.finish("left")

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        seen = self.seen
        if seen is None or self.over is None or self.over.done():
            if seen is not None and seen.ended != "left":
                seen.wrong.append(f"bytes behind the end of the answer: {data[:60]!r}")
            self.keep = False
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            seen.wrong.append(f"the answer is not HTTP: {error}")
            self.finish("cut")
            return
        if self.read_bytes_s is not None and not self.over.done():
            self.transport.pause_reading()
            loop = asyncio.get_running_loop()
            # Counted from the first byte, so that a loop that is late does not slow the reader further.
            self._read_bytes += len(data)
            self._read_from = self._read_from or loop.time()
            loop.call_at(self._read_from + self._read_bytes / self.read_bytes_s, self._resume)
        self.moved.set()

    def _resume(self) -> None:
        if self.read_bytes_s is not None and not self._lost and not self.transport.is_closing():
            self.transport.resume_reading()

    def stop_reading(self) -> None:
        self.read_bytes_s = None
        if not self._lost and not self.transport.is_closing():
            self.transport.pause_reading()

    def eof_received(self) -> None:
        self._ended_by_peer(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._ended_by_peer(exc)

    def _ended_by_peer(self, exc: Exception | None) -> None:
        self.keep = False
        # HTTP/1.0 without a length: the end of the connection is the end of the body, a reset is a cut.
        self.finish("clean" if self._head_done and not self._framed and exc is None else "cut")

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    # -- httptools ----------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._fields: list[tuple[str, str]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status == 100:
            self.continued.set()
            return
        assert self.seen is not None
        self._head_done = True
        self.continued.set()
        self._framed = any(name in ("content-length", "transfer-encoding") for name, _ in self._fields)
        self.seen.took_head(status, self._fields, time.monotonic())

    def on_body(self, body: bytes) -> None:
        if self.seen is not None:
            self.seen.took_body(body)

    def on_message_complete(self) -> None:
        if self._head_done and self._framed:
            self.keep = self._parser.should_keep_alive()
            self.finish("clean")


class Client:
    """One user of the proxy: one request at a time, connections kept where both sides like it."""

    def __init__(self, port: int, rng: random.Random) -> None:
        self._port = port
        self._rng = rng
        self._kept: _Connection | None = None

    def close(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.transport.abort()

    async def perform(self, case: Case) -> Seen:
        """Carry a case out to its end, whatever that is."""
        seen = Seen(case)
        connection, self._kept = self._kept, None
        fresh_only = case.read_bytes_s is not None or case.old
        if connection is not None and (fresh_only or not connection.usable):
            connection.transport.abort()
            connection = None
        seen.reused = connection is not None
        seen.began = time.monotonic()
        if connection is None:
            try:
                connection = await self._connect(case)
            except OSError:
                seen.finish("refused", time.monotonic())
                return seen
        connection.begin(seen)
        try:
            async with asyncio.timeout(LATE_S):
                await self._exchange(connection, case)
        except TimeoutError:
            connection.transport.abort()
            seen.finish("late", time.monotonic())
        if connection.usable and self._rng.random() < 0.8:
            self._kept = connection
        else:
            connection.transport.abort()
        return seen

    async def _connect(self, case: Case) -> _Connection:
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            if case.read_bytes_s is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
            await loop.sock_connect(sock, ("127.0.0.1", self._port))
        except OSError:
            sock.close()
            raise
        _, connection = await loop.create_connection(_Connection, sock=sock)
        return connection

    async def _exchange(self, connection: _Connection, case: Case) -> None:
        seen, over = connection.seen, connection.over
        assert seen is not None
        assert over is not None
        connection.transport.write(_head(case))
        leave = case.leave
        if case.expect:
            await connection.continued.wait()
        if not over.done():
            await self._send_body(connection, case)
        if leave is not None and leave.at != "upload" and not over.done():
            await connection.flushed()
            await self._stay_until(connection, leave)
            connection.leave()
        await over
        if not seen.sent or case.read_bytes_s is not None:
            # Answered before the end of the upload, or reading is paused.
            connection.keep = False

    async def _send_body(self, connection: _Connection, case: Case) -> None:
        seen, over, body = connection.seen, connection.over, case.body
        assert seen is not None
        assert over is not None
        if case.announced is not None:
            return
        step = max(-(-len(body) // case.parts), 1)
        leave = case.leave if case.leave is not None and case.leave.at == "upload" else None
        for start in range(0, len(body), step):
            if leave is not None and start + step > leave.after_bytes:
                connection.transport.write(body[start : leave.after_bytes])
                await connection.flushed()
                connection.leave()
                return
            connection.transport.write(body[start : start + step])
            await connection.writable.wait()
            if case.parts > 1:
                await asyncio.sleep(self._rng.uniform(0.0, 0.1))
            if over.done():
                return
        seen.sent = True

    async def _stay_until(self, connection: _Connection, leave: Leave) -> None:
        """Until it is time to leave, or the answer is over."""
        seen, over = connection.seen, connection.over
        assert seen is not None
        assert over is not None
        if leave.at != "head":
            while not over.done():
                connection.moved.clear()
                if seen.all_came if leave.at == "silence" else seen.length >= leave.after_bytes:
                    break
                await connection.moved.wait()
            if leave.at == "unread":
                connection.stop_reading()
        if leave.after_s and not over.done():
            await asyncio.wait([over], timeout=leave.after_s)


def _head(case: Case) -> bytes:
    lines = [f"{case.method} {case.path} HTTP/1.{0 if case.old else 1}", "host: proxy.soak"]
    lines.append(f"x-request-id: {case.request_id}")
    if case.plan is not None:
        lines.append(f"{PLAN_HEADER}: {case.plan.encode()}")
    if case.method == "POST":
        lines.append(f"content-length: {len(case.body) if case.announced is None else case.announced}")
        if not any(name == "content-type" for name, _ in case.headers):
            lines.append("content-type: application/json")
    if case.expect:
        lines.append("expect: 100-continue")
    lines += [f"{name}: {value}" for name, value in case.headers]
    return "\r\n".join([*lines, "", ""]).encode()
