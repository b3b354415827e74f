"""A client that leaves is noticed in every phase, and the engine is told by the closing of its connection."""

from __future__ import annotations

import asyncio

import pytest

from adaptive_gamma.proxy.client_connection import ClientConnection
from tests.support.gated_engine import EngineExchange, GatedEngine, until
from tests.support.raw_client import post
from tests.support.running_proxy import RunningProxy, running_proxy


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


async def _gone(x: EngineExchange, proxy: RunningProxy) -> None:
    await x.gone()
    await proxy.counted("client_closed")
    await until(lambda: proxy.in_flight == 0, "in_flight 0")
    assert proxy.count() == 1


async def test_before_the_head() -> None:
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post())
        x = await engine.arrived()
        assert proxy.in_flight == 1
        client.drop()
        await _gone(x, proxy)


async def test_while_chunks_flow() -> None:
    async def stream(x: EngineExchange) -> None:
        x.head()
        while not x.left.is_set():
            x.chunk(b"data: token\n\n")
            await asyncio.sleep(0.001)

    async with GatedEngine(stream) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post())
        await client.head()
        for _ in range(5):
            await client.chunk()
        client.drop()
        await _gone(await engine.arrived(), proxy)


async def test_while_the_engine_is_silent_in_the_middle() -> None:
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post())
        x = await engine.arrived()
        x.head()
        x.chunk(b"one")
        await client.head()
        assert await client.chunk() == b"one"
        client.drop()
        await _gone(x, proxy)


async def test_half_closed_client_counts_as_gone() -> None:
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post())
        x = await engine.arrived()
        client.writer.write_eof()
        await _gone(x, proxy)


async def test_with_a_further_request_pipelined_behind() -> None:
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post() + post())
        x = await engine.arrived()
        client.drop()
        await x.gone()
        await until(lambda: proxy.in_flight == 0, "in_flight 0")
        await proxy.counted("client_closed", 1)
        assert len(engine.requests) == 1


async def test_in_the_middle_of_its_body() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post()[:-10])
        connections = proxy.server.data._server.server_state.connections
        await until(lambda: any(c.busy for c in connections), "the request began")  # type: ignore[union-attr]
        client.drop()
        await proxy.counted("client_closed")
        assert engine.requests == []


async def test_while_it_does_not_read() -> None:
    """The proxy waits for a slow reader; the reader leaves."""

    async def flood(x: EngineExchange) -> None:
        x.head()
        while not x.left.is_set():
            await x.writable.wait()
            x.chunk(b"x" * 65536)
            await asyncio.sleep(0)

    async with GatedEngine(flood) as engine, running_proxy([engine]) as proxy, proxy.client(limit=1024) as client:
        client.send(post())
        x = await engine.arrived()
        await until(lambda: not x.writable.is_set(), "the engine's writes stall")
        client.drop()
        await _gone(x, proxy)


async def test_while_a_connection_to_the_engine_is_made() -> None:
    """The engine's listener takes no connection: its queue is full."""
    import socket

    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    fillers = []
    try:
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
            fillers.append(filler)
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        async with running_proxy([url], limits={"connect_timeout_s": 60}) as proxy, proxy.client() as client:
            client.send(post())
            await until(lambda: proxy.in_flight == 1, "the request is open")
            client.drop()
            await proxy.counted("client_closed")
    finally:
        for each in (full, *fillers):
            each.close()


@pytest.mark.parametrize("count", [50])
async def test_many_leave_and_nothing_stays_open(count: int) -> None:
    async def drip(x: EngineExchange) -> None:
        x.head()
        while not x.left.is_set():
            x.chunk(b"data: token\n\n")
            await asyncio.sleep(0.005)

    async with GatedEngine(drip) as engine, running_proxy([engine]) as proxy:
        clients = [proxy.client() for _ in range(count)]
        for client in clients:
            await client.__aenter__()
            client.send(post())
        await engine.arrived(count)
        for client in clients:
            client.drop()
        await proxy.counted("client_closed", count)
        await until(lambda: all(x.left.is_set() for x in engine.exchanges), "all left")
        page = (await proxy.admin("/metrics")).body.decode()
        assert 'adaptive_gamma_in_flight{replica="r0"} 0.0' in page
        assert len(proxy.server.data._server.server_state.tasks) == 0


async def test_slow_reader_holds_the_engine_back_and_loses_nothing() -> None:
    """What is not read stays at the engine: sockets and bounded buffers lie between, no more."""
    piece = b"x" * 65536
    total = 1600

    async def flood(x: EngineExchange) -> None:
        x.head()
        for _ in range(total):
            await x.writable.wait()
            x.chunk(piece)
            x.sent += 1  # type: ignore[attr-defined]
        x.end()

    async def counted(x: EngineExchange) -> None:
        x.sent = 0  # type: ignore[attr-defined]
        await flood(x)

    async with GatedEngine(counted) as engine, running_proxy([engine]) as proxy, proxy.client(limit=1024) as client:
        client.send(post())
        x = await engine.arrived()
        before = -1
        while before != x.sent:  # type: ignore[attr-defined]
            before = x.sent  # type: ignore[attr-defined]
            await asyncio.sleep(0.2)
        assert not x.writable.is_set()
        assert x.sent * len(piece) < 32 << 20  # type: ignore[attr-defined]
        (connection,) = (c for c in proxy.server.data._server.server_state.connections)
        assert isinstance(connection, ClientConnection)
        assert connection.unsent_bytes < 1 << 20
        read = await client.answer()
        assert len(read.body) == total * len(piece)
        assert read.complete
