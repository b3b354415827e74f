"""An engine process: serves the plans that requests bring, keeps a journal, and closes connections when it should not.

``python -m tests.soak.engine --index 0 --port 20001 --journal FILE --boot 1``. It works on a request until it is done
or the other side closes the connection, and knows at any time what it has open.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import socket
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import httptools
import uvloop

from tests.soak.engine_pages import EngineCounters, page
from tests.soak.journal import End, Journal
from tests.soak.plan import DONE, ENGINE_HEADER, PLAN_HEADER, RECEIVED_HEADER, Plan, body_pieces, received_mark

__all__ = ["main"]

RACE_SHARE = 0.02
"""Share of requests on reused connections that meet a connection just being closed."""
IDLE_CLOSE_SHARE = 0.05
"""Share of answers after which the connection is closed unannounced within 30 ms."""
ANNOUNCED_CLOSE_SHARE = 0.03
KEEP_ALIVE_S = (2.0, 5.0)
"""Bounds of how long an idle connection is kept: some close before the proxy expects it."""
TERM_GRACE_S = 1.5
_SPLIT_SHARE = 0.15


class Engine:
    """What the connections of one process share."""

    def __init__(self, index: int, boot: int, journal: Journal, speculative: bool) -> None:
        self.index = index
        self.boot = boot
        self.journal = journal
        self.rng = random.Random(f"{index}/{boot}")
        self.counters = EngineCounters(speculative)
        self.open: dict[int, Work] = {}
        self.connections: set[Connection] = set()
        self.stopping = False
        self._numbers = 0

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def open_requests(self) -> list[tuple[str, float]]:
        now = time.monotonic()
        return [(work.request_id, round(now - work.began, 3)) for work in self.open.values()]

    def connection_kinds(self) -> dict[str, int]:
        """Open connections by what they have brought: work, requests for pages only, or nothing yet."""
        kinds = [connection.kind for connection in self.connections]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


class Work:
    """One request being worked on."""

    def __init__(self, connection: Connection, request_id: str, plan: Plan, nth: int) -> None:
        engine = connection.engine
        self.engine = engine
        self.connection = connection
        self.request_id = request_id
        self.plan = plan
        self.number = engine.next_number()
        self.began = time.monotonic()
        self.wrote = self.crc = 0
        self.done = False
        self.received = asyncio.Event()
        self.mark = ""
        self.task: asyncio.Task[None] | None = None
        engine.open[self.number] = self
        engine.journal.write("request", self.number, request_id, nth)

    def end(self, end: End) -> None:
        """Put the end on record; nothing is written after it but what it counts."""
        if self.engine.open.pop(self.number, None) is not None:
            self.engine.journal.write("end", self.number, end, self.wrote, self.crc, self.done)
            self.connection.work = None

    # -- what is written ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        plan, rng, connection = self.plan, self.engine.rng, self.connection
        if not plan.early:
            await self.received.wait()
        self.engine.counters.prompt_tokens += 100
        if self.engine.index in plan.reject_on:
            retry = [] if plan.reject_status == 404 else [("retry-after", "7")]
            await self._write_answer(plan.rejection, retry, declined=True)
            return
        if plan.head_delay_s:
            await asyncio.sleep(plan.head_delay_s * rng.uniform(0.5, 1.5))
        if plan.ending == "no_head":
            self.end("died")
            connection.break_off(reset=rng.random() < 0.5)
        elif plan.ending == "silent_head":
            await asyncio.Event().wait()
        else:
            await self._write_answer(plan, [], declined=False)

    async def _write_answer(self, plan: Plan, headers: list[tuple[str, str]], *, declined: bool) -> None:
        engine, connection = self.engine, self.connection
        closing = engine.rng.random() < ANNOUNCED_CLOSE_SHARE
        kind = "text/event-stream; charset=utf-8" if plan.stream else "application/json"
        pieces = body_pieces(plan, self.request_id)
        chunked = plan.stream or (plan.chunked and plan.ending != "short")
        lines = [f"HTTP/1.1 {plan.status} Planned", f"content-type: {kind}", "server: soak", "x-soak: 1", "x-soak: 2"]
        if chunked:
            lines.append("transfer-encoding: chunked")
        else:
            whole = list(pieces)
            pieces = iter(whole)
            missing = 100 if plan.ending == "short" else 0
            lines.append(f"content-length: {sum(map(len, whole)) + missing}")
        if plan.gzip:
            lines.append("content-encoding: gzip")
        if closing:
            lines.append("connection: close")
        mark = "" if plan.early else self.mark
        lines += [f"{ENGINE_HEADER}: {engine.index}.{engine.boot}.{self.number}", f"{RECEIVED_HEADER}: {mark}"]
        lines += [f"{name}: {value}" for name, value in headers]
        engine.journal.write("head", self.number, plan.status, declined)
        connection.write("\r\n".join([*lines, "", ""]).encode())
        await self._write_body(plan, pieces, chunked)
        await self.received.wait()
        if closing:
            connection.transport.close()
        else:
            connection.rest()

    async def _write_body(self, plan: Plan, pieces: Any, chunked: bool) -> None:
        """All pieces but the last as they come; the end is on record before the last is written."""
        rng, connection = self.engine.rng, self.connection
        last: bytes | None = None
        for count, piece in enumerate(pieces):
            if last is not None:
                await self._write_piece(last, chunked)
                if plan.stream and plan.pace_s and rng.random() < 0.9:
                    await asyncio.sleep(min(rng.expovariate(1 / plan.pace_s), 2.0))
            last = None
            if not plan.ends_cleanly and plan.ending != "short" and count >= plan.at:
                break
            last = piece
        if plan.ends_cleanly:
            assert last is not None
            await connection.writable.wait()
            self._count(last)
            self.end("complete")
            connection.write(_chunk(last) + b"0\r\n\r\n" if chunked else last)
            return
        if last is not None:
            await self._write_piece(last, chunked)
        if plan.ending == "silent":
            await asyncio.Event().wait()
        # Let what was written reach the other side: a reset would take it back.
        await asyncio.sleep(0.02)
        self.end("died")
        connection.break_off(reset=plan.ending == "reset")

    async def _write_piece(self, piece: bytes, chunked: bool) -> None:
        rng, connection = self.engine.rng, self.connection
        await connection.writable.wait()
        self._count(piece)
        self.engine.counters.step(rng)
        if not chunked:
            connection.write(piece)
        elif len(piece) > 1 and rng.random() < _SPLIT_SHARE:
            cut = rng.randrange(1, len(piece))
            connection.write(_chunk(piece[:cut]))
            await asyncio.sleep(0)
            connection.write(_chunk(piece[cut:]))
        else:
            connection.write(_chunk(piece))

    def _count(self, piece: bytes) -> None:
        self.wrote += len(piece)
        self.crc = zlib.crc32(piece, self.crc)
        self.done = self.done or piece == DONE


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Connection(asyncio.Protocol):
    """A connection from the proxy (or from the soak itself, for pages)."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.work: Work | None = None
        """What is open on it."""
        self.writable = asyncio.Event()
        self.writable.set()
        self.transport: Any = None
        self._parser = httptools.HttpRequestParser(self)
        self._requests = 0
        self.kind = "unused"
        self._reading: Work | None = None
        self._idle: asyncio.TimerHandle | None = None

    # -- what work asks of it -----------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def break_off(self, reset: bool) -> None:
        """Close without an end, with RST or with FIN."""
        if not reset:
            self.transport.close()
            return
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def rest(self) -> None:
        """An answer is written: wait for the next request, or do not."""
        rng = self.engine.rng
        if self.engine.stopping:
            self.transport.close()
            return
        early = rng.random() < IDLE_CLOSE_SHARE
        wait_s = rng.uniform(0.0, 0.03) if early else rng.uniform(*KEEP_ALIVE_S)
        self._idle = asyncio.get_running_loop().call_later(wait_s, self.close_idle)

    def close_idle(self) -> None:
        if self.work is None and not self.transport.is_closing():
            self.engine.journal.write("idle")
            self.transport.close()

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.engine.connections.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.abort()

    def eof_received(self) -> None:
        self._lost()
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()
        self.engine.connections.discard(self)
        if self._idle is not None:
            self._idle.cancel()

    def _lost(self) -> None:
        if self.work is not None:
            self.work.end("left")
        if self._reading is not None and self._reading.task is not None:
            self._reading.task.cancel()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    # -- httptools ----------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._length = self._crc = 0
        self._page = False
        self._reading = None
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        engine = self.engine
        plan = self._headers.get(PLAN_HEADER)
        if plan is None:
            self._page = True
            self.kind = "pages"
            return
        if self.transport.is_closing():
            return
        self._requests += 1
        self.kind = "work"
        work = Work(self, self._headers["x-request-id"], Plan.decode(plan), self._requests)
        if self._requests > 1 and engine.rng.random() < RACE_SHARE:
            work.end("raced")
            self.break_off(reset=engine.rng.random() < 0.5)
            return
        self.work = self._reading = work
        work.task = asyncio.get_running_loop().create_task(work.run())

    def on_body(self, body: bytes) -> None:
        self._length += len(body)
        self._crc = zlib.crc32(body, self._crc)

    def on_message_complete(self) -> None:
        engine, work = self.engine, self._reading
        if self._page:
            answer = page(self._target.decode(), engine.counters, engine.open_requests(), engine.connection_kinds())
            status, kind, body = (404, "text/plain", b"") if answer is None else (200, *answer)
            head = f"HTTP/1.1 {status} Page\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
            self.write(head.encode() + body)
        elif work is not None:
            work.mark = received_mark(self._length, self._crc)
            engine.journal.write("body", work.number, work.mark)
            work.received.set()


async def _serve(engine: Engine, port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(engine), "127.0.0.1", port, backlog=1024)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    parent = os.getppid()
    while not stop.is_set():
        if os.getppid() != parent:
            return
        try:
            async with asyncio.timeout(1.0):
                await stop.wait()
        except TimeoutError:
            continue
    engine.stopping = True
    server.close()
    for connection in list(engine.connections):
        connection.close_idle()
    end = loop.time() + engine.rng.uniform(0.0, TERM_GRACE_S)
    while engine.open and loop.time() < end:  # noqa: ASYNC110  # what is open has no event of its own
        await asyncio.sleep(0.02)
    for work in list(engine.open.values()):
        work.end("terminated")
        work.connection.break_off(reset=False)


def main() -> None:
    """Serve until SIGTERM, or until the process that started this one is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--boot", type=int, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--speculative", action="store_true")
    options = parser.parse_args()
    journal = Journal(options.journal, options.boot)
    journal.write("boot")
    engine = Engine(options.index, options.boot, journal, options.speculative)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(engine, options.port))


if __name__ == "__main__":
    main()
