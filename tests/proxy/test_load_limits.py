"""Caps on what a replica gets at once, and the queue in front of them; both are off by default."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.gated_engine import EngineExchange, GatedEngine, until
from tests.support.raw_client import Answer, RawClient, post
from tests.support.running_proxy import RunningProxy, running_proxy


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


def _queued(proxy: RunningProxy) -> int:
    return len(proxy.plane.waiting)


async def test_a_full_replica_gets_nothing_more() -> None:
    async with (
        GatedEngine(_silent) as one,
        GatedEngine(_silent) as two,
        running_proxy([one, two], load={"max_in_flight": 2}) as proxy,
    ):
        asked = [asyncio.create_task(proxy.ask(post())) for _ in range(4)]
        await until(lambda: len(one.exchanges) + len(two.exchanges) == 4, "four requests at the engines")
        assert (len(one.exchanges), len(two.exchanges)) == (2, 2)
        answer = await proxy.ask(post())
        assert (answer.status, answer.error_code, answer.one("retry-after")) == (503, "at_capacity", "1")
        for x in (*one.exchanges, *two.exchanges):
            x.answer(200, b"ok")
        assert [(await task).status for task in asked] == [200] * 4
        assert (await _answered(proxy, one, two)).status == 200
        await proxy.ended(ok=5, rejected=1)


async def _answered(proxy: RunningProxy, *engines: GatedEngine) -> Answer:
    async def script(x: EngineExchange) -> None:
        x.answer(200, b"ok")

    for engine in engines:
        engine.script = script
    return await proxy.ask(post())


async def test_the_queue_is_served_in_order() -> None:
    async with (
        GatedEngine(_silent) as engine,
        running_proxy([engine], load={"max_in_flight": 1, "queue": 2}) as proxy,
        proxy.client() as first,
        proxy.client() as second,
        proxy.client() as third,
    ):
        first.send(post(body={"prompt": "first"}))
        await engine.arrived()
        second.send(post(body={"prompt": "second"}))
        await until(lambda: _queued(proxy) == 1, "the second waits")
        third.send(post(body={"prompt": "third"}))
        await until(lambda: _queued(proxy) == 2, "the third waits")
        assert (await proxy.ask(post())).status == 503
        page = await proxy.metrics()
        assert page.total("queued") == 2
        for number, client in enumerate((first, second, third)):
            x = await engine.arrived(number + 1)
            assert x.request.body.endswith([b'"first"}', b'"second"}', b'"third"}'][number])
            assert proxy.in_flight == 1
            x.answer(200, b"%d" % number)
            assert (await client.answer()).body == b"%d" % number
        await proxy.ended(ok=3, rejected=1)
        assert (await proxy.metrics()).total("queued") == 0


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_leaving_the_queue(how: str) -> None:
    async with (
        GatedEngine(_silent) as engine,
        running_proxy([engine], load={"max_in_flight": 1, "queue": 9}) as proxy,
        proxy.client() as first,
        proxy.client() as last,
    ):
        first.send(post(body={"prompt": "first"}))
        x = await engine.arrived()
        async with proxy.client() as leaving:
            leaving.send(post(body={"prompt": "leaving"}))
            await until(lambda: _queued(proxy) == 1, "it waits")
            last.send(post(body={"prompt": "last"}))
            await until(lambda: _queued(proxy) == 2, "both wait")
            leaving.leave(how)
            await until(lambda: _queued(proxy) == 1, "it waits no more")
        x.answer(200, b"ok")
        x = await engine.arrived(2)
        assert b"last" in x.request.body
        x.answer(200, b"ok")
        assert (await last.answer()).status == 200
        await proxy.ended(ok=2, client_closed=1)


async def test_waiting_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adaptive_gamma.proxy.waiting._LOOK_AGAIN_S", 0.01)
    async with (
        GatedEngine(_silent) as engine,
        running_proxy([engine], load={"max_in_flight": 1, "queue": 9, "queue_timeout_s": 0.02}) as proxy,
        proxy.client() as first,
    ):
        first.send(post())
        x = await engine.arrived()
        answer = await proxy.ask(post())
        assert (answer.status, answer.error_code, answer.one("retry-after")) == (503, "at_capacity", "1")
        x.answer(200, b"ok")
        assert (await first.answer()).status == 200
        await proxy.ended(ok=1, rejected=1)


async def test_a_replica_that_dies_makes_room() -> None:
    async with (
        GatedEngine(_silent) as engine,
        running_proxy([engine], load={"max_in_flight": 1, "queue": 9}) as proxy,
        proxy.client() as first,
        proxy.client() as second,
    ):
        first.send(post())
        x = await engine.arrived()
        second.send(post())
        await until(lambda: _queued(proxy) == 1, "it waits")
        x.die()
        assert (await first.answer()).status == 502
        (await engine.arrived(2)).answer(200, b"ok")
        assert (await second.answer()).status == 200
        await proxy.ended(ok=1, protocol_error=1)


async def test_a_cap_of_its_own() -> None:
    async with GatedEngine(_silent) as small, GatedEngine(_silent) as large:
        replicas = [
            {"name": "small", "url": small.url, "gamma": 0, "max_in_flight": 1},
            {"name": "large", "url": large.url, "gamma": 0},
        ]
        async with running_proxy([], replicas=replicas, load={"max_in_flight": 3}) as proxy:
            asked = [asyncio.create_task(proxy.ask(post())) for _ in range(4)]
            await until(lambda: len(small.exchanges) + len(large.exchanges) == 4, "four requests at the engines")
            assert (len(small.exchanges), len(large.exchanges)) == (1, 3)
            for x in (*small.exchanges, *large.exchanges):
                x.answer(200, b"ok")
            assert [(await task).status for task in asked] == [200] * 4


async def _rejected_while_the_other_is_full(
    one: GatedEngine, two: GatedEngine, proxy: RunningProxy, first: RawClient, asked: RawClient
) -> tuple[EngineExchange, EngineExchange]:
    """The first request works on one engine; the second is rejected by the other and waits for the first's end."""
    first.send(post(body={"prompt": "first"}))
    await until(lambda: bool(one.exchanges or two.exchanges), "the first is at an engine")
    full, other = (one, two) if one.exchanges else (two, one)
    asked.send(post(body={"prompt": "rejected"}))
    rejected = await other.arrived()
    rejected.answer(503, b"busy", [("retry-after", "9")])
    await until(lambda: _queued(proxy) == 1, "the rejected one waits")
    return full.exchanges[0], rejected


async def test_a_rejected_request_waits_for_room_elsewhere() -> None:
    async with (
        GatedEngine(_silent) as one,
        GatedEngine(_silent) as two,
        running_proxy([one, two], load={"max_in_flight": 1, "queue": 1}) as proxy,
        proxy.client() as first,
        proxy.client() as asked,
    ):
        working, _ = await _rejected_while_the_other_is_full(one, two, proxy, first, asked)
        working.answer(200, b"first")
        assert (await first.answer()).body == b"first"
        full = one if working in one.exchanges else two
        again = await full.arrived(2)
        assert b"rejected" in again.request.body
        again.answer(200, b"second")
        assert (await asked.answer()).body == b"second"
        page = await proxy.ended(ok=2)
        assert page.total("retries_total", reason="rejected_503") == 1


async def test_a_rejection_passes_when_no_room_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adaptive_gamma.proxy.waiting._LOOK_AGAIN_S", 0.01)
    async with (
        GatedEngine(_silent) as one,
        GatedEngine(_silent) as two,
        running_proxy([one, two], load={"max_in_flight": 1, "queue": 1, "queue_timeout_s": 0.3}) as proxy,
        proxy.client() as first,
        proxy.client() as asked,
    ):
        working, _ = await _rejected_while_the_other_is_full(one, two, proxy, first, asked)
        answer = await asked.answer()
        assert (answer.status, answer.body, answer.one("retry-after")) == (503, b"busy", "9")
        working.answer(200, b"first")
        assert (await first.answer()).status == 200
        await proxy.ended(ok=1, rejected=1)


async def test_leaving_while_a_rejection_is_kept() -> None:
    async with (
        GatedEngine(_silent) as one,
        GatedEngine(_silent) as two,
        running_proxy([one, two], load={"max_in_flight": 1, "queue": 1}) as proxy,
        proxy.client() as first,
    ):
        async with proxy.client() as asked:
            working, _ = await _rejected_while_the_other_is_full(one, two, proxy, first, asked)
            asked.leave("reset")
            await until(lambda: _queued(proxy) == 0, "it waits no more")
        working.answer(200, b"first")
        assert (await first.answer()).status == 200
        await proxy.ended(ok=1, client_closed=1)


async def test_those_that_tried_different_replicas_do_not_hold_each_other_up() -> None:
    """Each waits for the replica that the other one was rejected by."""
    async with (
        GatedEngine(_silent) as one,
        GatedEngine(_silent) as two,
        running_proxy([one, two], load={"max_in_flight": 1, "queue": 2}) as proxy,
        proxy.client() as first,
        proxy.client() as second,
        proxy.client() as third,
    ):
        working, _ = await _rejected_while_the_other_is_full(one, two, proxy, first, second)
        full, other = (one, two) if working in one.exchanges else (two, one)
        third.send(post(body={"prompt": "third"}))
        x = await other.arrived(2)
        assert b"third" in x.request.body
        async with proxy.client() as fourth:
            fourth.send(post(body={"prompt": "fourth"}))
            await until(lambda: _queued(proxy) == 2, "both wait")
            x.answer(200, b"third")
            assert (await third.answer()).body == b"third"
            (await other.arrived(3)).answer(200, b"fourth")
            assert (await fourth.answer()).body == b"fourth"
        assert _queued(proxy) == 1
        working.answer(200, b"first")
        assert (await first.answer()).body == b"first"
        (await full.arrived(2)).answer(200, b"second")
        assert (await second.answer()).body == b"second"
        await proxy.ended(ok=4)
