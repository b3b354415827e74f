"""Every time limit as it is by default, with the process's clock moved on instead of waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.gated_engine import DEADLINE_S, EngineExchange, until
from tests.support.raw_client import post
from tests.support.timed import Timed, timed_process

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Timed]:
    async with timed_process(tmp_path_factory.mktemp("time")) as process:
        yield process


@pytest_asyncio.fixture(loop_scope="module")
async def timed(process: Timed) -> Timed:
    return await process.again()


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


async def test_idle_connections(timed: Timed) -> None:
    """To engines: 4 s, below their 5 s. From clients: 75 s, above what balancers in front of us keep (60 s)."""
    requests = timed.engine.requests
    async with timed.client() as fresh, timed.client() as used:
        assert (await used.ask(post())).status == 200
        await timed.advance(3.8)
        assert (await used.ask(post())).status == 200
        assert requests[1].connection == requests[0].connection
        x = await timed.arrived(2)
        assert not x.left.is_set()
        await timed.advance(4.2)
        await x.gone()
        assert (await used.ask(post())).status == 200
        assert requests[2].connection != requests[0].connection
        await timed.advance(65)
        assert (await used.ask(post())).status == 200
        await timed.advance(1)
        assert not fresh.reader.at_eof()
        await timed.advance(3)
        assert await fresh.closed() == b""
        await timed.advance(70)
        assert (await used.ask(post())).status == 200
        await timed.advance(76)
        assert await used.closed() == b""
    await timed.ended(ok=5)


async def test_silence_before_the_first_byte(timed: Timed) -> None:
    """600 s."""
    timed.engine.script = _silent
    async with timed.client() as late:
        late.send(post())
        x = await timed.arrived()
        await timed.advance(598)
        x.answer(200, b"late")
        assert (await late.answer()).body == b"late"
    async with timed.client() as never:
        never.send(post())
        x = await timed.arrived(2)
        await timed.advance(598)
        assert not x.left.is_set()
        await timed.advance(3)
        answer = await never.answer()
        assert (answer.status, answer.error_code) == (504, "engine_timeout")
        await x.gone()
    await timed.ended(ok=1, timeout=1)


async def test_silence_in_a_stream(timed: Timed) -> None:
    """300 s between two bytes; a stream that speaks is never too long."""
    timed.engine.script = _silent
    async with timed.client() as client:
        client.send(post())
        x = await timed.arrived()
        x.head()
        head = await client.head()
        for number in range(12):
            x.chunk(b"%d" % number)
            assert await client.chunk() == b"%d" % number
            await timed.advance(298)
        x.chunk(b"last")
        assert await client.chunk() == b"last"
        await timed.advance(298)
        assert not x.left.is_set()
        await timed.advance(3)
        answer = await client.rest(head)
        assert (answer.body, answer.complete) == (b"", False)
        await x.gone()
    await timed.ended(timeout=1)


async def test_a_head_that_creeps(timed: Timed) -> None:
    """75 s for all of it."""
    async with timed.client() as client:
        for byte in b"POST /":
            client.send(bytes([byte]))
            await timed.advance(12)
        assert not client.reader.at_eof()
        await timed.advance(12)
        assert await client.closed() == b""
    assert timed.engine.requests == []
    await timed.ended(ok=0)


async def test_a_body_that_stops(timed: Timed) -> None:
    """300 s without a byte of it; the fault is the client's."""
    async with timed.client() as client:
        client.send(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 99\r\n\r\n{")
        for _ in range(2):
            await timed.advance(290)
            client.send(b" ")
            await timed.advance(0)
        await timed.advance(290)
        assert not client.reader.at_eof()
        await timed.advance(15)
        answer = await client.answer()
        assert (answer.status, answer.error_code) == (408, "body_timeout")
    assert timed.engine.requests == []
    async with asyncio.timeout(DEADLINE_S):
        while await timed.grown("requests_total") < 1:
            pass
    faults = await timed.grown("requests_total", outcome="client_closed")
    assert faults + await timed.grown("requests_total", outcome="client_error") == 1


async def test_a_reader_that_stops_for_good(timed: Timed) -> None:
    """300 s with a full socket: its connection and the engine's are closed."""

    async def flood(x: EngineExchange) -> None:
        x.head()
        while not x.left.is_set():
            await x.room()
            x.chunk(b"x" * 65536)

    timed.engine.script = flood
    async with timed.client(limit=1024) as client:
        client.send(post())
        x = await timed.arrived()
        await until(lambda: not x.writable.is_set(), "the engine's writes stall")
        for _ in range(8):
            await timed.advance(100)
        await x.gone()
    await timed.ended(client_closed=1)


async def test_a_reader_that_is_slow_but_reads(timed: Timed) -> None:
    """Ten minutes for an answer, never 300 s without a byte taken: it gets all, and neither it nor the engine, which
    has to wait for it, is thought to be silent."""
    whole = b"x" * 24_000_000

    async def answer(x: EngineExchange) -> None:
        x.answer(200, whole)

    timed.engine.script = answer
    async with timed.client(limit=1024) as client:
        client.send(post())
        assert (await client.head()).status == 200
        size = 0
        for _ in range(6):
            await timed.advance(100)
            for _ in range(40):
                size += len(await client.reader.read(65536))
        async with asyncio.timeout(DEADLINE_S):
            size += len(await client.reader.readexactly(len(whole) - size))
        assert size == len(whole)
    await timed.ended(ok=1)


async def test_a_reused_connection_that_dies_after_a_thought_is_an_error(timed: Timed) -> None:
    """Such an engine has taken the request: the close is no idle close that crossed it."""
    async with timed.client() as client:
        assert (await client.ask(post())).status == 200
        timed.engine.script = _silent
        client.send(post())
        x = await timed.arrived(2)
        assert x.request.connection == timed.engine.requests[0].connection
        await timed.advance(30)
        x.die()
        answer = await client.answer()
        assert (answer.status, answer.error_code) == (502, "engine_broke_off")
    assert len(timed.engine.requests) == 2
    await timed.ended(ok=1, protocol_error=1)
    assert await timed.grown("retries_total") == 0


async def test_leaving_is_noticed_while_the_clock_stands(timed: Timed) -> None:
    """No timer has a part in it: clients before the head, while tokens flow and in a silence, and engines that die."""

    async def script(x: EngineExchange) -> None:
        if b"before" in x.request.body:
            return
        x.head()
        x.chunk(b"token")

    timed.engine.script = script
    timed.stand()
    count = 0
    for prompt in ("before", "flow", "silence"):
        for how in ("close", "reset", "half"):
            async with timed.client() as client:
                client.send(post(body={"prompt": prompt}))
                count += 1
                x = await timed.arrived(count)
                if prompt != "before":
                    await client.head()
                    assert await client.chunk() == b"token"
                if prompt == "flow":
                    x.chunk(b"another")
                client.leave(how)
                await x.gone()
    await timed.ended(client_closed=9)
    for how in ("die", "reset", "close"):
        async with timed.client() as client:
            client.send(post())
            count += 1
            x = await timed.arrived(count)
            head = await client.head()
            assert await client.chunk() == b"token"
            getattr(x, how)()
            assert not (await client.rest(head)).complete
    await timed.ended(client_closed=9, protocol_error=3)
