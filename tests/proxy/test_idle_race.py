"""The keep-alive race: an engine closes a kept connection at exactly the moment it is used again. No request fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from tests.support.gated_engine import EngineExchange, GatedEngine
from tests.support.lean import LeanEngine, hammer
from tests.support.raw_client import post
from tests.support.running_proxy import running_proxy

ROUNDS = 600
BODY = b'{"prompt":"' + bytes(range(0x23, 0x5B)) * 20 + b'"}'


def _always(what: str) -> Callable[[int], str | None]:
    return lambda count: what if count > 1 else None


def _after_each(count: int) -> str | None:
    return "answer and close"


def _now_and_then(count: int) -> str | None:
    return random.choice([None, None, "answer and close"]) if count == 1 else random.choice([None, "close", "reset"])


@pytest.mark.parametrize(
    ("act", "resent"),
    [
        pytest.param(_always("close"), True, id="closed on reuse"),
        pytest.param(_always("reset"), True, id="reset on reuse"),
        pytest.param(_after_each, None, id="closed behind each answer"),
        pytest.param(_now_and_then, None, id="closed now and then"),
    ],
)
async def test_no_request_fails(act: Callable[[int], str | None], resent: bool | None) -> None:
    async with LeanEngine(act) as engine, running_proxy([engine.url]) as proxy:
        answers = await hammer(proxy.port, [post("/v1/completions", BODY)] * ROUNDS, 8)
        assert answers == {200: ROUNDS}
        page = await proxy.ended(ok=ROUNDS)
        assert engine.served == ROUNDS
        if resent:
            assert page.total("retries_total", reason="stale_connection") > 0
        assert page.total("upstream_connections_opened_total", replica="r0") == engine.connections


async def test_a_large_body_is_sent_again_byte_for_byte() -> None:
    """The engine resets the connection while it is still being written to."""
    big = b'{"prompt":"' + random.randbytes(2_000_000).hex().encode() + b'"}'

    async def script(x: EngineExchange) -> None:
        if x.request.connection == kept:
            x.transport.pause_reading()
            x.reset()
            return
        await x.whole.wait()
        x.answer(200, b"{}")

    async def first(x: EngineExchange) -> None:
        await x.whole.wait()
        x.answer(200, b"{}")

    async with GatedEngine(first, early=True) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        assert (await client.ask(post())).status == 200
        kept = engine.requests[0].connection
        engine.script = script
        assert (await client.ask(post("/v1/completions", big))).status == 200
        assert engine.requests[-1].body == big
        first_try, again = (bytes(engine.received[request.connection]) for request in engine.requests[1:])
        sent = again[: len(again) - len(big)]
        assert sent in first_try
        page = await proxy.ended(ok=2)
        assert page.total("retries_total", reason="stale_connection") == 1


async def test_bytes_of_an_answer_end_the_right_to_send_again() -> None:
    """A reused connection that dies inside the head of the answer, or after an interim head, is an error."""
    for part in (b"H", b"HTTP/1.1 200 OK\r\ncontent-len", b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n"):

        async def script(x: EngineExchange, part: bytes = part) -> None:
            x.write(part)
            x.close()

        async with GatedEngine() as engine, running_proxy([engine, engine]) as proxy, proxy.client() as client:
            while len(kept := {request.connection for request in engine.requests}) < 2:  # of either replica
                assert (await client.ask(post())).status == 200
            answered = len(engine.requests)
            engine.script = script
            answer = await client.ask(post())
            assert (answer.status, answer.error_code) == (502, "engine_broke_off"), part
            assert engine.requests[-1].connection in kept
            assert len(engine.requests) == answered + 1
            page = await proxy.ended(ok=answered, protocol_error=1)
            assert page.total("retries_total") == 0


async def test_connections_opened_are_no_more_than_requests_at_once() -> None:
    """None is lost on the way: what is released is used again."""
    async with LeanEngine() as engine, running_proxy([engine.url]) as proxy:
        answers = await hammer(proxy.port, [post("/v1/completions", BODY)] * 400, 10)
        assert answers == {200: 400}
        assert engine.connections <= 10
        page = await proxy.ended(ok=400)
        assert page.total("upstream_connections_opened_total") == engine.connections


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


async def test_bytes_behind_an_answer_do_not_become_the_next_answer() -> None:
    """Sent in the same packet as the answer, or later into the rest."""
    poison = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison"

    async def together(x: EngineExchange) -> None:
        x.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}" + poison)

    async def chunked(x: EngineExchange) -> None:
        x.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + poison)

    async def later(x: EngineExchange) -> None:
        x.answer(200, b"{}")
        await asyncio.sleep(0.01)
        x.write(poison)

    for script in (together, chunked, later):
        async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
            for count in range(3):
                assert (await client.ask(post())).body == b"{}"
                await engine.exchanges[count].gone()
            await proxy.ended(ok=3)
