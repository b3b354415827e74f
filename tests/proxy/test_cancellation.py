"""A client that leaves: the engine is told by the closing of its connection, in every phase and by every way to leave.

Seen from outside only: the engine's connection, the exposition page, ``/status`` and ``/decisions``.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
from collections.abc import Awaitable, Callable

import pytest

from tests.support.gated_engine import EngineExchange, GatedEngine, answer_json, until
from tests.support.raw_client import RawClient, post
from tests.support.running_proxy import RunningProxy, running_proxy

WAYS = ["close", "reset", "half"]
CHUNKED = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]
LENGTH = [("content-type", "application/json"), ("content-length", "1000")]
UNTIL_CLOSE = [("content-type", "text/plain")]


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


async def _before_the_head(client: RawClient, x: EngineExchange) -> None:
    """The engine thinks."""


async def _after_the_head(client: RawClient, x: EngineExchange) -> None:
    x.head(200, CHUNKED)
    await client.head()


async def _silence_in_a_stream(client: RawClient, x: EngineExchange) -> None:
    x.head(200, CHUNKED)
    x.chunk(b"data: one\n\n")
    await client.head()
    assert await client.chunk() == b"data: one\n\n"


async def _tokens_flow(client: RawClient, x: EngineExchange) -> None:
    async def flow() -> None:
        while not x.left.is_set():
            x.chunk(b"data: token\n\n")
            await asyncio.sleep(0.001)

    x.head(200, CHUNKED)
    x.background = asyncio.create_task(flow())  # type: ignore[attr-defined]  # kept from the collector
    await client.head()
    for _ in range(5):
        await client.chunk()


async def _part_of_a_length(client: RawClient, x: EngineExchange) -> None:
    x.head(200, LENGTH)
    x.write(b"{")
    await client.head()
    assert await client.reader.readexactly(1) == b"{"


async def _body_until_close(client: RawClient, x: EngineExchange) -> None:
    x.head(200, UNTIL_CLOSE)
    x.write(b"some")
    await client.head()
    assert await client.chunk() == b"some"


async def _interim_head_only(client: RawClient, x: EngineExchange) -> None:
    x.write(b"HTTP/1.1 102 Processing\r\n\r\n")


PHASES: dict[str, Callable[[RawClient, EngineExchange], Awaitable[None]]] = {
    "before the head": _before_the_head,
    "after an interim head": _interim_head_only,
    "after the head": _after_the_head,
    "tokens flow": _tokens_flow,
    "a silence in a stream": _silence_in_a_stream,
    "part of a length": _part_of_a_length,
    "a body until close": _body_until_close,
}


async def _told(proxy: RunningProxy, x: EngineExchange, caplog: pytest.LogCaptureFixture) -> None:
    """The engine saw the close; it is counted once, as the client's doing, and nothing is open or held against it."""
    await x.gone()
    page = await proxy.ended(client_closed=1)
    assert page.requests("client_closed", replica="r0", class_="chat") == 1
    assert page.total("retries_total") == 0
    row = (await proxy.status())["r0"]
    assert (row["in_flight"], row["healthy"]) == (0, True)
    assert [record["outcome"] for record in await proxy.decisions()] == ["client_closed"]
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record for record in warnings if record.name == "adaptive_gamma.proxy"] == []


CHAT = post(headers=(("x-adaptive-gamma-class", "chat"),))


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("phase", PHASES)
async def test_leaving(phase: str, how: str, caplog: pytest.LogCaptureFixture) -> None:
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(CHAT)
        x = await engine.arrived()
        assert (await proxy.status())["r0"]["in_flight"] == 1
        await PHASES[phase](client, x)
        client.leave(how)
        await _told(proxy, x, caplog)


@pytest.mark.parametrize("how", WAYS)
async def test_http_1_0_client_leaves(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(CHAT.replace(b"HTTP/1.1", b"HTTP/1.0"))
        x = await engine.arrived()
        x.head(200, CHUNKED)
        x.chunk(b"one")
        await client.head()
        assert await client.reader.readexactly(3) == b"one"
        client.leave(how)
        await _told(proxy, x, caplog)


async def test_leaving_while_the_answer_is_learned_from(caplog: pytest.LogCaptureFixture) -> None:
    """With everything that looks at an answer on: a replica whose draft length is still to be learned."""
    async with GatedEngine(_silent) as engine:
        replica = {"name": "r0", "url": engine.url, "engine": "llamacpp", "gamma": "auto"}
        async with running_proxy([engine], replicas=[replica]) as proxy, proxy.client() as client:
            client.send(CHAT)
            x = await engine.arrived()
            x.head(200, CHUNKED)
            x.chunk(b'data: {"timings":{"draft_n":1')
            await client.head()
            await client.chunk()
            client.leave("close")
            await _told(proxy, x, caplog)


async def test_leaving_in_the_middle_of_the_body() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n")
        assert (await client.head()).status == 100
        client.send(b"{")
        client.leave("close")
        page = await proxy.ended(client_closed=1)
        assert page.requests("client_closed", replica="none") == 1
        assert engine.requests == []


async def test_leaving_while_the_engine_does_not_read_the_request() -> None:
    """The engine has taken the head and leaves the body in the socket."""

    async def deaf(x: EngineExchange) -> None:
        x.transport.pause_reading()
        await x.left.wait()

    big = b'{"prompt":"' + b"p" * 30_000_000 + b'"}'
    async with GatedEngine(deaf, early=True) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post("/v1/completions", big))
        x = await engine.arrived()
        client.leave("close")
        page = await proxy.ended(client_closed=1)
        assert page.in_flight == [0]
        x.transport.resume_reading()
        await x.gone()
        assert not x.whole.is_set()


async def test_leaving_while_another_replica_is_tried() -> None:
    """One replica has rejected and is held in reserve, the other thinks: both are let go."""
    halves: list[EngineExchange] = []

    async def reject_at_length(x: EngineExchange) -> None:
        halves.append(x)
        x.head(503)
        x.chunk(b"no")

    async with (
        GatedEngine(reject_at_length) as full,
        GatedEngine(_silent) as free,
        running_proxy([full, free]) as proxy,
    ):
        count = 0
        while not halves:
            async with proxy.client() as client:
                client.send(post())
                count += 1
                x = await free.arrived(count)
                client.leave("close")
                await x.gone()
        await halves[0].gone()
        page = await proxy.ended(client_closed=count)
        assert page.in_flight == [0, 0]
        assert page.total("retries_total", reason="rejected_503") == 1


async def test_leaving_with_a_whole_answer_unread() -> None:
    """The engine is done; the client never takes what it asked for."""
    whole = b"x" * 20_000_000

    async def flood(x: EngineExchange) -> None:
        x.answer(200, whole)

    async with GatedEngine(flood) as engine, running_proxy([engine]) as proxy, proxy.client(limit=1024) as client:
        client.send(post())
        x = await engine.arrived()
        await client.head()
        client.leave("reset")
        await x.gone()
        await proxy.ended(client_closed=1)


async def test_leaving_while_it_does_not_read() -> None:
    """The proxy waits for a slow reader; the reader leaves."""

    async def flood(x: EngineExchange) -> None:
        x.head()
        while not x.left.is_set():
            await x.room()
            x.chunk(b"x" * 65536)

    async with GatedEngine(flood) as engine, running_proxy([engine]) as proxy, proxy.client(limit=1024) as client:
        client.send(post())
        x = await engine.arrived()
        await until(lambda: not x.writable.is_set(), "the engine's writes stall")
        client.leave("close")
        await x.gone()
        await proxy.ended(client_closed=1)


async def test_leaving_with_a_further_request_pipelined_behind() -> None:
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post() + post())
        x = await engine.arrived()
        client.leave("close")
        await x.gone()
        await proxy.ended(client_closed=1)
        assert len(engine.requests) == 1


async def test_leaving_a_search() -> None:
    missing = answer_json(404, {"error": {"message": "no such response"}})
    async with GatedEngine(missing) as one, GatedEngine(_silent) as two, running_proxy([one, two]) as proxy:
        async with proxy.client() as client:
            client.send(b"GET /v1/responses/resp_1 HTTP/1.1\r\nhost: a\r\n\r\n")
            x = await two.arrived()
            client.leave("close")
            await x.gone()
        page = await proxy.ended(client_closed=1)
        assert page.in_flight == [0, 0]


async def test_leaving_while_a_connection_is_made() -> None:
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    fillers = [socket.socket() for _ in range(4)]
    try:
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        async with running_proxy([url], limits={"connect_timeout_s": 60}) as proxy, proxy.client() as client:
            client.send(post())
            await until(lambda: proxy.in_flight == 1, "the request is open")
            client.leave("close")
            page = await proxy.ended(client_closed=1)
            assert page.total("upstream_connections_opened_total") == 0
    finally:
        for each in (full, *fillers):
            each.close()


async def test_leaving_right_after_asking(caplog: pytest.LogCaptureFixture) -> None:
    """The request and the client's leaving come in one go: never an error, and nothing stays open."""
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        for how in WAYS * 10:
            async with proxy.client() as client:
                client.send(post())
                client.leave(how)
        await until(lambda: proxy.in_flight == 0, "in_flight 0")
        page = await proxy.metrics()
        assert page.requests() == page.requests("client_closed") + page.requests("ok")
        assert page.in_flight == [0]
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record for record in warnings if record.name == "adaptive_gamma.proxy"] == []


async def test_the_connections_of_clients_that_leave_are_not_kept() -> None:
    """50 leave a stream each; what was made for them is gone, as the collector sees it."""

    async def drip(x: EngineExchange) -> None:
        x.head()
        while not x.left.is_set():
            x.chunk(b"data: token\n\n")
            await asyncio.sleep(0.005)

    def held() -> int:
        gc.collect()
        return sum(isinstance(each, asyncio.BaseProtocol | asyncio.Task) for each in gc.get_objects())

    async with GatedEngine(drip) as engine, running_proxy([engine]) as proxy:
        await proxy.metrics()
        before = held()
        clients = [proxy.client() for _ in range(50)]
        for client in clients:
            await client.__aenter__()
            client.send(post())
        await engine.arrived(50)
        for client in clients:
            client.leave("close")
        for x in engine.exchanges:
            await x.gone()
        await proxy.ended(client_closed=50)
        clients.clear()
        engine.exchanges.clear()
        engine.requests.clear()
        await until(lambda: not engine.tasks, "the scripts ended")
        assert held() <= before + 10


async def test_a_client_that_stays_is_not_taken_for_gone() -> None:
    """An answer that has ended, read at leisure; then the next request on the same connection, both counted ok."""
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        for count in (1, 2, 3):
            client.send(post())
            await engine.arrived(count)
            await proxy.ended(ok=count)
            assert json.loads((await client.answer()).body) == {"ok": True}
        assert len({request.connection for request in engine.requests}) == 1


async def test_half_closing_while_it_does_not_read() -> None:
    """What is unsent must not keep the engine at work until the client's kernel answers a probe."""

    async def flood(x: EngineExchange) -> None:
        x.head()
        while not x.left.is_set():
            await x.room()
            x.chunk(b"x" * 65536)

    async with GatedEngine(flood) as engine, running_proxy([engine]) as proxy, proxy.client(limit=1024) as client:
        client.send(post())
        x = await engine.arrived()
        await until(lambda: not x.writable.is_set(), "the engine's writes stall")
        client.writer.write_eof()
        await x.gone()
        await proxy.ended(client_closed=1)
