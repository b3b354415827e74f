"""What is not read stays with the sender: bounded memory for slow readers and slow engines, and no one waits for them.

Memory is that of the real process, as the kernel counts it.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from tests.support.gated_engine import EngineExchange, GatedEngine, until
from tests.support.raw_client import RawClient, post
from tests.support.running_proxy import running_proxy
from tests.support.served import Served, serve

MB = 1 << 20
MOST_HELD = 2 * MB
PIECE = b"x" * 65536
STREAM = 100 * MB


async def _flood(x: EngineExchange) -> None:
    """100 MB in chunks, as fast as they are taken."""
    x.head()
    for _ in range(STREAM // len(PIECE)):
        await x.room()
        if x.left.is_set():
            return
        x.chunk(PIECE)
    x.end()


async def _trickle_of_tokens(x: EngineExchange) -> None:
    """Many small chunks, as an engine's tokens are."""
    x.head()
    event = b"data: " + b"t" * 240 + b"\n\n"
    for _ in range(400):
        await x.room()
        if x.left.is_set():
            return
        for _ in range(64):
            x.chunk(event)
    x.end()


async def _stalled(x: EngineExchange) -> None:
    """Wait until the engine can write no more, and stays so while the proxy is seen to be served."""
    await until(lambda: not x.writable.is_set(), "the engine's writes stall")


async def _warm(served: Served) -> None:
    """An answer, so that what is made once is made."""
    async with served.client() as client:
        answer = await client.ask(post())
        assert answer.complete
        assert len(answer.body) > MB


async def test_streams_hold_no_more_than_two_megabytes(tmp_path: Path) -> None:
    """100 MB through a fast reader, 100 MB held up by one that stops, and small chunks likewise: the process's peak."""
    async with GatedEngine(_trickle_of_tokens) as engine, serve(tmp_path, [engine]) as served:
        await served.ready()
        await _warm(served)
        engine.script = _flood
        await _warm(served)
        grown = {}

        before = served.forget_peak()
        async with served.client() as client:
            assert len((await client.ask(post())).body) == STREAM
        grown["fast reader"] = served.peak - before

        before = served.forget_peak()
        async with served.client(limit=1024) as client:
            client.send(post())
            x = await engine.arrived(len(engine.exchanges) + 1)
            await _stalled(x)
            for _ in range(5):
                assert (await served.metrics()).in_flight == [1]
            grown["reader that stops"] = served.peak - before
            head = await client.head()
            size = 0
            while data := await client.chunk():
                size += len(data)
                if size % (8 * MB) < len(data):
                    await asyncio.sleep(0.005)
            assert (head.status, size) == (200, STREAM)
        grown["slow reader"] = served.peak - before

        engine.script = _trickle_of_tokens
        before = served.forget_peak()
        readers = [served.client(limit=1024) for _ in range(2)]
        for reader in readers:
            await reader.__aenter__()
            reader.send(post())
        for number, reader in enumerate(readers):
            await engine.arrived(len(engine.exchanges))
            assert (await reader.answer()).complete, number
            reader.drop()
        grown["two readers of small chunks"] = served.peak - before
        print({what: f"{size / MB:.2f} MB" for what, size in grown.items()})
        assert {what: size for what, size in grown.items() if size > MOST_HELD} == {}


async def _drip(client: RawClient, body: bytes) -> None:
    client.send(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body))
    for start in range(0, len(body), MB):
        client.send(body[start : start + MB])
        await client.writer.drain()


async def test_slow_uploads_do_not_add_up(tmp_path: Path) -> None:
    """A body is kept whole (it may have to be sent again), beside what it is put together from and what is read in it;
    to an engine that does not read it, and one after the other, there is no more than that."""
    size = 24 * MB
    body = b'{"prompt":"' + b"p" * (size - 13) + b'"}'

    async def deaf_first(x: EngineExchange) -> None:
        x.transport.pause_reading()
        await hearing.wait()
        x.transport.resume_reading()
        await x.whole.wait()
        x.answer(200, b"{}")

    async with GatedEngine(deaf_first, early=True) as engine, serve(tmp_path, [engine]) as served:
        await served.ready()
        first = before = served.resident
        for count in (1, 2, 3):
            hearing = asyncio.Event()
            before = served.forget_peak()
            async with served.client() as client:
                await _drip(client, body)
                x = await engine.arrived(count)
                for _ in range(3):
                    assert (await served.metrics()).in_flight == [1]
                assert not x.whole.is_set()
                hearing.set()
                assert (await client.answer()).status == 200
                assert x.request.body == body
            await served.counted("ok", count)
            grown = {"at most": served.peak - before - 3 * size, "after": served.resident - before}
            print({what: f"{size / MB:.2f} MB" for what, size in grown.items()})
        assert {what: size for what, size in grown.items() if size > MOST_HELD} == {}
        assert served.resident - first < size + 2 * MOST_HELD


async def test_a_reader_that_stops_holds_the_engine_back_and_loses_nothing() -> None:
    """What the engine can send meanwhile is what lies in sockets; then every byte comes."""
    sent = 0

    async def flood(x: EngineExchange) -> None:
        nonlocal sent
        x.head()
        for number in range(1600):
            await x.room()
            x.chunk(b"%08d" % number + PIECE[8:])
            sent += 1
        x.end()

    async with GatedEngine(flood) as engine, running_proxy([engine]) as proxy, proxy.client(limit=1024) as client:
        client.send(post())
        x = await engine.arrived()
        await _stalled(x)
        for _ in range(5):
            await proxy.metrics()
        assert sent * len(PIECE) < 32 * MB
        answer = await client.answer()
        assert answer.complete
        assert answer.body == b"".join(b"%08d" % number + PIECE[8:] for number in range(1600))
        await proxy.ended(ok=1)


async def test_a_reader_that_stops_delays_no_other() -> None:
    """Of the same engine, and of the pages: a hundred answers while one stands still."""

    async def script(x: EngineExchange) -> None:
        if b"flood" in x.request.body:
            await _flood(x)
        else:
            x.answer(200, b"{}")

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client(limit=1024) as slow:
        slow.send(post(body={"prompt": "flood"}))
        await _stalled(await engine.arrived())
        async with proxy.client() as client:
            for _ in range(100):
                assert (await client.ask(post())).status == 200
        page = await proxy.metrics()
        assert (page.in_flight, page.requests("ok")) == ([1], 100)
        slow.leave("close")
        await proxy.ended(ok=100, client_closed=1)


@pytest.mark.parametrize("framing", ["length", "chunked", "until close"])
async def test_large_answers_pass_whole(framing: str) -> None:
    body = bytes(range(256)) * 80_000

    async def script(x: EngineExchange) -> None:
        if framing == "length":
            x.answer(200, body)
            return
        x.head(200, [("transfer-encoding", "chunked")] if framing == "chunked" else [])
        if framing == "chunked":
            x.chunk(body)
            x.end()
        else:
            x.write(body)
            x.close()

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post())
        assert answer.complete
        assert answer.body == body
        await proxy.ended(ok=1)


async def test_a_reader_that_stops_for_good_is_cut_in_whatever_it_was_doing() -> None:
    """Also after the whole answer has been written to it, closing or not, and with its next request under way."""

    async def flood(x: EngineExchange) -> None:
        x.answer(200, b"x" * 40_000_000)

    closing = (("connection", "close"),)
    limits = {"idle_timeout_s": 0.3}
    async with GatedEngine(flood) as engine, running_proxy([engine], limits=limits) as proxy:
        for requests in (post(), post(headers=closing)):
            async with proxy.client(limit=1024) as client:
                client.send(requests)
                await until(lambda: len(proxy.server.data.connections) == 1, "it is connected")
                await until(lambda: proxy.server.data.connections == [], "it is cut")
        await until(lambda: proxy.in_flight == 0, "nothing is open")


async def test_a_slow_reader_that_goes_on_reading_is_not_cut() -> None:
    """What it takes comes out of the kernel's buffers, megabytes, long before anything moves in ours."""

    async def flood(x: EngineExchange) -> None:
        x.answer(200, b"x" * 16_000_000)

    limits = {"idle_timeout_s": 0.5}
    async with GatedEngine(flood) as engine, running_proxy([engine], limits=limits) as proxy:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            client.setblocking(False)
            await loop.sock_sendall(client, post())
            taken = 0
            # Some 1 MB a second for 3 s, then the rest: six times the limit without a turn in the proxy's own buffer.
            until_then = loop.time() + 3.0
            while taken < 16_000_000:
                taken += len(await loop.sock_recv(client, 20_000 if loop.time() < until_then else 1_000_000))
                if loop.time() < until_then:
                    await asyncio.sleep(0.02)
        await proxy.ended(ok=1)
