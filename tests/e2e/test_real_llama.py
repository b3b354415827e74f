"""The whole job on two real llama.cpp servers: read acceptance, route by class and load, free the engine of leavers."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.llama_pair import (
    CODE,
    POLICY,
    PROSE,
    Pair,
    ask,
    client_of,
    llama_pair,
    long_streams,
    no_slot_in_use,
    replicas_of,
)
from tests.support.running import Serve, eventually, running_serve

CONDITIONAL = (0.9, 0.8 / 0.9, 0.7 / 0.8, 0.6 / 0.7)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with llama_pair(tmp_path_factory.mktemp("models")) as pair:
        yield pair


@pytest.fixture
async def serve(engines: Pair, tmp_path: Path) -> AsyncIterator[Serve]:
    async with running_serve(tmp_path, policy=POLICY, replicas=replicas_of(engines)) as running:
        yield running


async def test_acceptance_read_through_the_scraper_is_the_one_set(serve: Serve) -> None:
    async with client_of(serve.url) as client:
        for round_ in range(12):
            await asyncio.gather(*(ask(client, f"{CODE}\n# variant {round_}.{i}", 96) for i in range(4)))

    async def acceptance() -> list[float] | None:
        found: list[float] | None = (await serve.replica("spec-0"))["acceptance"]
        return found

    read = await eventually(acceptance)
    assert len(read) == 4
    assert [abs(a - b) < 0.08 for a, b in zip(read, CONDITIONAL, strict=True)] == [True] * 4, read
    row = await serve.replica("spec-0")
    assert (row["gamma"], row["pool"]) == (4, "speculative")
    assert (await serve.replica("plain-0"))["acceptance"] is None


async def test_acceptance_is_learned_by_class(serve: Serve) -> None:
    """llama.cpp reports totals with each answer, and positions in its counters when a request ends."""
    async with client_of(serve.url) as client:
        for round_ in range(20):
            await asyncio.gather(
                *(ask(client, f"{prompt}\n{round_}.{i}", 96) for prompt in (CODE, PROSE) for i in (0, 1))
            )

    async def learned() -> dict[str, Any] | None:
        page = (await serve.admin.get("/policy")).json()
        classes: dict[str, Any] = page["learned"]["drafters"]["autoregressive"]
        told = [classes[name]["trials"] for name in ("structured", "chat")]
        return classes if all(trials and trials[0] >= 300 for trials in told) else None

    classes = await eventually(learned)
    compared = 0
    for name in ("structured", "chat"):
        learned_rates, trials = classes[name]["learned"]["conditional"], classes[name]["trials"]
        print(f"{name}: learned {learned_rates[:4]}, set {[round(rate, 4) for rate in CONDITIONAL]}, trials {trials}")
        for rate, wanted, tried in zip(learned_rates, CONDITIONAL, trials, strict=False):
            if tried >= 300:
                compared += 1
                # Draws at the rate set are this far off once in 2,000 times.
                chance = 3.5 * math.sqrt(wanted * (1 - wanted) / tried)
                assert abs(rate - wanted) <= max(0.05, chance)
    assert compared >= 2


async def test_at_concurrency_one_code_goes_to_the_speculative_replica(serve: Serve) -> None:
    async with client_of(serve.url) as client:
        for i in range(5):
            headers = await ask(client, f"{CODE} # {i}")
            assert headers["x-adaptive-gamma-class"] == "structured"
            assert headers["x-adaptive-gamma-replica"] == "spec-0"
            assert headers["x-adaptive-gamma-gamma"] == "4"


async def test_past_the_crossing_prose_goes_to_the_plain_replica(serve: Serve, engines: Pair) -> None:
    async with client_of(serve.url) as client:
        assert (await ask(client, PROSE))["x-adaptive-gamma-replica"] == "spec-0"
        async with long_streams(engines[0].url, 6):

            async def loaded() -> bool:
                return ((await serve.replica("spec-0"))["running"] or 0) >= 5

            await eventually(loaded)
            headers = await ask(client, PROSE + " Please.")
    assert headers["x-adaptive-gamma-class"] == "chat"
    assert headers["x-adaptive-gamma-replica"] == "plain-0"
    assert headers["x-adaptive-gamma-reason"] == "high_load"


async def test_a_client_that_leaves_is_gone_from_the_engine_within_half_a_second(serve: Serve, engines: Pair) -> None:
    gone_after = await _leave(serve, engines, stream=True, gone=lambda: no_slot_in_use(engines))
    assert gone_after < 0.5, f"the engine went on for {gone_after:.2f} s"


async def test_a_client_that_leaves_before_the_headers_frees_the_replica(serve: Serve, engines: Pair) -> None:
    """The engine's connection is closed as fast; that llama.cpp computes on without one is its own affair.

    Asked directly, this build goes on with a non-streamed answer to its end after its client has closed.
    """

    async def released() -> bool:
        return all(row["in_flight"] == 0 for row in (await serve.status())["replicas"])

    gone_after = await _leave(serve, engines, stream=False, gone=released)
    assert gone_after < 0.5, f"the request stayed open for {gone_after:.2f} s"
    assert 'outcome="client_closed"' in (await serve.admin.get("/metrics")).text
    await eventually(lambda: no_slot_in_use(engines), within_s=30.0)


async def _leave(
    serve: Serve,
    engines: Pair,
    *,
    stream: bool,
    gone: Callable[[], Awaitable[bool]],
) -> float:
    """Ask, leave once the engine works on it; the seconds until ``gone``."""
    async with client_of(serve.url) as client:
        task = asyncio.ensure_future(_consume(client, stream))

        async def busy() -> bool:
            return not await no_slot_in_use(engines)

        await eventually(busy, every_s=0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        left = time.monotonic()
        await eventually(gone, within_s=5.0, every_s=0.02)
        return time.monotonic() - left


async def _consume(client: openai.AsyncOpenAI, stream: bool) -> None:
    body: Any = {
        "model": "tiny",
        "messages": [{"role": "user", "content": CODE}],
        "max_tokens": 900,
        "extra_body": {"ignore_eos": True},
    }
    if stream:
        async for _ in await client.chat.completions.create(**body, stream=True):
            pass
    else:
        await client.chat.completions.create(**body)
