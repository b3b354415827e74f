"""Engines that break: never a clean end, never a retry of what an engine may have taken."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.gated_engine import EngineExchange, GatedEngine, answer_json
from tests.support.raw_client import post
from tests.support.running_proxy import running_proxy


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


@pytest.mark.parametrize(
    "answer",
    [
        b"what is this\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 999 X\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000,
    ],
)
async def test_answers_that_are_not_http(answer: bytes) -> None:
    async def script(x: EngineExchange) -> None:
        x.write(answer)

    async with GatedEngine(script) as engine, running_proxy([engine, engine]) as proxy:
        got = await proxy.ask(post())
        assert (got.status, got.error_code) == (502, "engine_broke_off")
        assert proxy.count("protocol_error") == 1
        assert len(engine.requests) == 1


async def test_silence_before_the_head() -> None:
    limits = {"first_byte_timeout_s": 0.1}
    async with GatedEngine(_silent) as engine, running_proxy([engine, engine], limits=limits) as proxy:
        got = await proxy.ask(post())
        assert (got.status, got.error_code) == (504, "engine_timeout")
        assert proxy.count("timeout") == 1
        await (await engine.arrived()).gone()
        assert len(engine.requests) == 1


async def test_silence_in_the_middle() -> None:
    limits = {"first_byte_timeout_s": 60, "idle_timeout_s": 0.1}
    async with (
        GatedEngine(_silent) as engine,
        running_proxy([engine], limits=limits) as proxy,
        proxy.client() as client,
    ):
        client.send(post())
        x = await engine.arrived()
        x.head()
        x.chunk(b"one")
        answer = await client.answer()
        assert (answer.chunks[0], answer.complete) == (b"one", False)
        await x.gone()
        await proxy.counted("timeout")


async def test_a_stream_outlives_the_silence_limit_while_it_speaks() -> None:
    async def speak(x: EngineExchange) -> None:
        x.head()
        for _ in range(20):
            x.chunk(b"x")
            await asyncio.sleep(0.02)
        x.end()

    async with GatedEngine(speak) as engine, running_proxy([engine], limits={"idle_timeout_s": 0.2}) as proxy:
        assert (await proxy.ask(post())).body == b"x" * 20


async def test_last_rejection_passes_one_to_one() -> None:
    reject = answer_json(503, {"error": {"message": "full"}}, [("retry-after", "9")])
    async with GatedEngine(reject) as one, GatedEngine(reject) as two, running_proxy([one, two]) as proxy:
        answer = await proxy.ask(post())
        assert (answer.status, answer.one("retry-after")) == (503, "9")
        assert b"full" in answer.body
        assert len(one.requests) == len(two.requests) == 1
        assert proxy.count("rejected") == 1
    async with GatedEngine(reject) as one, running_proxy([one]) as proxy:
        answer = await proxy.ask(post())
        assert (answer.status, answer.one("retry-after"), answer.complete) == (503, "9", True)
        assert len(one.requests) == 1


async def test_rejection_passes_when_the_other_replica_cannot_be_reached() -> None:
    async with GatedEngine() as dead:
        url = dead.url
    reject = answer_json(429, {"error": {"message": "full"}})
    async with GatedEngine(reject) as full, running_proxy([full, url], retry={"attempts": 5}) as proxy:
        for _ in range(6):
            answer = await proxy.ask(post())
            assert (answer.status, answer.one("x-adaptive-gamma-replica")) == (429, "r0")
        assert proxy.count("rejected", "r0") == 6


async def test_nothing_reachable() -> None:
    async with GatedEngine() as dead:
        url = dead.url
    async with running_proxy([url, url, url]) as proxy:
        for _ in range(6):
            answer = await proxy.ask(post())
            assert (answer.status, answer.error_code) == (503, "no_replica")
            assert answer.one("retry-after") == "1"
        assert not any(row["healthy"] for row in (await proxy.status()).values())
        assert (await proxy.admin("/readyz")).status == 503
        assert proxy.count("connect_error") == 6
