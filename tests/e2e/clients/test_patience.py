"""Timeouts, retries and broken answers as the official clients see them: a scripted engine behind the real proxy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.clients.apis import ANSWER, Api, asking
from tests.support.gated_engine import EngineExchange, GatedEngine, Script, answer_json, until
from tests.support.running_proxy import running_proxy

SOON = [("retry-after-ms", "1")]
PATIENCE_S = 0.3


def in_turn(*scripts: Script) -> Script:
    """A script that answers each request by the next of ``scripts``, the last one for ever."""
    left = list(scripts)

    async def script(exchange: EngineExchange) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(exchange)

    return script


async def silent(exchange: EngineExchange) -> None:
    """Never answers."""


def stream_of(*events: Any, ending: Callable[[EngineExchange], None]) -> Script:
    """Server-sent events, then ``ending``."""

    async def script(exchange: EngineExchange) -> None:
        exchange.head(headers=[("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
        for event in events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            exchange.chunk(f"{name}data: {json.dumps(event)}\n\n".encode())
        ending(exchange)

    return script


# -- retries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_client_retries_what_the_engine_refused(api: Api, status: int) -> None:
    refusal = answer_json(status, {"error": {"message": "not now", "type": "x"}}, SOON)
    async with asking(api, in_turn(refusal, refusal, answer_json(200, ANSWER)), max_retries=2) as (client, engine, _):
        assert (await api.ask(client)).id == "1"
        counts = [request.one("x-stainless-retry-count") for request in engine.requests]
    assert counts == [b"0", b"1", b"2"]


@pytest.mark.parametrize("retries", [0, 1])
async def test_a_client_gives_up_after_the_retries_it_was_allowed(api: Api, retries: int) -> None:
    refusal = answer_json(429, {"error": {"message": "not now", "type": "x"}}, SOON)
    async with asking(api, refusal, max_retries=retries) as (client, engine, proxy):
        with pytest.raises(api.library.RateLimitError, match="not now") as caught:
            await api.ask(client)
        assert len(engine.requests) == 1 + retries
        await proxy.counted("rejected", 1 + retries)
    assert caught.value.response.headers["retry-after-ms"] == "1"


async def test_a_client_does_not_retry_a_bad_request(api: Api) -> None:
    bad = answer_json(400, {"error": {"message": "no", "type": "invalid_request_error"}})
    async with asking(api, bad, max_retries=2) as (client, engine, _):
        with pytest.raises(api.library.BadRequestError):
            await api.ask(client)
        assert len(engine.requests) == 1


async def test_another_replica_answers_and_the_client_never_hears_of_it(api: Api) -> None:
    async with (
        GatedEngine(answer_json(503, {"error": {"message": "full"}})) as full,
        GatedEngine(answer_json(200, ANSWER)) as free,
        running_proxy([full, free]) as proxy,
        api.client(f"http://127.0.0.1:{proxy.port}", max_retries=0) as client,
    ):
        for _ in range(4):
            assert (await api.ask(client)).id == "1"
        assert len(free.requests) == 4
        assert proxy.retries("rejected_503") == len(full.requests) > 0


async def test_no_engine_at_all(api: Api) -> None:
    async with asking(api, answer_json(), max_retries=0) as (client, engine, _):
        await engine.stop()
        with pytest.raises(api.library.InternalServerError, match="no replica could be reached") as caught:
            await api.ask(client)
    assert caught.value.status_code == 503
    assert caught.value.response.headers["retry-after"] == "1"


# -- timeouts ---------------------------------------------------------------------------------------------------------


async def test_a_client_out_of_patience_leaves_and_comes_again(api: Api) -> None:
    async with asking(api, silent, max_retries=1, timeout=PATIENCE_S) as (client, engine, proxy):
        with pytest.raises(api.library.APITimeoutError):
            await api.ask(client)
        for number in (1, 2):
            await (await engine.arrived(number)).gone()
        await proxy.counted("client_closed", 2)
        assert proxy.in_flight == 0


async def test_a_client_out_of_patience_in_the_middle_of_a_stream(api: Api) -> None:
    script = stream_of(*api.begun, ending=lambda exchange: None)
    async with asking(api, script, max_retries=2, timeout=2 * PATIENCE_S) as (client, engine, proxy):
        stream = await api.ask(client, stream=True)
        assert [await anext(stream) for _ in api.begun]
        with pytest.raises(api.out_of_patience):
            await anext(stream)
        await (await engine.arrived()).gone()
        await proxy.counted("client_closed")
        assert len(engine.requests) == 1


async def test_an_engine_that_is_silent_too_long(api: Api) -> None:
    limits = {"first_byte_timeout_s": PATIENCE_S}
    async with asking(api, silent, max_retries=0, limits=limits) as (client, engine, proxy):
        with pytest.raises(api.library.APIStatusError) as caught:
            await api.ask(client)
        await (await engine.arrived()).gone()
        assert proxy.in_flight == 0
    assert isinstance(caught.value, api.library.InternalServerError)
    assert caught.value.status_code == 504
    assert "engine_timeout" in str(caught.value.body)


# -- broken answers ---------------------------------------------------------------------------------------------------


async def test_a_stream_that_breaks_off_does_not_look_complete(api: Api) -> None:
    async with asking(api, stream_of(*api.begun, ending=EngineExchange.die), max_retries=2) as (client, engine, proxy):
        with pytest.raises(api.broke_off):
            async for _ in await api.ask(client, stream=True):
                pass
        assert len(engine.requests) == 1
        await proxy.counted("protocol_error")


async def test_an_answer_that_breaks_off_is_asked_again_by_the_client(api: Api) -> None:
    async def half(exchange: EngineExchange) -> None:
        exchange.head(headers=[("content-type", "application/json"), ("content-length", "1000")])
        exchange.write(b'{"id": "1", ')
        exchange.die()

    async with asking(api, in_turn(half, answer_json(200, ANSWER)), max_retries=1) as (client, engine, _):
        assert (await api.ask(client)).id == "1"
        assert len(engine.requests) == 2


TOLD: dict[str, dict[str, Any]] = {
    "openai": {"error": {"message": "the sampler failed", "type": "server_error", "code": 500}},
    "anthropic": {"type": "error", "error": {"message": "the sampler failed", "type": "api_error"}},
}


async def test_an_error_told_in_the_middle_of_a_stream_reaches_the_client(api: Api) -> None:
    script = stream_of(*api.begun, TOLD[api.library.__name__], ending=EngineExchange.end)
    async with asking(api, script, max_retries=2) as (client, engine, _):
        with pytest.raises(api.library.APIError, match="the sampler failed"):
            async for _ in await api.ask(client, stream=True):
                pass
        assert len(engine.requests) == 1


async def test_a_cancelled_task_leaves_the_engine(api: Api) -> None:
    async with asking(api, silent, max_retries=2) as (client, engine, proxy):
        task = asyncio.ensure_future(api.ask(client))
        exchange = await engine.arrived()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await exchange.gone()
        await proxy.counted("client_closed")
        await until(lambda: proxy.in_flight == 0, "the in-flight count back at 0")
        assert len(engine.requests) == 1
