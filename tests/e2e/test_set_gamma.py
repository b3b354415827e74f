"""Gamma set on real llama.cpp servers: the build that heeds the field is believed, one that ignores it is found out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from adaptive_gamma.cli.demo.llama_server import LlamaServer
from adaptive_gamma.engines import PerRequestActuator
from adaptive_gamma.engines.llamacpp import drafting_of
from adaptive_gamma.errors import ActuatorError
from tests.support.llama_b9093 import OldLlamaServer, needs_b9093
from tests.support.running import Serve, demo_models, eventually, running_serve

OWN = 8
CONTROL = {"interval_s": 0.1, "dwell_s": 1.0, "min_gain": 0.01}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    needs_b9093()
    models = demo_models(tmp_path_factory.mktemp("models"))
    with OldLlamaServer(models.target, draft=models.draft, gamma=OWN) as server:
        yield server


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    models = demo_models(tmp_path_factory.mktemp("models"))
    with LlamaServer(models.target, draft=models.draft, gamma=OWN) as server:
        yield server


def prompt() -> str:
    """Never the same twice: b9093 replays the draft of a prompt it knows."""
    return f"def f{random.random()}(self): return"


def settings(server: LlamaServer) -> dict[str, Any]:
    replica = {"name": "r", "url": server.url, "engine": "llamacpp", "gamma": OWN, "set_gamma": "per_request"}
    return {
        "policy": "demo-llamacpp-cpu",
        "replicas": [replica],
        "control": CONTROL,
        "scrape": {"interval_s": 0.2, "timeout_s": 2.0, "stale_after_s": 20.0},
    }


async def draft_through(serve: Serve, client: httpx.AsyncClient, tokens: int = 60) -> tuple[float, httpx.Headers]:
    """Drafted tokens a step of one request through the proxy, and the answer's header."""
    body = {"messages": [{"role": "user", "content": prompt()}], "max_tokens": tokens, "model": "tiny"}
    answer = await client.post(serve.url + "/v1/chat/completions", json=body)
    found = drafting_of(answer.json())
    assert found is not None, answer.text
    return found.draft_tokens / found.steps, answer.headers


async def state_after(serve: Serve, client: httpx.AsyncClient, state: str) -> dict[str, Any]:
    """``set_gamma`` in the status once it has that state, requests going on meanwhile."""

    async def reached() -> dict[str, Any] | None:
        await draft_through(serve, client)
        row: dict[str, Any] = (await serve.replica("r"))["set_gamma"]
        return row if row["state"] == state else None

    return await eventually(reached, within_s=90.0)


async def test_the_build_that_heeds_it_is_believed_and_set(old: LlamaServer, tmp_path: Path) -> None:
    async with (
        running_serve(tmp_path, **settings(old)) as serve,
        httpx.AsyncClient(trust_env=False, timeout=30) as http,
    ):
        before, headers = await draft_through(serve, http)
        assert headers["x-adaptive-gamma-gamma"] == str(OWN)
        row = await state_after(serve, http, "verified")

        async def changed() -> bool:
            return bool((await serve.replica("r"))["set_gamma"]["changes"])

        await eventually(changed)
        after = [await draft_through(serve, http) for _ in range(4)]
        seen = [(int(headers["x-adaptive-gamma-gamma"]), drafted) for drafted, headers in after]
        print(
            f"b9093, own gamma {OWN}: {before:.2f} drafted tokens a step by itself; gamma {row['gamma']} set; "
            f"predicted gain {row['gain']:.0%}; then (gamma, drafted a step): {[(g, round(d, 2)) for g, d in seen]}"
        )
        assert before > 6
        assert row["gamma"] < OWN
        assert all(drafted <= gamma < OWN for gamma, drafted in seen)
        assert "the engine heeds speculative.n_max" in serve.log.read_text()

        assert (await serve.replica("r"))["gamma"] < OWN
        metrics = (await serve.admin.get("/metrics")).text
        assert 'adaptive_gamma_actuator_stopped{replica="r"} 0.0' in metrics
        assert 'adaptive_gamma_gamma_changes_total{replica="r",reason="gain"}' in metrics


async def test_every_gamma_is_heeded_up_and_down(old: LlamaServer) -> None:
    actuator, seen = PerRequestActuator("r"), {}
    async with httpx.AsyncClient(base_url=old.url, trust_env=False, timeout=30) as http:

        async def complete() -> float:
            field = actuator.request_field()
            more = {} if field is None else {field[0]: field[1]}
            body = {"prompt": prompt(), "n_predict": 80, "ignore_eos": True, "cache_prompt": False, **more}
            answer = (await http.post("/completion", json=body)).json()
            actuator.answered(None if field is None else field[1], answer)
            found = drafting_of(answer)
            assert found is not None
            return found.draft_tokens / found.steps

        own = await complete()
        while actuator.waits_for is not None:
            await complete()
        await actuator.change(1)
        while not actuator.settled():
            await complete()
        for gamma in (1, 4, 0, 8, 2):
            await actuator.change(gamma)
            assert actuator.gamma == gamma
            seen[gamma] = await complete()
        print(f"b9093: {own:.2f} drafted tokens a step by itself; by gamma:", {g: round(d, 2) for g, d in seen.items()})
        assert seen[0] == 0
        assert all(drafted <= gamma for gamma, drafted in seen.items())
        assert seen[1] < seen[2] < seen[4] < seen[8]
        assert actuator.state == "verified"


async def test_the_current_build_ignores_it_is_found_out_and_left_alone(current: LlamaServer, tmp_path: Path) -> None:
    async with (
        running_serve(tmp_path, **settings(current)) as serve,
        httpx.AsyncClient(trust_env=False, timeout=30) as http,
    ):
        before, _ = await draft_through(serve, http)
        await state_after(serve, http, "stopped")

        async def noted() -> dict[str, Any] | None:
            row: dict[str, Any] = (await serve.replica("r"))["set_gamma"]
            return row if row["failures"] else None

        row = await eventually(noted)
        after, headers = await draft_through(serve, http)
        replica = await serve.replica("r")
        (note,) = [note for note in replica["notes"] if "gamma" in note]
        print(f"current build: {before:.2f} drafted tokens a step before, {after:.2f} after; {note}")
        assert note.startswith("gamma cannot be set: the engine ignores speculative.n_max: 3 answers in a row")
        assert row["failures"] == {"ignored": 1}
        assert (row["sent"], row["gamma"], replica["gamma"]) == (None, None, OWN)
        assert headers["x-adaptive-gamma-gamma"] == str(OWN)
        assert after > 1
        log = serve.log.read_text()
        assert log.count("gamma cannot be set: the engine ignores") == 1
        metrics = (await serve.admin.get("/metrics")).text
        assert 'adaptive_gamma_actuator_stopped{replica="r"} 1.0' in metrics


async def test_the_current_build_ignores_it_at_the_actuator(current: LlamaServer) -> None:
    actuator = PerRequestActuator("r")
    async with httpx.AsyncClient(base_url=current.url, trust_env=False, timeout=30) as http:
        for _ in range(40):
            if actuator.waits_for is None and actuator.state == "ready":
                await actuator.change(2)
            field = actuator.request_field()
            more = {} if field is None else {field[0]: field[1]}
            body = {"prompt": prompt(), "n_predict": 40, "ignore_eos": True, "cache_prompt": False, **more}
            answer = await http.post("/completion", json=body)
            actuator.answered(None if field is None else field[1], answer.json())
            if actuator.problem is not None:
                break
        with pytest.raises(ActuatorError, match="ignored"):
            actuator.settled()
