"""``set_gamma: vllm_schedule`` of ``serve``, on a real vLLM: what the policy wants is what the engine schedules."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.running import Serve, eventually, running_serve
from tests.vllm.server import MAX_BATCH, MODEL_NAME, VllmServer

TOKEN = "a-token-for-these-tests"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
GAMMA = 5
CONDITIONAL = (0.8, 0.7, 0.7, 0.7, 0.7)
STARTUP = [[1, MAX_BATCH, GAMMA]]
# Of so many drafts a rate of 0.8 is off by 0.05 once in ten thousand times.
DRAFTS_ENOUGH = 1000
# A token costs a tenth of a step and a pass of the drafter a twentieth: long drafts pay at few sequences alone.
INPUTS = {
    "schema": "adaptive-gamma/policy/v1",
    "name": "falls-with-load",
    "inputs": {
        "step_time": {"kind": "linear", "fixed_seconds": 0.02, "seconds_per_token": 0.002},
        "drafter": {"kind": "autoregressive", "pass_seconds": 0.001},
        "classes": {"unsure": {"reading": "conditional", "rates": list(CONDITIONAL)}},
        "default_class": "unsure",
        "limits": {"max_gamma": 8, "min_gamma": 1, "max_batch": MAX_BATCH, "context_buckets": [1024]},
    },
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("actuator")


@pytest.fixture(scope="module")
def server(vllm: Path, pair: tuple[Path, Path], directory: Path) -> Iterator[VllmServer]:
    with VllmServer(
        vllm, pair[0], directory / "log.txt",
        speculative={
            "model": str(pair[1]), "num_speculative_tokens": GAMMA,
            "num_speculative_tokens_per_batch_size": STARTUP,
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_rates": list(accumulate(CONDITIONAL, mul)),
        },
        variables={
            "VLLM_PLUGINS": "adaptive_gamma,adaptive_gamma_test_kernels",
            "ADAPTIVE_GAMMA_PLUGIN_TOKEN": TOKEN,
            "ADAPTIVE_GAMMA_PLUGIN_FILE": str(directory / "gamma.json"),
        },
    ) as running:  # fmt: skip
        yield running


@pytest.fixture(scope="module")
def policy(directory: Path) -> Path:
    inputs, built = directory / "inputs.yaml", directory / "policy.yaml"
    inputs.write_text(yaml.safe_dump(INPUTS))
    command = [sys.executable, "-m", "adaptive_gamma", "policy", "build", "--inputs", str(inputs), "-o", str(built)]
    subprocess.run(command, check=True)
    return built


def state_of(server: VllmServer) -> dict[str, Any]:
    state: dict[str, Any] = httpx.get(f"{server.url}/plugins/adaptive-gamma/schedule", headers=HEADERS).json()
    return state


def drafts_of(server: VllmServer) -> float:
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in server.metrics().splitlines()
        if line.startswith("vllm:spec_decode_num_drafts_total{")
    )


def gamma_at(schedule: list[list[int]], batch: int) -> int:
    return next(gamma for first, last, gamma in reversed(schedule) if first <= batch)


async def traffic(serve: Serve, client: httpx.AsyncClient, failures: list[str]) -> None:
    """One client that asks again and again."""
    body = {"model": MODEL_NAME, "prompt": "x = [", "max_tokens": 120, "temperature": 0, "ignore_eos": True}
    while True:
        answer = await client.post(f"{serve.url}/v1/completions", json=body)
        if answer.status_code != 200:
            failures.append(answer.text)


def write_way(config: Path, set_gamma: str) -> None:
    settings = yaml.safe_load(config.read_text())
    settings["replicas"][0]["set_gamma"] = set_gamma
    config.write_text(yaml.safe_dump(settings))


@pytest.mark.parametrize("way", ["token", "file"])
async def test_the_engine_gets_the_schedule_of_the_policy_and_its_own_back(
    server: VllmServer, policy: Path, directory: Path, tmp_path: Path, way: str
) -> None:
    control = {"token": TOKEN} if way == "token" else {"file": str(directory / "gamma.json")}
    replica = {
        "name": "spec-0", "url": server.url, "engine": "vllm", "gamma": "auto", "set_gamma": "vllm_schedule",
        "gamma_control": control,
    }  # fmt: skip
    failures: list[str] = []
    async with (
        running_serve(
            tmp_path, policy=str(policy), replicas=[replica], control={"interval_s": 0.2, "dwell_s": 5},
            # Its step times are made up, and would be corrected by what they are on this CPU.
            cost_check={"largest_correction": 1.0}, learn={"ask": "usage"},
        ) as serve,
        httpx.AsyncClient(timeout=120) as client,
    ):  # fmt: skip
        clients = [asyncio.create_task(traffic(serve, client, failures)) for _ in range(6)]

        async def verified() -> dict[str, Any] | None:
            row: dict[str, Any] = (await serve.replica("spec-0"))["set_gamma"]
            assert row["problem"] is None, row
            return row if row["state"] == "verified" else None

        row = await eventually(verified, within_s=60.0, every_s=0.2)
        state = await asyncio.to_thread(state_of, server)
        print(f"\n{way}: {json.dumps(state['schedule'])} in force, {state['steps_in_force']} steps made under it")
        assert state["schedule"] != STARTUP
        assert state["last_gamma"] == gamma_at(state["schedule"], state["last_batch"])
        assert gamma_at(state["schedule"], 1) > gamma_at(state["schedule"], MAX_BATCH)
        assert row["actuator"] == "vllm_schedule"

        before = await asyncio.to_thread(drafts_of, server)

        async def acceptance() -> list[float] | None:
            drafts = await asyncio.to_thread(drafts_of, server) - before
            found: list[float] | None = (await serve.replica("spec-0"))["acceptance"]
            return found if drafts >= DRAFTS_ENOUGH else None

        read = await eventually(acceptance, within_s=120.0, every_s=1.0)
        print(f"acceptance read meanwhile {[round(rate, 3) for rate in read]}, dialled in {CONDITIONAL}")
        assert abs(read[0] - CONDITIONAL[0]) < 0.05

        await asyncio.to_thread(write_way, tmp_path / "serve.yaml", "none")
        serve.process.send_signal(signal.SIGHUP)

        async def its_own() -> bool:
            return bool((await asyncio.to_thread(state_of, server))["schedule"] == STARTUP)

        await eventually(its_own, within_s=10.0, every_s=0.1)
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    assert failures == []
    log = (tmp_path / "serve.log").read_text()
    assert TOKEN not in log
