"""The proxy in front of a real plain and a real speculative vLLM: clients, load, leaving, and a policy of the load."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from adaptive_gamma.engines import DIALECTS
from adaptive_gamma.engines.reading import EngineReading
from adaptive_gamma.policy import load_policy
from tests.support.running import Serve, eventually, running_serve
from tests.vllm.bench import bench_serve
from tests.vllm.server import MAX_BATCH, MODEL_NAME, VllmServer

GAMMA = 3
POLICY = "h100-llama3-8b-eagle3"


@pytest.fixture(scope="module")
def server(vllm: Path, pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    with VllmServer(
        vllm, pair[0], tmp_path_factory.mktemp("draft") / "log.txt",
        speculative={"model": str(pair[1]), "num_speculative_tokens": GAMMA},
    ) as running:  # fmt: skip
        yield running


@pytest.fixture
async def serve(server: VllmServer, plain: VllmServer, tmp_path: Path) -> AsyncIterator[Serve]:
    replicas = [
        {"name": "spec-0", "url": server.url, "engine": "vllm", "gamma": "auto"},
        {"name": "plain-0", "url": plain.url, "engine": "vllm", "gamma": "auto"},
    ]
    async with running_serve(tmp_path, policy=POLICY, replicas=replicas) as running:
        yield running


def client_of(serve: Serve) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=serve.url + "/v1", api_key="none", max_retries=0)


async def test_each_replica_is_known_for_what_it_is(serve: Serve) -> None:
    speculative, plain = await serve.replica("spec-0"), await serve.replica("plain-0")
    assert (speculative["pool"], speculative["gamma"]) == ("speculative", GAMMA)
    assert (plain["pool"], plain["gamma"], plain["acceptance"]) == ("plain", 0, None)


async def test_the_openai_client_gets_what_the_engine_says(serve: Serve, server: VllmServer) -> None:
    prompt = "def area(width, height):\n    "
    said = (await asyncio.to_thread(server.complete, prompt, 48))["choices"][0]["text"]
    options: dict[str, Any] = {
        "model": MODEL_NAME, "prompt": prompt, "max_tokens": 48, "temperature": 0, "extra_body": {"ignore_eos": True},
    }  # fmt: skip
    async with client_of(serve) as client:
        whole = await client.completions.with_raw_response.create(**options)
        assert whole.headers["x-adaptive-gamma-replica"] == "spec-0"
        assert whole.headers["x-adaptive-gamma-gamma"] == str(GAMMA)
        assert whole.parse().choices[0].text == said
        pieces = [chunk.choices[0].text async for chunk in await client.completions.create(**options, stream=True)]
        assert len(pieces) > 1
        assert "".join(pieces) == said
        chat = await client.chat.completions.create(
            model=MODEL_NAME, messages=[{"role": "user", "content": prompt}], max_tokens=8
        )
        assert chat.usage is not None
        assert chat.usage.prompt_tokens > 0
        with pytest.raises(openai.NotFoundError):
            await client.completions.create(model="another", prompt="x")


async def test_what_a_speculative_vllm_refuses_goes_to_the_plain_one(serve: Serve, server: VllmServer) -> None:
    body = {"model": MODEL_NAME, "prompt": "x", "max_tokens": 4, "temperature": 1.0, "min_p": 0.1}
    async with httpx.AsyncClient(timeout=60) as client:
        assert (await client.post(server.url + "/v1/completions", json=body)).status_code == 400
        answer = await client.post(serve.url + "/v1/completions", json=body)
    assert answer.status_code == 200
    assert answer.headers["x-adaptive-gamma-replica"] == "plain-0"
    assert answer.headers["x-adaptive-gamma-reason"] == "capability"


async def test_a_client_that_leaves_frees_the_engine(serve: Serve, server: VllmServer) -> None:
    async def read() -> EngineReading:
        return DIALECTS["vllm"].read({"/metrics": await asyncio.to_thread(server.metrics)})

    before = await read()
    async with client_of(serve) as client:
        stream = await client.completions.create(
            model=MODEL_NAME, prompt="x", max_tokens=900, temperature=0, stream=True,
            extra_body={"ignore_eos": True}, extra_headers={"x-adaptive-gamma-class": "code"},
        )  # fmt: skip
        await anext(aiter(stream))
        assert (await read()).running == 1
        await stream.close()
    left = time.monotonic()

    async def free() -> bool:
        return (await read()).running == 0

    await eventually(free, within_s=5.0, every_s=0.02)
    print(f"\nthe engine had nothing running {1e3 * (time.monotonic() - left):.0f} ms after its client had left")
    after = await read()
    assert before.generation_tokens is not None
    assert after.generation_tokens is not None
    generated = after.generation_tokens - before.generation_tokens
    print(f"{generated:.0f} of 900 tokens had been generated")
    assert generated < 900
    page = (await serve.admin.get("/metrics")).text
    assert 'adaptive_gamma_in_flight{replica="spec-0"} 0.0' in page


async def test_vllm_bench_serve_runs_through_it(
    serve: Serve, vllm: Path, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    prompts = [f"def f{n}(values):\n    return {n}" for n in range(24)]
    told = await asyncio.to_thread(
        bench_serve, vllm, serve.url, pair[0], tmp_path / "through.json", prompts, at_once=6, tokens=48
    )
    print(f"\nthrough the proxy: {told['completed']} done, {told['failed']} failed, TPOT {told['mean_tpot_ms']:.1f} ms")
    assert (told["completed"], told["failed"]) == (24, 0)
    assert told["total_output_tokens"] == 24 * 48


def test_a_policy_is_built_from_vllm_bench_serve(
    server: VllmServer, plain: VllmServer, vllm: Path, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    prompts = [f"{n}: a sentence about the number {n * 7919}, and what follows" for n in range(2 * MAX_BATCH)]
    for name, replica in (("gamma3", server), ("plain", plain)):
        for at_once in (1, 4, 16):
            result = tmp_path / "sweep" / name / f"c{at_once}.json"
            few = prompts[: 4 * at_once]
            bench_serve(vllm, replica.url, pair[0], result, few, at_once=at_once, tokens=48)
    output = tmp_path / "mine.yaml"
    built = subprocess.run(
        [
            sys.executable, "-m", "adaptive_gamma", "policy", "build", "--from", str(tmp_path / "sweep"),
            "--arm", "gamma3=3", "--arm", "plain=plain", "--allow-poor-fit", "-o", str(output),
        ],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    print("\n" + built.stdout + built.stderr)
    assert built.returncode == 0
    policy = load_policy(str(output))
    counted = DIALECTS["vllm"].read({"/metrics": server.metrics()}).speculation
    assert counted is not None
    assert counted.drafts is not None
    seen = 1.0 + counted.accepted_tokens / counted.drafts
    believed = policy.expected_tokens(policy.default_class, GAMMA)
    print(f"E({GAMMA}) of the policy {believed:.2f}, of the engine over all that it was asked {seen:.2f}")
    assert abs(believed - seen) < 0.35
