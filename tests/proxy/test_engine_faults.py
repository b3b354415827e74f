"""Engines that break: never a clean end, never a retry of what an engine may have taken."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.support.gated_engine import EngineExchange, GatedEngine, answer_json, until
from tests.support.raw_client import Answer, post
from tests.support.running_proxy import running_proxy


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


@pytest.mark.parametrize("how", ["close", "die"])
@pytest.mark.parametrize("framing", ["transfer-encoding: chunked", "content-length: 1000"])
async def test_death_in_the_middle_cuts_the_client(how: str, framing: str, caplog: pytest.LogCaptureFixture) -> None:
    name, value = framing.split(": ")
    async with GatedEngine(_silent) as engine, running_proxy([engine, engine]) as proxy, proxy.client() as client:
        client.send(post())
        x = await engine.arrived()
        x.head(200, [(name, value)])
        part = b"data: half an ans"
        if value == "chunked":
            x.chunk(part)
        else:
            x.write(part)
        head = await client.head()
        await until(lambda: proxy.plane.fleet.states[0].in_flight + proxy.plane.fleet.states[1].in_flight == 1, "open")
        await asyncio.sleep(0)
        if value == "chunked":
            assert await client.chunk() == part
        getattr(x, how)()
        answer = await client.rest(head)
        assert not answer.complete
        assert b"[DONE]" not in answer.body
        await proxy.counted("protocol_error")
        assert len(engine.requests) == 1
    records = [r for r in caplog.records if r.name == "adaptive_gamma.proxy" and r.levelno >= logging.WARNING]
    assert len(records) == 1
    assert "the client's connection is cut" in records[0].getMessage()
    assert all(record.exc_info is None for record in caplog.records)


async def test_death_reaches_http_1_0_clients_as_a_reset() -> None:
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post().replace(b"HTTP/1.1", b"HTTP/1.0"))
        x = await engine.arrived()
        x.head()
        x.chunk(b"one")
        head = await client.head()
        assert head.one("transfer-encoding") is None
        assert await client.reader.readexactly(3) == b"one"
        x.die()
        with pytest.raises(ConnectionResetError):
            await client.reader.read()


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


async def test_a_fresh_connection_that_took_the_request_is_not_retried() -> None:
    async def die(x: EngineExchange) -> None:
        x.die()

    async with GatedEngine(die) as engine, running_proxy([engine, engine]) as proxy:
        got = await proxy.ask(post())
        assert (got.status, got.error_code) == (502, "engine_broke_off")
        assert len(engine.requests) == 1
        assert proxy.retries("stale_connection") == proxy.retries("connect_error") == 0


async def test_a_reused_connection_closed_by_the_engine_meanwhile() -> None:
    """The keep-alive race: the engine closes as the request arrives, and the request goes out once more."""

    async def script(x: EngineExchange) -> None:
        if len(engine.requests) == 2:
            x.close()
        else:
            x.answer(200, b"{}")

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        assert (await client.ask(post())).status == 200
        body = b'{"prompt":"the same bytes"}'
        assert (await client.ask(post("/v1/completions", body))).status == 200
        assert [request.body for request in engine.requests[1:]] == [body, body]
        assert engine.requests[1].connection != engine.requests[2].connection
        assert proxy.retries("stale_connection") == 1
        assert proxy.count("ok") == 2


async def test_a_reused_connection_is_sent_again_only_once() -> None:
    async def script(x: EngineExchange) -> None:
        if len(engine.requests) == 1:
            x.answer(200, b"{}")
        else:
            x.close()

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        await client.ask(post())
        assert (await client.ask(post())).status == 502
        assert len(engine.requests) == 3


async def test_unsolicited_bytes_on_an_idle_connection() -> None:
    async def script(x: EngineExchange) -> None:
        x.answer(200, b"{}")
        if len(engine.requests) == 1:
            x.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison")

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        await client.ask(post())
        x = await engine.arrived()
        await x.gone()
        assert (await client.ask(post())).body == b"{}"


async def test_idle_connections_close_before_the_engine_would() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        proxy.plane.upstreams["r0"]._idle_s = 0.05
        await proxy.ask(post())
        await (await engine.arrived()).gone()
        assert proxy.plane.upstreams["r0"].idle_connections == 0


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


async def test_in_band_errors_pass() -> None:
    event = b'data: {"error":{"message":"EngineCore died","code":500}}\n\n'

    async def script(x: EngineExchange) -> None:
        x.head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
        x.chunk(event)
        x.end()

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post())
        assert (answer.body, answer.complete) == (event, True)


async def test_connect_failure_goes_to_the_other_replica_with_the_whole_body() -> None:
    async with GatedEngine() as dead:
        url = dead.url
    async with GatedEngine() as engine, running_proxy([url, engine]) as proxy:
        body = b'{"model":"m","prompt":"' + b"p" * 100_000 + b'"}'
        answers: list[Answer] = []
        while len(answers) < 8 or not proxy.retries("connect_error"):
            answers.append(await proxy.ask(post("/v1/completions", body)))
        assert {(a.status, a.one("x-adaptive-gamma-replica")) for a in answers} == {(200, "r1")}
        assert {request.body for request in engine.requests} == {body}
        assert proxy.count("ok", "r1") == proxy.count() == len(answers)


@pytest.mark.parametrize("status", [429, 503])
async def test_rejection_goes_to_another_replica(status: int) -> None:
    reject = answer_json(status, {"error": {"message": "full"}}, [("retry-after", "9")])
    async with GatedEngine(reject) as full, GatedEngine() as free, running_proxy([full, free]) as proxy:
        asked = 0
        while asked < 6 or not full.requests:
            answer = await proxy.ask(post())
            asked += 1
            assert (answer.status, answer.one("x-adaptive-gamma-replica")) == (200, "r1")
        assert proxy.retries(f"rejected_{status}") == len(full.requests)
        assert len(free.requests) == asked


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


async def test_no_retry_when_none_is_allowed() -> None:
    async with (
        GatedEngine(answer_json(503)) as one,
        GatedEngine(answer_json(503)) as two,
        running_proxy([one, two], retry={"attempts": 0}) as proxy,
    ):
        assert (await proxy.ask(post())).status == 503
        assert len(one.requests) + len(two.requests) == 1


async def test_nothing_reachable() -> None:
    async with GatedEngine() as dead:
        url = dead.url
    async with running_proxy([url, url, url]) as proxy:
        for _ in range(6):
            answer = await proxy.ask(post())
            assert (answer.status, answer.error_code) == (503, "no_replica")
            assert answer.one("retry-after") == "1"
        await until(lambda: not any(state.healthy for state in proxy.plane.fleet.states), "all down")
        assert (await proxy.admin("/readyz")).status == 503
        assert proxy.count("connect_error") == 6


async def test_replicas_marked_down_are_tried_all_the_same() -> None:
    async with GatedEngine() as dead:
        url = dead.url
    async with GatedEngine() as engine, running_proxy([url, url, url, engine], retry={"attempts": 0}) as proxy:
        await until(lambda: proxy.plane.fleet.replicas[0].scrape_error is not None, "the first scrape")
        for _ in range(4):
            for state in proxy.plane.fleet.states:
                while state.healthy:
                    proxy.plane.fleet.note_connect_failure(state.name)
            answer = await proxy.ask(post())
            assert (answer.status, answer.one("x-adaptive-gamma-replica")) == (200, "r3")
            assert answer.one("x-adaptive-gamma-reason") == "fallback"
