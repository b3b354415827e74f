"""The keep-alive race: an engine closes a kept connection at exactly the moment it is used again. No request fails.

Against the process with its clock standing still: what is a race and what is an engine that thought about a request is
told apart by time, and a machine that is short of it must not decide these tests.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from tests.support.gated_engine import EngineExchange, GatedEngine
from tests.support.lean import LeanEngine, hammer
from tests.support.raw_client import post
from tests.support.running_proxy import running_proxy
from tests.support.timed import Timed, timed_process

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUNDS = 600
BODY = b'{"prompt":"' + bytes(range(0x23, 0x5B)) * 20 + b'"}'


def _always(what: str) -> Callable[[int], str | None]:
    return lambda count: what if count > 1 else None


def _after_each(count: int) -> str | None:
    return "answer and close"


def _now_and_then(count: int) -> str | None:
    return random.choice([None, None, "answer and close"]) if count == 1 else random.choice([None, "close", "reset"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lean() -> AsyncIterator[LeanEngine]:
    async with LeanEngine() as engine:
        yield engine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory, lean: LeanEngine) -> AsyncIterator[Timed]:
    """r0 answers for the model ``scripted``, r1 for ``lean``."""
    async with GatedEngine() as engine:
        replicas = [
            {"name": "r0", "url": engine.url, "gamma": 0, "model": "scripted"},
            {"name": "r1", "url": lean.url, "gamma": 0, "model": "lean"},
        ]
        async with timed_process(tmp_path_factory.mktemp("race"), replicas=replicas) as process:
            process.engine = engine
            yield process


@pytest_asyncio.fixture(loop_scope="module")
async def timed(process: Timed) -> Timed:
    timed = await process.again()
    timed.stand()
    return timed


LEAN = post("/v1/completions", BODY.replace(b"{", b'{"model":"lean",', 1))
SCRIPTED = post("/v1/completions", BODY.replace(b"{", b'{"model":"scripted",', 1))


@pytest.mark.parametrize(
    ("act", "resent"),
    [
        pytest.param(_always("close"), True, id="closed on reuse"),
        pytest.param(_always("reset"), True, id="reset on reuse"),
        pytest.param(_after_each, None, id="closed behind each answer"),
        pytest.param(_now_and_then, None, id="closed now and then"),
        pytest.param(None, False, id="kept"),
    ],
)
async def test_no_request_fails(
    timed: Timed, lean: LeanEngine, act: Callable[[int], str | None] | None, resent: bool | None
) -> None:
    """Each is answered once, by an engine that saw it to the end once."""
    at_once = 8
    lean.act, served, connections = act, lean.served, lean.connections
    answers = await hammer(timed.served.port, [LEAN] * ROUNDS, at_once)
    assert answers == {200: ROUNDS}
    await timed.ended(ok=ROUNDS)
    assert lean.served - served == ROUNDS
    opened = await timed.grown("upstream_connections_opened_total", replica="r1")
    assert opened == lean.connections - connections
    retried = await timed.grown("retries_total", reason="stale_connection")
    if resent is not None:
        assert (retried > 0) is resent
    if resent is False:
        assert opened <= at_once


async def test_a_large_body_is_sent_again_byte_for_byte(timed: Timed) -> None:
    """The engine resets the connection while it is still being written to."""
    big = b'{"model":"scripted","prompt":"' + random.randbytes(2_000_000).hex().encode() + b'"}'
    engine = timed.engine

    async def script(x: EngineExchange) -> None:
        if x.request.connection == kept:
            x.transport.pause_reading()
            x.reset()
            return
        await x.whole.wait()
        x.answer(200, b"{}")

    async with timed.client() as client:
        assert (await client.ask(SCRIPTED)).status == 200
        kept = engine.requests[0].connection
        engine.script, engine.early = script, True
        try:
            assert (await client.ask(post("/v1/completions", big))).status == 200
        finally:
            engine.early = False
    assert [request.connection == kept for request in engine.requests] == [True, True, False]
    assert engine.requests[-1].body == big
    again = bytes(engine.received[engine.requests[-1].connection])
    assert again[: len(again) - len(big)] in engine.received[kept]
    await timed.ended(ok=2)
    assert await timed.grown("retries_total", reason="stale_connection") == 1


async def test_it_is_sent_again_only_once(timed: Timed) -> None:
    """The fresh connection dies, too: that is an engine that took the request."""

    async def close(x: EngineExchange) -> None:
        x.close()

    async with timed.client() as client:
        assert (await client.ask(SCRIPTED)).status == 200
        timed.engine.script = close
        answer = await client.ask(SCRIPTED)
        assert (answer.status, answer.error_code) == (502, "engine_broke_off")
    assert len(timed.engine.requests) == 3
    await timed.ended(ok=1, protocol_error=1)


@pytest.mark.parametrize("part", [b"H", b"HTTP/1.1 200 OK\r\ncontent-len", b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n"])
async def test_bytes_of_an_answer_end_the_right_to_send_again(timed: Timed, part: bytes) -> None:
    """A reused connection that dies inside the head of the answer, or after an interim head, is an error."""

    async def script(x: EngineExchange) -> None:
        x.write(part)
        x.close()

    async with timed.client() as client:
        assert (await client.ask(SCRIPTED)).status == 200
        timed.engine.script = script
        answer = await client.ask(SCRIPTED)
        assert (answer.status, answer.error_code) == (502, "engine_broke_off")
    first, second = timed.engine.requests
    assert first.connection == second.connection
    await timed.ended(ok=1, protocol_error=1)
    assert await timed.grown("retries_total") == 0


async def test_a_connection_an_engine_means_to_close_is_not_used_again() -> None:
    async def script(x: EngineExchange) -> None:
        x.answer(200, b"{}", [("connection", "close")])
        await asyncio.sleep(0)

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        for _ in range(3):
            answer = await client.ask(post())
            assert (answer.status, answer.one("connection")) == (200, None)
        assert len({request.connection for request in engine.requests}) == 3
        for x in engine.exchanges:
            await x.gone()
        page = await proxy.ended(ok=3)
        assert page.total("retries_total") == 0


async def test_engines_of_http_1_0_are_understood() -> None:
    async def script(x: EngineExchange) -> None:
        x.write(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        x.close()

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        for _ in range(2):
            answer = await client.ask(post())
            assert (answer.status, answer.version, answer.body) == (200, "HTTP/1.1", b"{}")
        page = await proxy.ended(ok=2)
        assert page.total("retries_total") == 0


POISON = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison"
BEHIND = {
    "a length": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}" + POISON,
    "chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + POISON,
    "nothing": b"HTTP/1.1 204 X\r\n\r\n" + POISON,
    "a length, and half a head": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}" + POISON[:20],
    "chunks, and one byte": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + POISON[:1],
}


@pytest.mark.parametrize("what", BEHIND)
async def test_bytes_behind_an_answer_do_not_become_the_next_answer(timed: Timed, what: str) -> None:
    """Sent in one packet with it: the answer counts, its connection does not."""

    async def script(x: EngineExchange) -> None:
        x.write(BEHIND[what])

    timed.engine.script = script
    async with timed.client() as client:
        for count in (1, 2, 3):
            answer = await client.ask(SCRIPTED)
            assert answer.body == (b"" if answer.status == 204 else b"{}")
            await (await timed.arrived(count)).gone()
    await timed.ended(ok=3)


async def test_bytes_on_a_connection_at_rest_end_it(timed: Timed) -> None:
    """A piece of an answer that nobody asked for, whose rest would come as the next answer."""
    async with timed.client() as client:
        assert (await client.ask(SCRIPTED)).status == 200
        x = await timed.arrived()
        x.write(POISON[:20])
        await x.gone()
        assert (await client.ask(SCRIPTED)).status == 200
    assert timed.engine.requests[0].connection != timed.engine.requests[1].connection
    await timed.ended(ok=2)
