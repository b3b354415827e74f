from __future__ import annotations

import asyncio
import time

import pytest

from adaptive_gamma.bench.sweep.asking import Asked, RequestForm
from adaptive_gamma.bench.sweep.dataset import Prompt
from adaptive_gamma.bench.sweep.http import Address
from adaptive_gamma.bench.sweep.load import GaugeMeans, LoadResult, OpenRequests, run_load
from adaptive_gamma.bench.sweep.measured import load_seen, quantile
from adaptive_gamma.engines import EngineReading
from adaptive_gamma.errors import ConnectError
from tests.sweep.talking_engine import Exchange, TalkingEngine

FORM = RequestForm("chat", "m", output_tokens=3, fixed_length=True)


def work(count: int) -> list[Asked]:
    return [Asked(Prompt("prose", text=f"prompt {number}")) for number in range(count)]


async def load(engine: TalkingEngine, count: int, concurrency: int, timeout_s: float = 5.0) -> LoadResult:
    return await run_load(
        Address.of(engine.url), FORM, work(count), concurrency, clock=time.perf_counter, timeout_s=timeout_s
    )


async def test_so_many_are_open_and_no_more() -> None:
    gate = asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        if exchange.engine.open_now == 4:
            gate.set()
        await gate.wait()
        await exchange.whole()

    async with TalkingEngine(wait) as engine:
        result = await load(engine, 12, 4)
    assert engine.most_open == 4
    assert engine.connections == 4
    assert len(result.whole) == 12
    assert result.mean_open is not None
    assert 1 <= result.mean_open <= 4


async def test_each_prompt_is_asked_once() -> None:
    async with TalkingEngine() as engine:
        await load(engine, 9, 4)
    assert sorted(request.body["messages"][0]["content"] for request in engine.requests) == sorted(
        f"prompt {number}" for number in range(9)
    )


async def test_failures_are_outcomes_among_the_others() -> None:
    async def every_third_fails(exchange: Exchange) -> None:
        number = int(exchange.body["messages"][0]["content"].split()[1])
        if number % 3 == 0:
            await exchange.refuse(500, {"error": "broken"})
        elif number % 3 == 1:
            await asyncio.Event().wait()
        else:
            await exchange.whole()

    async with TalkingEngine(every_third_fails) as engine:
        result = await load(engine, 9, 3, timeout_s=0.2)
    assert (
        sorted(str(outcome.failure) for outcome in result.outcomes)
        == ["None"] * 3 + ["status_500"] * 3 + ["timeout"] * 3
    )
    assert len(result.whole) == 3


async def test_an_engine_that_is_gone_is_no_outcome() -> None:
    async with TalkingEngine() as engine:
        pass
    with pytest.raises(ConnectError):
        await load(engine, 4, 2)


async def test_an_engine_that_goes_under_way_leaves_outcomes() -> None:
    async def last_one(exchange: Exchange) -> None:
        await exchange.whole()
        exchange.engine._server.close()  # no new connections
        exchange.writer.close()

    async with TalkingEngine(last_one) as engine:
        result = await load(engine, 3, 1)
    assert [outcome.failure for outcome in result.outcomes] == [None, "connect", "connect"]


async def test_the_gauges_are_looked_at_while_it_runs() -> None:
    looks = asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        await looks.wait()
        await exchange.whole()

    async def look() -> EngineReading:
        looks.set()
        return EngineReading(running=3, waiting=1)

    async with TalkingEngine(wait) as engine:
        result = await run_load(
            Address.of(engine.url), FORM, work(2), 2, clock=time.perf_counter, timeout_s=5.0, look=look
        )
    assert (result.gauges.running, result.gauges.waiting) == (3, 1)


async def test_a_load_that_is_cancelled_leaves_nothing_open() -> None:
    async def wait(exchange: Exchange) -> None:
        await exchange.head()
        while True:
            await exchange.event({})
            await asyncio.sleep(0.01)

    async with TalkingEngine(wait) as engine:
        task = asyncio.create_task(load(engine, 8, 4))
        async with asyncio.timeout(5):
            while engine.open_now < 4:  # noqa: ASYNC110  # it has no event
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while engine.open_now:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


def test_the_mean_is_over_time() -> None:
    open_requests = OpenRequests()
    assert open_requests.mean is None
    for at, by in ((0.0, 1), (1.0, 1), (3.0, -1), (4.0, -1)):
        open_requests.change(by, at)
    assert open_requests.mean == pytest.approx((1 * 1 + 2 * 2 + 1 * 1) / 4)


@pytest.mark.parametrize(
    ("gauges", "seen"),
    [
        (GaugeMeans(), (6.0, "client")),
        (GaugeMeans(2, 4.0, 2.0), (6.0, "client")),
        (GaugeMeans(5, 5.9, 0.1), (6.0, "client")),
        (GaugeMeans(5, 4.0, 2.0), (4.0, "engine")),
        (GaugeMeans(5, 0.0, 0.0), (6.0, "client")),
    ],
)
def test_where_requests_wait_the_engines_batch_is_the_load(gauges: GaugeMeans, seen: tuple[float, str]) -> None:
    assert load_seen(LoadResult((), 1.0, 6.0, gauges)) == seen


def test_quantiles_lie_between_values() -> None:
    assert quantile([], 0.5) is None
    assert quantile([3.0], 0.99) == 3.0
    assert quantile([4.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([1.0, 2.0], 0.25) == 1.25
