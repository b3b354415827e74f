"""The whole job on two real llama.cpp servers behind a real Envoy, as a user starts it."""

from __future__ import annotations

import contextlib
import itertools
import json
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from adaptive_gamma.cli.demo.llama_server import LlamaServer
from tests.support.envoy import FilesMode, needs_envoy, running_command
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
from tests.support.running import demo_models, eventually


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    needs_envoy()
    with llama_pair(tmp_path_factory.mktemp("models")) as pair:
        yield pair


@contextlib.asynccontextmanager
async def files_mode(folder: Path, engines: Pair) -> AsyncIterator[FilesMode]:
    health = {"interval_s": 0.5, "down_after": 2}
    async with running_command(folder, policy=POLICY, replicas=replicas_of(engines), health=health) as (mode, _):

        async def gamma_known() -> bool:
            return all(row["gamma"] is not None for row in (await mode.status())["replicas"])

        await eventually(gamma_known, within_s=30.0)
        yield mode


async def test_code_and_prose_land_as_decided(tmp_path: Path, engines: Pair) -> None:
    async with files_mode(tmp_path, engines) as mode, client_of(mode.url) as client:

        async def idle() -> bool:
            # A request that has just ended counts until Envoy has been asked again.
            return await mode.first("any-structured") == await mode.first("any-chat") == {"spec-0": 1}

        for number in range(3):
            await eventually(idle, within_s=30.0)
            headers = await ask(client, f"{CODE} # {number}")
            assert headers["x-adaptive-gamma-class"] == "structured"
            assert headers["x-adaptive-gamma-replica"] == "spec-0"
            assert headers["x-adaptive-gamma-gamma"] == "4"
            assert headers["x-adaptive-gamma-reason"] == "low_load"
        await eventually(idle, within_s=30.0)
        assert (await ask(client, PROSE))["x-adaptive-gamma-replica"] == "spec-0"
        async with long_streams(engines[0].url, 6):

            async def moved() -> bool:
                return await mode.first("any-chat") == {"plain-0": 1}

            await eventually(moved, within_s=30.0)
            headers = await ask(client, PROSE + " Please.")
            landed = (headers["x-adaptive-gamma-replica"], headers["x-adaptive-gamma-reason"])
        assert headers["x-adaptive-gamma-class"] == "chat"
        assert landed == ("plain-0", "high_load")


async def test_a_stream_arrives_as_it_is_made(tmp_path: Path, engines: Pair) -> None:
    async with files_mode(tmp_path, engines) as mode, httpx.AsyncClient(timeout=60.0, trust_env=False) as client:
        body = {"model": "tiny", "prompt": CODE, "max_tokens": 200, "stream": True, "ignore_eos": True}
        arrived = []
        async with client.stream("POST", mode.url + "/v1/completions", json=body) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    arrived.append(time.perf_counter())
                    # The engine is still at it: what has come was not kept until the end.
                    if len(arrived) == 2:
                        assert not await no_slot_in_use(engines)
        gaps = [1e3 * (b - a) for a, b in itertools.pairwise(arrived)]
        print(f"{len(arrived)} chunks, spacing median {statistics.median(gaps):.2f} ms, largest {max(gaps):.1f} ms")
        assert len(arrived) > 20


async def test_a_client_that_leaves_frees_the_engine(tmp_path: Path, engines: Pair) -> None:
    async with files_mode(tmp_path, engines) as mode, httpx.AsyncClient(timeout=60.0, trust_env=False) as client:
        body = {"prompt": CODE, "n_predict": 900, "stream": True, "ignore_eos": True}

        async def free() -> bool:
            return await no_slot_in_use(engines)

        await eventually(free, within_s=30.0)
        async with client.stream("POST", mode.url + "/completion", json=body) as answer:
            await anext(answer.aiter_lines())
            assert not await free()
            began = time.perf_counter()
        await eventually(free, every_s=0.01)
        print(f"the engine was free {1e3 * (time.perf_counter() - began):.0f} ms after its client had left")

        async def none_open() -> bool:
            return all(row["in_flight"] == 0 for row in (await mode.status())["replicas"])

        await eventually(none_open)


async def test_a_replica_that_is_killed(tmp_path: Path, engines: Pair) -> None:
    speculative, _ = engines
    models = demo_models(tmp_path)
    with LlamaServer(models.target, slots=2) as doomed:
        async with files_mode(tmp_path, (speculative, doomed)) as mode, client_of(mode.url) as client:
            parameters = {"x-adaptive-gamma-class": "chat"}
            async with long_streams(speculative.url, 6):

                async def on_the_doomed() -> bool:
                    return await mode.first("any-chat") == {"plain-0": 1}

                await eventually(on_the_doomed, within_s=30.0)
                doomed.stop()
                for _ in range(5):
                    answer = await client.chat.completions.with_raw_response.create(
                        model="tiny",
                        messages=[{"role": "user", "content": PROSE}],
                        max_tokens=2,
                        extra_headers=parameters,
                    )
                    assert answer.headers["x-adaptive-gamma-replica"] == "spec-0"
                    assert json.loads(answer.text)["usage"]["completion_tokens"] >= 1

                async def noticed() -> bool:
                    return await mode.first("any-chat") == {"spec-0": 1}

                await eventually(noticed, within_s=30.0)
