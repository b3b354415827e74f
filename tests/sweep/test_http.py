from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from adaptive_gamma.bench.sweep.http import Address, Connection, fetch
from adaptive_gamma.errors import ConnectError, ProtocolError, UpstreamTimeout

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(handler: Handler) -> AsyncIterator[Address]:
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield Address.of(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(*answers: bytes) -> Handler:
    """One answer for each request on a connection; it closes after the last."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

    return handler


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


async def page(address: Address, timeout_s: float = 5.0) -> tuple[int, bytes]:
    answer, body = await fetch(address, "/p", clock=time.perf_counter, timeout_s=timeout_s)
    return answer.status, body


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (OK, 200, b"ok"),
        (b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n", 404, b""),
        (b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", 200, b"abcde"),
        (b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + OK, 200, b"ok"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil it closes", 200, b"until it closes"),
    ],
)
async def test_answers_of_every_framing(answer: bytes, status: int, body: bytes) -> None:
    async with server(answering(answer)) as address:
        assert await page(address) == (status, body)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ],
)
async def test_what_is_no_whole_answer_is_a_protocol_error(answer: bytes) -> None:
    async with server(answering(answer)) as address:
        with pytest.raises(ProtocolError):
            await page(address)


async def test_silence_ends_with_the_time_limit() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    async with server(silent) as address:
        with pytest.raises(UpstreamTimeout):
            await page(address, timeout_s=0.05)


async def test_a_page_without_end_is_bounded() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
            await writer.drain()

    async with server(endless) as address:
        with pytest.raises(ProtocolError, match="bytes"):
            await page(address)


async def test_nobody_listens() -> None:
    async with server(answering(OK)) as address:
        pass
    with pytest.raises(ConnectError):
        await page(address)


async def test_a_connection_carries_one_exchange_after_the_other() -> None:
    async with server(answering(OK, OK)) as address:
        connection = await Connection.open(address, time.perf_counter, 5.0)
        seen: list[tuple[int, bytes]] = []
        for _ in range(2):
            assert connection.usable
            await connection.exchange(
                address.request("GET", "/"), lambda status, piece, at: seen.append((status, piece))
            )
        assert seen == [(200, b"ok")] * 2
        assert connection.exchanges == 2
        connection.close()


async def test_connection_close_is_obeyed() -> None:
    closing = OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    async with server(answering(closing)) as address:
        connection = await Connection.open(address, time.perf_counter, 5.0)
        await connection.exchange(address.request("GET", "/"), lambda status, piece, at: None)
        assert not connection.usable


async def test_a_sink_that_refuses_ends_the_exchange() -> None:
    def refuse(status: int, piece: bytes, at: float) -> None:
        raise ProtocolError("no such thing")

    async with server(answering(OK)) as address:
        connection = await Connection.open(address, time.perf_counter, 5.0)
        with pytest.raises(ProtocolError, match="no such thing"):
            await connection.exchange(address.request("GET", "/"), refuse)


async def test_the_time_is_taken_when_the_piece_is_read() -> None:
    ticks = iter([10.0, 20.0])
    more = asyncio.Event()

    async def in_two(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK[:-1])
        await more.wait()
        writer.write(OK[-1:])
        await writer.drain()

    def take(status: int, piece: bytes, at: float) -> None:
        seen.append((piece, at))
        more.set()

    seen: list[tuple[bytes, float]] = []
    async with server(in_two) as address:
        connection = await Connection.open(address, lambda: next(ticks), 5.0)
        await connection.exchange(address.request("GET", "/"), take)
        connection.close()
    assert seen == [(b"o", 10.0), (b"k", 20.0)]


def test_a_key_is_sent_and_never_shown() -> None:
    address = Address.of("http://[::1]:8000", {"authorization": "Bearer hush"})
    assert b"host: [::1]:8000\r\n" in address.request("POST", "/x", b"{}")
    assert b"authorization: Bearer hush\r\n" in address.request("GET", "/x")
    assert "hush" not in repr(address)
