"""Gamma changed in a running vLLM: by the route and by the file, under load, each change in force within a second."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from adaptive_gamma.engines import DIALECTS
from adaptive_gamma.engines.reading import EngineReading
from tests.vllm.server import MAX_BATCH, MODEL_NAME, VllmServer

TOKEN = "a-token-for-these-tests"
PATH = "/plugins/adaptive-gamma/schedule"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
GAMMA = 5
SCHEDULE = [[1, 3, 5], [4, 6, 2], [7, MAX_BATCH, 0]]
PROMPTS = [f"def f{i}(values):\n    return [" for i in range(6)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("knob")


@pytest.fixture(scope="module")
def server(vllm: Path, pair: tuple[Path, Path], directory: Path) -> Iterator[VllmServer]:
    with VllmServer(
        vllm, pair[0], directory / "log.txt",
        speculative={
            "model": str(pair[1]), "num_speculative_tokens": GAMMA,
            "num_speculative_tokens_per_batch_size": [[1, MAX_BATCH, GAMMA]],
        },
        variables={
            "VLLM_PLUGINS": "adaptive_gamma,adaptive_gamma_test_kernels",
            "ADAPTIVE_GAMMA_PLUGIN_TOKEN": TOKEN,
            "ADAPTIVE_GAMMA_PLUGIN_FILE": str(directory / "gamma.json"),
        },
    ) as running:  # fmt: skip
        yield running


def read(server: VllmServer) -> EngineReading:
    return DIALECTS["vllm"].read({"/metrics": server.metrics()})


def state_of(server: VllmServer) -> dict[str, Any]:
    state: dict[str, Any] = httpx.get(server.url + PATH, headers=HEADERS).raise_for_status().json()
    return state


def flat(gamma: int) -> list[list[int]]:
    return [[1, MAX_BATCH, gamma]]


class Load:
    """Requests without a pause, so many at once; what their answers reported."""

    def __init__(self, server: VllmServer, client: httpx.AsyncClient) -> None:
        self._server, self._client = server, client
        self.failures: list[str] = []
        self.reports: list[dict[str, Any]] = []
        self.texts: dict[str, set[str]] = {}
        self._over = False

    async def _run(self, prompt: str) -> None:
        body = {"model": MODEL_NAME, "prompt": prompt, "max_tokens": 160, "temperature": 0, "ignore_eos": True}
        while not self._over:
            answer = await self._client.post(f"{self._server.url}/v1/completions", json=body)
            if answer.status_code != 200:
                self.failures.append(answer.text)
                continue
            told = answer.json()
            self.texts.setdefault(prompt, set()).add(told["choices"][0]["text"])
            report = (told["metrics"] or {}).get("speculative_decoding")
            if report is not None:
                self.reports.append(report)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._run(prompt)) for prompt in PROMPTS]
        try:
            yield
        finally:
            self._over = True
            await asyncio.gather(*tasks)


async def ask(client: httpx.AsyncClient, server: VllmServer, schedule: list[list[int]]) -> tuple[float, dict[str, Any]]:
    """Set a schedule; the seconds until the engine was seen to schedule by it."""
    asked = time.monotonic()
    answer = await client.put(server.url + PATH, json={"schedule": schedule}, headers=HEADERS)
    assert answer.status_code == 200, answer.text
    while True:
        state = (await client.get(server.url + PATH, headers=HEADERS)).json()
        if state["revision"] == answer.json()["revision"] and state["steps_in_force"] > 0:
            return time.monotonic() - asked, state
        await asyncio.sleep(0.01)


async def drafted_per_step(server: VllmServer, seconds: float) -> tuple[float, float, float]:
    """Drafts, draft tokens and generated tokens over some time; the pages are fetched besides the load."""
    before = await asyncio.to_thread(read, server)
    await asyncio.sleep(seconds)
    after = await asyncio.to_thread(read, server)
    one, two = before.speculation, after.speculation
    assert one is not None
    assert two is not None
    assert one.drafts is not None
    assert two.drafts is not None
    assert before.generation_tokens is not None
    assert after.generation_tokens is not None
    return (
        two.drafts - one.drafts,
        two.draft_tokens - one.draft_tokens,
        after.generation_tokens - before.generation_tokens,
    )


async def test_gamma_goes_up_and_down_under_six_requests_at_once(server: VllmServer) -> None:
    print()
    async with httpx.AsyncClient(timeout=120) as client:
        load = Load(server, client)
        async with load.running():
            for name, schedule, gamma in (
                *((str(each), flat(each), each) for each in (5, 3, 1, 0)),
                (json.dumps(SCHEDULE), SCHEDULE, 2),
                ("5", flat(5), 5),
            ):
                took, state = await ask(client, server, schedule)
                assert state["schedule"] == schedule
                # What was drafted before the change is verified one step after it.
                await asyncio.sleep(0.3)
                drafts, tokens, generated = await drafted_per_step(server, 2.5)
                per_step = tokens / drafts if drafts else 0.0
                print(f"gamma {name}: in force after {took * 1e3:.0f} ms, {drafts:.0f} drafts of {per_step:.3f} tokens")
                assert took < 1.0
                assert generated > 0
                if schedule is SCHEDULE:
                    # Six at once, but where one has ended and the next has not begun: five, and as few as three.
                    assert drafts > 0
                    assert 2.0 <= per_step < 2.1
                else:
                    assert per_step == gamma
                    assert (drafts > 0) == (gamma > 0)
        assert load.failures == []
        assert len(load.reports) > 6
        changed = {prompt: len(texts) for prompt, texts in load.texts.items()}
        accepted = sum(each["num_accepted_draft_tokens"] for each in load.reports)
        share = accepted / sum(each["num_draft_tokens"] for each in load.reports)
        print(
            f"{len(load.reports)} answers of {len(changed)} prompts under every gamma, batch and change: "
            f"{sum(changed.values())} texts; {share:.2f} of the drafted tokens were accepted"
        )
        assert 0.1 < share < 0.95
        # Greedy: what is drafted changes nothing of what is said.
        assert set(changed.values()) == {1}


def test_each_step_of_a_request_drafts_what_was_set(server: VllmServer) -> None:
    for gamma in (4, 1, 2):
        httpx.put(server.url + PATH, json={"schedule": flat(gamma)}, headers=HEADERS).raise_for_status()
        report = server.complete(PROMPTS[0], 64)["metrics"]["speculative_decoding"]
        drafted = report["per_step_drafted"]
        # The last draft is cut to the tokens that are still to come.
        assert set(drafted[:-1]) == {gamma}, drafted
        assert drafted[-1] <= gamma
        assert report["num_spec_tokens"] == GAMMA


def test_the_file_is_the_other_way_in(server: VllmServer, directory: Path) -> None:
    wanted, state_file = directory / "gamma.json", directory / "gamma.state.json"
    beside = directory / "new"
    beside.write_text(json.dumps({"format": 1, "revision": "by-file", "schedule": flat(2)}))
    beside.replace(wanted)
    deadline = time.monotonic() + 1.0
    while json.loads(state_file.read_text())["revision"] != "by-file":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server.complete(PROMPTS[1], 32)
    state = state_of(server)
    assert (state["last_gamma"], state["last_batch"], state["revision"]) == (2, 1, "by-file")

    beside.write_text(json.dumps({"format": 1, "revision": "too-much", "schedule": flat(6)}))
    beside.replace(wanted)
    deadline = time.monotonic() + 1.0
    while (refused := state_of(server)["refused"]) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert refused == {
        "revision": "too-much",
        "reason": "gamma 6 is not within 0 to 5, what the engine was started with",
    }
    assert state_of(server)["schedule"] == flat(2)


def test_delete_brings_back_the_schedule_of_the_start(server: VllmServer) -> None:
    httpx.put(server.url + PATH, json={"schedule": flat(1)}, headers=HEADERS).raise_for_status()
    state = httpx.delete(server.url + PATH, headers=HEADERS).raise_for_status().json()
    assert state["schedule"] == state["startup_schedule"] == flat(GAMMA)


@pytest.mark.parametrize(
    ("headers", "body", "status", "words"),
    [
        ({}, {"schedule": flat(1)}, 401, "token"),
        ({"Authorization": "Bearer something-else-entirely"}, {"schedule": flat(1)}, 401, "token"),
        (HEADERS, {"schedule": flat(6)}, 400, "gamma 6 is not within 0 to 5"),
        (HEADERS, {"schedule": [[2, 8, 1]]}, 400, "must start at batch 1"),
        (HEADERS, {"schedule": [[1, 4, 1], [4, 8, 2]]}, 400, "two ranges hold batch 4"),
        (HEADERS, {"gamma": 3}, 400, "the body is"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(
    server: VllmServer, headers: dict[str, str], body: dict[str, object], status: int, words: str
) -> None:
    before = state_of(server)["schedule"]
    answer = httpx.put(server.url + PATH, json=body, headers=headers)
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]
    assert TOKEN not in answer.text
    assert state_of(server)["schedule"] == before
    assert server.complete("x", 2)["choices"]


def test_the_drafts_by_position_are_counted(server: VllmServer) -> None:
    """What vLLM computes and does not publish: of each answer's steps, so many had a token at each position."""

    def counted() -> list[float]:
        name = "adaptive_gamma_draft_tokens_per_position_total{"
        return [float(line.split()[-1]) for line in server.metrics().splitlines() if line.startswith(name)]

    before = counted()
    expected = [0.0] * GAMMA
    for gamma, prompt in zip((5, 3, 1), PROMPTS, strict=False):
        httpx.put(server.url + PATH, json={"schedule": flat(gamma)}, headers=HEADERS).raise_for_status()
        report = server.complete(prompt, 48)["metrics"]["speculative_decoding"]
        for drafted in report["per_step_drafted"]:
            for position in range(drafted):
                expected[position] += 1
    httpx.delete(server.url + PATH, headers=HEADERS).raise_for_status()
    assert [after - one for after, one in zip(counted(), before, strict=True)] == expected
    assert f'adaptive_gamma_scheduled_gamma{{engine="0",model_name="{MODEL_NAME}"}}' in server.metrics()


def test_nothing_of_the_token_is_in_the_log(server: VllmServer) -> None:
    assert TOKEN not in server.text
    assert "gamma is set by" in server.text
