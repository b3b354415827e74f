"""Every time limit as it is by default, with the process's clock moved on instead of waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.gated_engine import DEADLINE_S, EngineExchange, GatedEngine, until
from tests.support.raw_client import RawClient, post
from tests.support.served import Served, serve
from tests.support.time_machine import TimeMachine

QUIET = {
    "scrape": {"interval_s": 60, "timeout_s": 60, "stale_after_s": 3600},
    "health": {"interval_s": 3600, "timeout_s": 60},
}


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


@asynccontextmanager
async def _in_time(folder: Path, engine: GatedEngine, **settings: Any) -> AsyncIterator[Served]:
    async with serve(folder, [engine], clock=TimeMachine(folder), **{**QUIET, **settings}) as served:
        await served.ready()
        yield served


async def test_idle_connections(tmp_path: Path) -> None:
    """To engines: 4 s, below their 5 s. From clients: 75 s, above what balancers in front of us keep (60 s)."""
    async with GatedEngine() as engine, _in_time(tmp_path, engine) as served:
        async with served.client() as fresh, served.client() as used:
            assert (await used.ask(post())).status == 200
            await served.advance(3.8)
            assert (await used.ask(post())).status == 200
            assert engine.requests[1].connection == engine.requests[0].connection
            x = engine.exchanges[1]
            assert not x.left.is_set()
            await served.advance(4.2)
            await x.gone()
            assert (await used.ask(post())).status == 200
            assert engine.requests[2].connection != engine.requests[0].connection
            await served.advance(65)
            assert (await used.ask(post())).status == 200
            await served.advance(1)
            assert not fresh.reader.at_eof()
            await served.advance(3)
            assert await fresh.closed() == b""
            await served.advance(70)
            assert (await used.ask(post())).status == 200
            await served.advance(76)
            assert await used.closed() == b""
        await served.counted("ok", 5)


async def test_silent_engines(tmp_path: Path) -> None:
    """600 s to the first byte, 300 s between two; a stream that speaks is never too long."""
    async with GatedEngine(_silent) as engine, _in_time(tmp_path, engine) as served:
        async with served.client() as late:
            late.send(post())
            x = await engine.arrived()
            await served.advance(598)
            x.answer(200, b"late")
            assert (await late.answer()).body == b"late"
        async with served.client() as never:
            never.send(post())
            x = await engine.arrived(2)
            await served.advance(598)
            assert not x.left.is_set()
            await served.advance(3)
            answer = await never.answer()
            assert (answer.status, answer.error_code) == (504, "engine_timeout")
            await x.gone()
        async with served.client() as long:
            long.send(post())
            x = await engine.arrived(3)
            x.head()
            head = await long.head()
            for number in range(20):
                x.chunk(b"%d" % number)
                assert await long.chunk() == b"%d" % number
                await served.advance(298)
            x.chunk(b"last")
            assert await long.chunk() == b"last"
            await served.advance(298)
            assert not x.left.is_set()
            await served.advance(3)
            answer = await long.rest(head)
            assert (answer.body, answer.complete) == (b"", False)
            await x.gone()
        page = await served.counted("timeout", 2)
        assert page.requests() == 3


async def _slow(client: RawClient, served: Served, data: bytes, step_s: float) -> None:
    for byte in data:
        client.send(bytes([byte]))
        await served.advance(step_s)


async def _counted(served: Served, count: int) -> None:
    """So many requests ended by their clients' fault, none by an engine's."""
    async with asyncio.timeout(DEADLINE_S):
        while (page := await served.metrics()).requests() < count or any(page.in_flight):  # noqa: ASYNC110  # it has no event
            await asyncio.sleep(0.01)
    assert page.requests("client_closed") + page.requests("client_error") == page.requests() == count


async def test_clients_that_stop_or_creep(tmp_path: Path) -> None:
    """75 s for a head, however it creeps; 300 s for a body to move, and for a full socket to be read."""

    async def flood(x: EngineExchange) -> None:
        x.head()
        while not x.left.is_set():
            await x.writable.wait()
            x.chunk(b"x" * 65536)

    async with GatedEngine(flood) as engine, _in_time(tmp_path, engine) as served:
        async with served.client() as creeping:
            await _slow(creeping, served, b"POST /", 12)
            assert not creeping.reader.at_eof()
            await served.advance(12)
            assert await creeping.closed() == b""
        async with served.client() as body:
            body.send(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 99\r\n\r\n{")
            for _ in range(2):
                await served.advance(290)
                body.send(b" ")
                await served.advance(0)
            await served.advance(290)
            assert not body.reader.at_eof()
            await served.advance(15)
            answer = await body.answer()
            assert (answer.status, answer.error_code) == (408, "body_timeout")
        assert engine.requests == []
        async with served.client(limit=1024) as reader:
            reader.send(post())
            x = await engine.arrived()
            await until(lambda: not x.writable.is_set(), "the engine's writes stall")
            for _ in range(8):
                await served.advance(100)
            await x.gone()
        await _counted(served, 2)


async def test_a_reused_connection_that_dies_after_a_thought_is_an_error(tmp_path: Path) -> None:
    """Such an engine has taken the request: the close is no idle close that crossed it."""
    async with GatedEngine() as engine, _in_time(tmp_path, engine) as served, served.client() as client:
        assert (await client.ask(post())).status == 200
        engine.script = _silent
        client.send(post())
        x = await engine.arrived(2)
        assert x.request.connection == engine.requests[0].connection
        await served.advance(2)
        x.die()
        answer = await client.answer()
        assert (answer.status, answer.error_code) == (502, "engine_broke_off")
        assert len(engine.requests) == 2
        page = await served.counted("protocol_error")
        assert page.total("retries_total") == 0


async def test_leaving_is_noticed_while_the_clock_stands(tmp_path: Path) -> None:
    """No timer has a part in it: clients before the head, while tokens flow and in a silence, and engines that die."""

    async def script(x: EngineExchange) -> None:
        if b"before" in x.request.body:
            return
        x.head()
        x.chunk(b"token")

    async with GatedEngine(script) as engine, _in_time(tmp_path, engine) as served:
        assert served.clock is not None
        served.clock.stand()
        count = 0
        for prompt in ("before", "flow", "silence"):
            for how in ("close", "reset", "half"):
                async with served.client() as client:
                    client.send(post(body={"prompt": prompt}))
                    count += 1
                    x = await engine.arrived(count)
                    if prompt != "before":
                        await client.head()
                        assert await client.chunk() == b"token"
                    if prompt == "flow":
                        x.chunk(b"another")
                    client.leave(how)
                    await x.gone()
        page = await served.counted("client_closed", count)
        assert page.requests() == count
        for die in ("die", "reset", "close"):
            async with served.client() as client:
                client.send(post())
                count += 1
                x = await engine.arrived(count)
                head = await client.head()
                assert await client.chunk() == b"token"
                getattr(x, die)()
                assert not (await client.rest(head)).complete
        await served.counted("protocol_error", 3)
