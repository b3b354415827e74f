"""What is tried again: a connect failure and an early rejection, elsewhere, with the same bytes. Nothing else is."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.gated_engine import Arrived, EngineExchange, GatedEngine, Script, answer_json, until
from tests.support.raw_client import post
from tests.support.running_proxy import running_proxy


def _body(number: int) -> bytes:
    """A long prompt; each another one, so that no replica is preferred for having seen it."""
    return json.dumps({"model": "m", "prompt": f"{number} " * 100_000, "stream": True}).encode()


def _asked(number: int) -> bytes:
    headers = (("x-custom", "1"), ("x-custom", "2"), ("authorization", "Bearer k"))
    return post("/v1/completions?x=1", _body(number), headers)


MANY = 300
"""So many requests in a row do not all go to one of two equal replicas."""


def _seen(request: Arrived) -> tuple[object, ...]:
    """All of a request but the host it went to."""
    fields = sorted((name.lower(), value) for name, value in request.headers if name.lower() != b"host")
    return request.method, request.target, fields, request.body


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("early", [False, True])
async def test_a_rejected_request_goes_elsewhere_as_it_was(status: int, early: bool) -> None:
    """The same head and the whole body, even where the rejecting engine has read a part of it."""
    reject = answer_json(status, {"error": {"message": "full"}}, [("retry-after", "9")])

    async def reject_at_once(x: EngineExchange) -> None:
        x.transport.pause_reading()
        await reject(x)

    script: Script = reject_at_once if early else reject
    async with (
        GatedEngine(script, early=early) as full,
        GatedEngine() as free,
        running_proxy([full, free], affinity={"entries": 0}) as proxy,
    ):
        asked = 0
        while asked < 3 or not full.requests:
            answer = await proxy.ask(_asked(asked))
            asked += 1
            assert asked < MANY
            assert (answer.status, answer.one("x-adaptive-gamma-replica")) == (200, "r1")
            assert answer.one("retry-after") is None
        assert [request.body for request in free.requests] == [_body(number) for number in range(asked)]
        if not early:
            ids = [request.one("x-request-id") for request in full.requests]
            again = [request for request in free.requests if request.one("x-request-id") in ids]
            assert [_seen(request) for request in again] == [_seen(request) for request in full.requests]
        page = await proxy.ended(ok=asked)
        assert page.requests("ok", replica="r1") == asked
        assert page.total("retries_total", reason=f"rejected_{status}") == len(full.requests)


async def test_each_replica_is_tried_once() -> None:
    """More attempts than replicas: none is asked twice for one request, and the last rejection passes."""
    reject = answer_json(503, {"error": {"message": "full"}}, [("retry-after", "9")])
    async with GatedEngine() as dead:
        url = dead.url
    async with (
        GatedEngine(reject) as one,
        GatedEngine(reject) as two,
        running_proxy([one, two, url], retry={"attempts": 10}, health={"interval_s": 3600, "down_after": 100}) as proxy,
    ):
        for count in (1, 2, 3):
            answer = await proxy.ask(post())
            assert (answer.status, answer.one("retry-after")) == (503, "9")
            assert len(one.requests) == len(two.requests) == count
        page = await proxy.ended(rejected=3)
        assert page.total("retries_total") == 6


@pytest.mark.parametrize("attempts", [0, 1, 2])
async def test_as_often_as_allowed(attempts: int) -> None:
    reject = answer_json(429, {"error": {"message": "full"}})
    async with (
        GatedEngine(reject) as one,
        GatedEngine(reject) as two,
        GatedEngine(reject) as three,
        running_proxy([one, two, three], retry={"attempts": attempts}) as proxy,
    ):
        assert (await proxy.ask(post())).status == 429
        assert sum(len(engine.requests) for engine in (one, two, three)) == 1 + attempts
        page = await proxy.ended(rejected=1)
        assert page.total("retries_total") == attempts


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 422, 425, 500, 501, 502, 504, 520])
async def test_other_answers_are_not_tried_again(status: int) -> None:
    body = {"error": {"message": "no", "type": "t", "param": "p", "code": status}}
    answer = answer_json(status, body, [("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"), ("x-why", "because")])
    async with GatedEngine(answer) as engine, running_proxy([engine, engine, engine]) as proxy:
        got = await proxy.ask(post())
        assert (got.status, json.loads(got.body)) == (status, body)
        assert got.one("retry-after") == "Wed, 21 Oct 2026 07:28:00 GMT"
        assert got.one("x-why") == "because"
        assert len(engine.requests) == 1
        page = await proxy.ended(**{"client_error" if status < 500 else "engine_error": 1})
        assert page.total("retries_total") == 0


@pytest.mark.parametrize("ending", ["die", "reset", "close"])
async def test_a_fresh_connection_that_took_the_request_is_not_tried_again(ending: str) -> None:
    async def end(x: EngineExchange) -> None:
        getattr(x, ending)()

    async with GatedEngine(end) as engine, running_proxy([engine, engine], retry={"attempts": 5}) as proxy:
        answer = await proxy.ask(post())
        assert (answer.status, answer.error_code) == (502, "engine_broke_off")
        assert len(engine.requests) == 1
        page = await proxy.ended(protocol_error=1)
        assert page.total("retries_total") == 0


async def test_a_fresh_connection_that_dies_inside_the_upload_is_not_tried_again() -> None:
    async def reset(x: EngineExchange) -> None:
        x.transport.pause_reading()
        x.reset()

    async with GatedEngine(reset, early=True) as engine, running_proxy([engine, engine]) as proxy:
        answer = await proxy.ask(post("/v1/completions", b'{"prompt":"' + b"p" * 20_000_000 + b'"}'))
        assert (answer.status, answer.error_code) == (502, "engine_broke_off")
        assert len(engine.requests) == 1
        await proxy.ended(protocol_error=1)


async def test_an_engine_that_does_not_read_runs_into_the_limit_of_the_first_byte() -> None:
    async def deaf(x: EngineExchange) -> None:
        x.transport.pause_reading()
        await proxy.counted("timeout")
        x.transport.resume_reading()

    limits = {"first_byte_timeout_s": 0.2}
    async with GatedEngine(deaf, early=True) as engine, running_proxy([engine, engine], limits=limits) as proxy:
        answer = await proxy.ask(post("/v1/completions", b'{"prompt":"' + b"p" * 20_000_000 + b'"}'))
        assert (answer.status, answer.error_code) == (504, "engine_timeout")
        assert len(engine.requests) == 1
        await engine.exchanges[0].gone()
        await proxy.ended(timeout=1)


async def test_an_early_answer_to_an_upload_passes_and_ends_its_connection() -> None:
    """An engine that answers 413 without reading on: what it has not read must not become the next request."""

    async def refuse(x: EngineExchange) -> None:
        x.transport.pause_reading()
        x.answer(413, b'{"error":{"message":"too long"}}')
        await asyncio.sleep(0.01)
        x.transport.resume_reading()

    big = b'{"prompt":"' + b"p" * 20_000_000 + b'"}'
    async with (
        GatedEngine(refuse, early=True) as engine,
        running_proxy([engine]) as proxy,
        proxy.client() as client,
    ):
        for count in (1, 2):
            answer = await client.ask(post("/v1/completions", big))
            assert (answer.status, answer.body) == (413, b'{"error":{"message":"too long"}}')
            await engine.exchanges[count - 1].gone()
        assert engine.requests[0].connection != engine.requests[1].connection
        await proxy.ended(client_error=2)


async def test_an_upload_that_was_answered_half_way_is_not_gone_on_with_and_not_followed() -> None:
    """The engine takes all that was sent before its answer ends: what is missing must not be filled by another
    request."""
    told = asyncio.Event()

    async def refuse(x: EngineExchange) -> None:
        if x.request is not engine.requests[0]:
            await x.whole.wait()
            x.answer(200, b"good")
            return
        x.transport.pause_reading()
        x.head(413, [("content-length", "2")])
        await told.wait()
        x.transport.resume_reading()
        before = -1
        while before != (before := len(engine.received[x.request.connection])):  # noqa: ASYNC110  # it has no event
            await asyncio.sleep(0.05)
        x.write(b"{}")

    async with (
        GatedEngine(refuse, early=True) as engine,
        running_proxy([engine]) as proxy,
        proxy.client() as client,
        proxy.client() as other,
    ):
        client.send(post("/v1/completions", b'{"prompt":"' + b"p" * 20_000_000 + b'"}'))
        head = await client.head()
        assert head.status == 413
        told.set()
        assert (await client.rest(head)).body == b"{}"
        assert not engine.exchanges[0].whole.is_set()
        assert (await other.ask(post())).body == b"good"
        assert engine.requests[0].connection != engine.requests[1].connection
        await engine.exchanges[0].gone()


async def test_a_rejection_without_end_is_let_go_when_another_replica_answers() -> None:
    async def endless(x: EngineExchange) -> None:
        x.head(503, [("retry-after", "1"), ("transfer-encoding", "chunked")])
        while not x.left.is_set():
            await x.room()
            x.chunk(b"no" * 1000)
            await asyncio.sleep(0.001)

    async with GatedEngine(endless) as full, GatedEngine() as free, running_proxy([full, free]) as proxy:
        asked = 0
        while not full.requests:
            assert (await proxy.ask(post())).status == 200
            asked += 1
            assert asked < MANY
        await full.exchanges[0].gone()
        assert len(free.requests) == asked
        await proxy.ended(ok=asked)


async def test_a_rejection_that_breaks_off_is_no_answer_where_another_can_give_one() -> None:
    async def broken(x: EngineExchange) -> None:
        x.head(429, [("content-length", "100")])
        x.write(b"{")
        x.reset()

    async with GatedEngine(broken) as full, GatedEngine() as free, running_proxy([full, free]) as proxy:
        asked = 0
        while not full.requests:
            assert (await proxy.ask(post())).status == 200
            asked += 1
            assert asked < MANY
        await proxy.ended(ok=asked)


async def test_the_kept_rejection_breaks_off_after_all() -> None:
    """It is all there was, and it is not whole: cut, not cleanly ended."""

    async def broken(x: EngineExchange) -> None:
        x.head(429, [("content-length", "100")])
        x.write(b"{")
        x.close()

    async with (
        GatedEngine(broken) as one,
        GatedEngine(broken) as two,
        running_proxy([one, two]) as proxy,
        proxy.client() as client,
    ):
        client.send(post())
        answer = await client.answer()
        assert not answer.complete or answer.status == 502
        assert len(one.requests) == len(two.requests) == 1
        await proxy.ended(protocol_error=1)


async def test_a_connect_failure_goes_elsewhere_with_the_whole_body() -> None:
    async with GatedEngine() as dead:
        url = dead.url
    async with GatedEngine() as engine, running_proxy([url, engine]) as proxy:
        for number in range(12):
            answer = await proxy.ask(_asked(number))
            assert (answer.status, answer.one("x-adaptive-gamma-replica")) == (200, "r1")
        assert [request.body for request in engine.requests] == [_body(number) for number in range(12)]
        page = await proxy.ended(ok=12)
        assert 1 <= page.total("retries_total", reason="connect_error") <= 3
        assert page.requests("ok", replica="r1") == 12


async def test_a_stale_connection_may_be_followed_by_a_connect_failure() -> None:
    """The engine went away for good while its connection rested: its requests go elsewhere."""
    async with GatedEngine() as one, GatedEngine() as two, running_proxy([one, two]) as proxy, proxy.client() as client:
        while not one.requests or not two.requests:
            assert (await client.ask(post())).status == 200

        async def close(x: EngineExchange) -> None:
            one.stop_listening()
            x.close()

        one.script = close
        before = len(one.requests)
        async with asyncio.timeout(10):
            while len(one.requests) == before:
                answer = await client.ask(post())
                assert (answer.status, answer.complete) == (200, True)
        assert answer.one("x-adaptive-gamma-replica") == "r1"
        await until(lambda: proxy.count() == proxy.count("ok") > 0, "all ok")


async def test_no_attempt_is_left_when_the_client_is_told() -> None:
    """Everything fails: one answer, an error object with Retry-After, and no request anywhere else."""
    async with GatedEngine() as dead:
        url = dead.url
    async with running_proxy([url, url], retry={"attempts": 1}) as proxy, proxy.client() as client:
        for count in (1, 2, 3):
            answer = await client.ask(post())
            assert (answer.status, answer.error_code, answer.one("retry-after")) == (503, "no_replica", "1")
            await proxy.ended(connect_error=count)
