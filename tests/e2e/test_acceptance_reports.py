"""What the proxy learns of single requests, against what the engines themselves counted."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import httpx
import openai
import pytest

from adaptive_gamma.cli.demo.llama_server import LlamaServer
from adaptive_gamma.engines import RequestAcceptance, dialect_for
from adaptive_gamma.simulation.engine import EngineSettings, LinearStepClock, SimulatedEngine, serving
from tests.support.acceptance_recorder import AcceptanceRecorder
from tests.support.running import demo_models
from tests.support.running_proxy import RunningProxy, running_proxy

CODE = "Write a Python function that parses this JSON and returns the list of ids:\n```python\ndef ids(text):\n```"
PROSE = "Write a warm letter to my parents about our holiday by the sea and the little museum we liked."
SCRIPT = {"structured": (0.9, 0.85, 0.8), "chat": (0.6, 0.5, 0.4)}
FAST = LinearStepClock(base_s=0.001, token_s=0.00001, draft_pass_s=0.0001, speculative=True)


def client_of(proxy: RunningProxy) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{proxy.port}/v1", api_key="none", max_retries=0)


async def ask(client: openai.AsyncOpenAI, prompt: str, tokens: int, *, stream: bool, **more: Any) -> list[Any]:
    """The chunks of a stream, or one whole answer."""
    messages: Any = [{"role": "user", "content": prompt}]
    made = await client.chat.completions.create(
        model="tiny", messages=messages, max_tokens=tokens, stream=stream, extra_body={"ignore_eos": True}, **more
    )
    return [chunk async for chunk in made] if stream else [made]


@pytest.mark.parametrize("report", ["summary", "detailed"])
async def test_a_simulated_vllm_is_learned_from_class_by_class(report: Any) -> None:
    settings = EngineSettings(
        model="tiny", gamma=3, step_clock=FAST, acceptance=SCRIPT, acceptance_report=report, time_scale=4.0, seed=3
    )
    async with serving(SimulatedEngine(settings)) as url:
        replicas = [{"name": "spec-0", "url": url, "gamma": 3}]
        async with running_proxy([url], replicas=replicas, learn={"ask": "usage"}) as proxy, client_of(proxy) as client:
            proxy.plane.fleet.learning = learned = AcceptanceRecorder()
            for round_ in range(10):
                prompts = [f"{prompt} {round_}.{i}" for prompt in (CODE, PROSE) for i in range(4)]
                answers = await asyncio.gather(
                    *(ask(client, prompt, 120, stream=bool(i % 2)) for i, prompt in enumerate(prompts))
                )
                for chunks in answers:
                    assert all(chunk.choices for chunk in chunks), "no usage chunk where the client asked for none"
            mine = await ask(client, CODE, 20, stream=True, stream_options={"include_usage": True})
            assert mine[-1].usage.completion_tokens == 20
            assert mine[-1].choices == []
        async with httpx.AsyncClient(trust_env=False) as http:
            reading = dialect_for("vllm").read({"/metrics": (await http.get(url + "/metrics")).text})
    assert len(learned.notes) == 81
    counted = reading.speculation
    assert counted is not None
    assert sum(note[2].drafts or 0 for note in learned.notes) == counted.drafts
    assert sum(note[2].draft_tokens for note in learned.notes) == counted.draft_tokens
    assert sum(note[2].accepted_tokens for note in learned.notes) == counted.accepted_tokens
    for name, rates in SCRIPT.items():
        tried, accepted = Counter[int](), Counter[int]()
        for _, request_class, acceptance in learned.notes:
            for position, (successes, trials) in enumerate(acceptance.position_counts() or ()):
                tried[position] += trials * (request_class == name)
                accepted[position] += successes * (request_class == name)
        assert min(tried.values()) >= 300
        assert [abs(accepted[i] / tried[i] - rate) < 0.05 for i, rate in enumerate(rates)] == [True] * 3


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    models = demo_models(tmp_path_factory.mktemp("models"))
    rates = (0.9, 0.8, 0.7, 0.6)
    with LlamaServer(models.target, draft=models.draft, gamma=4, synthetic_rates=rates, slots=8) as server:
        yield server


async def test_a_real_llamacpp_server_is_learned_from(llama: LlamaServer) -> None:
    dialect = dialect_for("llamacpp")

    async def totals() -> tuple[float, float, float]:
        async with httpx.AsyncClient(trust_env=False) as http:
            page = (await http.get(llama.url + "/metrics")).text
        counted = dialect.read({"/metrics": page}).speculation
        assert counted is not None
        return counted.drafts or 0.0, counted.draft_tokens, counted.accepted_tokens

    before = await totals()
    replicas = [{"name": "spec-0", "url": llama.url, "engine": "llamacpp", "gamma": 4}]
    async with running_proxy([llama.url], replicas=replicas, learn={"ask": "usage"}) as proxy:
        proxy.plane.fleet.learning = learned = AcceptanceRecorder()
        async with client_of(proxy) as client, httpx.AsyncClient(trust_env=False, timeout=60) as http:
            for round_ in range(6):
                for prompt in (CODE, PROSE):
                    asks = [ask(client, f"{prompt} {round_}.{i}", 64, stream=i % 2 == 0) for i in range(4)]
                    await asyncio.gather(*asks)
            native = f"http://127.0.0.1:{proxy.port}/completion"
            for stream in (False, True):
                body = {"prompt": f"once {stream}", "n_predict": 40, "ignore_eos": True, "stream": stream}
                assert (await http.post(native, json=body)).status_code == 200
    drafts, draft_tokens, accepted = (after - was for after, was in zip(await totals(), before, strict=True))
    assert len(learned.notes) == 50
    assert Counter(learned.classes) >= Counter({"structured": 24, "chat": 24})
    seen = [acceptance for _, _, acceptance in learned.notes]
    # Every answer has told what the engine counted, neither more nor less.
    assert sum(each.draft_tokens for each in seen) == draft_tokens
    assert sum(each.accepted_tokens for each in seen) == accepted
    most = sum(each.most_drafts or 0 for each in seen)
    assert drafts <= most <= drafts + 2 * len(seen), "the prompt's pass, and one whose draft was cut away"
    # Accepted tokens a draft, of unconditional rates 0.9 0.8 0.7 0.6: 3.0, less what was cut at the answers' ends.
    assert 2.6 < accepted / drafts < 3.2


async def test_running_totals_of_llamacpp_are_read_once(llama: LlamaServer) -> None:
    """``timings_per_token`` puts totals so far into every chunk."""
    replicas = [{"name": "spec-0", "url": llama.url, "engine": "llamacpp", "gamma": 4}]
    async with running_proxy([llama.url], replicas=replicas) as proxy:
        proxy.plane.fleet.learning = learned = AcceptanceRecorder()
        body = {"prompt": "twice", "n_predict": 40, "ignore_eos": True, "stream": True, "timings_per_token": True}
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            answer = await http.post(f"http://127.0.0.1:{proxy.port}/completion", json=body)
        totals = [acceptance_in(line) for line in answer.text.splitlines() if line.startswith("data: {")]
    assert learned.notes == [("spec-0", learned.classes[0], totals[-1])]
    assert list(accumulate((t.draft_tokens for t in totals if t), max)) == [t.draft_tokens for t in totals if t]


def acceptance_in(line: str) -> RequestAcceptance | None:
    return dialect_for("llamacpp").acceptance_from_response(json.loads(line.removeprefix("data: ")))
