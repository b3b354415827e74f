"""The simulated engine over real sockets, as clients and testers meet it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from typing import Any, Literal

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from adaptive_gamma.simulation.engine import (
    CoreLimits,
    EngineSettings,
    Faults,
    LinearStepClock,
    SimulatedEngine,
    serving,
)

FAST = LinearStepClock(base_s=0.002, token_s=0.00001, draft_pass_s=0.0002, speculative=True)
SPECULATIVE = EngineSettings(
    model="m", gamma=4, step_clock=FAST, per_request_metrics=True, acceptance_report="detailed"
)
PLAIN = EngineSettings(model="m", step_clock=LinearStepClock(0.002, 0.00001))
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Tell me a story about a garden."}]}


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=20, trust_env=False) as client:
        yield client


async def value(http: httpx.AsyncClient, url: str, name: str, **labels: str) -> float:
    page = (await http.get(f"{url}/metrics")).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == f"vllm:{name}" and labels.items() <= sample.labels.items()
    )


async def until(http: httpx.AsyncClient, url: str, name: str, expected: float) -> None:
    async with asyncio.timeout(10):
        while await value(http, url, name) != expected:  # noqa: ASYNC110 - another party's page, as a scraper sees it
            await asyncio.sleep(0.005)


async def test_openai_client_streaming_gets_one_event_per_step() -> None:
    async with (
        serving(SimulatedEngine(SPECULATIVE)) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client,
    ):
        stream = await client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "Write a python function that parses JSON"}],
            max_tokens=60,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        )
        chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(chunk.system_fingerprint == "simulated" for chunk in chunks)
    events = [chunk for chunk in chunks if chunk.choices][1:]
    assert events[-1].choices[0].finish_reason == "length"
    last = chunks[-1]
    assert last.usage is not None
    assert last.usage.completion_tokens == 60
    speculation = last.model_dump()["metrics"]["speculative_decoding"]
    assert len(events) == 1 + speculation["num_spec_steps"]
    assert speculation["num_spec_tokens"] == 4
    assert sum(speculation["acceptance_histogram"]) == speculation["num_spec_steps"]
    assert speculation["per_step_drafted"] == [4] * speculation["num_spec_steps"]
    assert sum(speculation["per_step_accepted"]) == speculation["num_accepted_draft_tokens"]


async def test_openai_client_without_streaming() -> None:
    async with (
        serving(SimulatedEngine(PLAIN)) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client,
    ):
        chat = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], max_completion_tokens=9
        )
        text = await client.completions.create(model="m", prompt="Once", max_tokens=5)
        models = await client.models.list()
    assert chat.usage is not None
    assert chat.usage.completion_tokens == 9
    assert chat.choices[0].message.content
    assert chat.system_fingerprint == text.system_fingerprint == "simulated"
    assert text.choices[0].finish_reason == "length"
    assert [model.id for model in models.data] == ["m"]
    assert models.data[0].owned_by == "adaptive-gamma-simulated-engine"


@pytest.mark.parametrize("timings", [False, True])
@pytest.mark.parametrize("report", ["none", "summary", "detailed"])
@pytest.mark.parametrize("gamma", [None, 3])
async def test_what_responses_tell_of_the_request(
    http: httpx.AsyncClient, gamma: int | None, report: Literal["none", "summary", "detailed"], timings: bool
) -> None:
    settings = EngineSettings(
        model="m", gamma=gamma, step_clock=FAST, per_request_metrics=timings, acceptance_report=report
    )
    body = {**HELLO, "max_tokens": 30, "ignore_eos": True}
    async with serving(SimulatedEngine(settings)) as url:
        metrics = (await http.post(f"{url}/v1/chat/completions", json=body)).json()["metrics"]
    reports = gamma is not None and report != "none"
    assert (metrics is None) == (not timings and not reports)
    if metrics is None:
        return
    assert (metrics["tokens_per_second"] is not None) == timings
    assert ("speculative_decoding" in metrics) == reports
    if reports:
        speculation = metrics["speculative_decoding"]
        assert ("per_step_accepted" in speculation) == (report == "detailed")
        assert sum(speculation["acceptance_histogram"]) == speculation["num_spec_steps"] > 0


async def test_the_answer_is_the_same_text_in_a_stream_and_whole(http: httpx.AsyncClient) -> None:
    body = {**HELLO, "max_tokens": 40, "ignore_eos": True}
    async with serving(SimulatedEngine(SPECULATIVE)) as url:
        whole = (await http.post(f"{url}/v1/chat/completions", json=body)).json()
    async with serving(SimulatedEngine(SPECULATIVE)) as url:
        streamed = await http.post(f"{url}/v1/chat/completions", json={**body, "stream": True})
    lines = [line.removeprefix("data: ") for line in streamed.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    parts = [json.loads(line)["choices"][0]["delta"]["content"] for line in lines[:-1]]
    assert "".join(parts) == whole["choices"][0]["message"]["content"]
    assert streamed.headers["server"] == "adaptive-gamma-simulated-engine"


async def test_curl_reads_the_stream() -> None:
    curl = shutil.which("curl")
    if curl is None:
        print("skipped: curl is not installed")
        pytest.skip("curl is not installed")
    body = json.dumps({"prompt": "x", "max_tokens": 30, "stream": True, "ignore_eos": True, "model": "m"})
    async with serving(SimulatedEngine(SPECULATIVE)) as url:
        process = await asyncio.create_subprocess_exec(
            curl, "-sSN", "-m", "20", f"{url}/v1/completions", "-d", body, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
    assert process.returncode == 0
    events = [line for line in out.decode().splitlines() if line]
    assert events[-1] == "data: [DONE]"
    assert 8 <= len(events) <= 31


@pytest.mark.parametrize(
    ("body", "status", "kind", "param", "words"),
    [
        ("{", 400, "Bad Request", "body.1", "JSON decode error"),
        ("[]", 400, "Bad Request", "body", "JSON object"),
        ({}, 400, "Bad Request", "body.messages", "Field required"),
        ({"messages": "x"}, 400, "Bad Request", "body.messages", "valid list"),
        ({**HELLO, "model": "other"}, 404, "NotFoundError", "model", "`other` does not exist"),
        ({**HELLO, "max_tokens": 0}, 400, "BadRequestError", "max_tokens", "at least 1"),
        ({**HELLO, "max_tokens": 99999}, 400, "BadRequestError", "max_tokens", "cannot be greater than max_model_len"),
        ({**HELLO, "max_tokens": "9"}, 400, "Bad Request", "body.max_tokens", "valid integer"),
        ({**HELLO, "n": 2}, 400, "BadRequestError", "n", "n=1"),
        ({**HELLO, "temperature": -1}, 400, "BadRequestError", "temperature", "non-negative"),
        ({**HELLO, "stream": "yes"}, 400, "Bad Request", "body.stream", "boolean"),
        ({**HELLO, "stream_options": {}}, 200, None, None, None),
        ({**HELLO, "stream_options": {"include_usage": True}}, 400, "BadRequestError", "stream_options", "stream=True"),
        ({**HELLO, "min_p": 0.1}, 400, "BadRequestError", None, "min_p and logit_bias"),
        ({**HELLO, "logit_bias": {"5": 1}}, 400, "BadRequestError", None, "not yet supported with speculative"),
        ({**HELLO, "min_p": 0.0, "logit_bias": {}}, 200, None, None, None),
    ],
)
async def test_errors_are_those_of_the_real_engine(
    http: httpx.AsyncClient, body: Any, status: int, kind: str | None, param: str | None, words: str | None
) -> None:
    raw = body if isinstance(body, str) else json.dumps({"max_tokens": 4, **body} if isinstance(body, dict) else body)
    async with serving(SimulatedEngine(SPECULATIVE)) as url:
        answer = await http.post(f"{url}/v1/chat/completions", content=raw)
        assert answer.status_code == status, answer.text
        if kind is not None and words is not None:
            error = answer.json()["error"]
            assert (error["type"], error["param"], error["code"]) == (kind, param, status)
            assert words in error["message"]
        assert await value(http, url, "num_requests_running") == 0


async def test_a_plain_engine_takes_what_a_speculative_one_refuses(http: httpx.AsyncClient) -> None:
    async with serving(SimulatedEngine(PLAIN)) as url:
        body = {**HELLO, "max_tokens": 3, "min_p": 0.1, "logit_bias": {"5": 1}}
        answer = await http.post(f"{url}/v1/chat/completions", json=body)
        assert answer.status_code == 200
        assert answer.json()["metrics"] is None
        missing = await http.post(f"{url}/v1/completions", json={"model": "m"})
        assert missing.json()["error"]["param"] == "body.prompt"
        ids = await http.post(f"{url}/v1/completions", json={"prompt": [1, 2, 3], "max_tokens": 2})
        assert ids.json()["usage"]["prompt_tokens"] == 3


async def test_small_pages(http: httpx.AsyncClient) -> None:
    async with serving(SimulatedEngine(SPECULATIVE)) as url:
        assert (await http.get(f"{url}/health")).status_code == 200
        version = await http.get(f"{url}/version")
        assert version.json() == {"version": "simulated"}
        assert version.headers["server"] == "adaptive-gamma-simulated-engine"
        assert (await http.get(f"{url}/load")).json() == {"server_load": 0}
        assert (await http.get(f"{url}/nowhere")).status_code == 404
        assert (await http.get(f"{url}/v1/completions")).status_code == 405
        metrics = await http.get(f"{url}/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_the_api_key_guards_v1_only(http: httpx.AsyncClient) -> None:
    async with serving(SimulatedEngine(EngineSettings(model="m", api_key="s3cret"))) as url:
        denied = await http.get(f"{url}/v1/models")
        assert (denied.status_code, denied.json()) == (401, {"error": "Unauthorized"})
        for header, status in (("Bearer wrong", 401), ("Basic s3cret", 401), ("bearer s3cret", 200)):
            answer = await http.get(f"{url}/v1/models", headers={"authorization": header})
            assert answer.status_code == status
        for page in ("/metrics", "/health", "/version"):
            assert (await http.get(url + page)).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_its_place_at_once(http: httpx.AsyncClient, stream: bool) -> None:
    settings = EngineSettings(model="m", gamma=2, step_clock=FAST, limits=CoreLimits(max_num_seqs=1))
    async with serving(SimulatedEngine(settings)) as url:
        host, port = url.removeprefix("http://").split(":")
        body = json.dumps({**HELLO, "max_tokens": 8000, "ignore_eos": True, "stream": stream}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        writers = []
        for _ in range(2):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(head + body)
            writers.append(writer)
        await until(http, url, "num_requests_waiting", 1)
        assert await value(http, url, "num_requests_running") == 1
        assert await value(http, url, "kv_cache_usage_perc") > 0
        for writer in writers:
            writer.close()
            await writer.wait_closed()
        await until(http, url, "num_requests_running", 0)
        assert await value(http, url, "num_requests_waiting") == 0
        assert await value(http, url, "kv_cache_usage_perc") == 0
        assert await value(http, url, "request_success_total", finished_reason="abort") == 2


async def test_running_and_waiting_are_live_and_every_token_is_counted(http: httpx.AsyncClient) -> None:
    settings = EngineSettings(model="m", gamma=3, step_clock=FAST, limits=CoreLimits(max_num_seqs=4))
    async with serving(SimulatedEngine(settings)) as url:
        body = {**HELLO, "max_tokens": 300, "ignore_eos": True}
        posts = [asyncio.create_task(http.post(f"{url}/v1/chat/completions", json=body)) for _ in range(10)]
        await until(http, url, "num_requests_waiting", 6)
        assert await value(http, url, "num_requests_running") == 4
        assert (await http.get(f"{url}/load")).json() == {"server_load": 10}
        answers = await asyncio.gather(*posts)
        assert [answer.json()["usage"]["completion_tokens"] for answer in answers] == [300] * 10
        assert await value(http, url, "generation_tokens_total") == 3000
        drafts = await value(http, url, "spec_decode_num_drafts_total")
        assert await value(http, url, "spec_decode_num_draft_tokens_total") == 3 * drafts > 0
        assert await value(http, url, "num_requests_running") == 0


async def test_data_parallel_ranks_share_the_load(http: httpx.AsyncClient) -> None:
    settings = EngineSettings(model="m", gamma=1, step_clock=FAST, engines=3, created_series=False)
    async with serving(SimulatedEngine(settings)) as url:
        body = {**HELLO, "max_tokens": 50, "ignore_eos": True}
        await asyncio.gather(*(http.post(f"{url}/v1/chat/completions", json=body) for _ in range(6)))
        for rank in ("0", "1", "2"):
            assert await value(http, url, "generation_tokens_total", engine=rank) == 100
        assert "_created" not in (await http.get(f"{url}/metrics")).text


async def test_the_class_decides_acceptance_and_it_changes_at_run_time(http: httpx.AsyncClient) -> None:
    settings = EngineSettings(
        model="m",
        gamma=3,
        step_clock=FAST,
        acceptance={"structured": (1.0,), "chat": (0.0,)},
        classify=lambda prompt: "code" if "def " in prompt else "prose",
        acceptance_report="detailed",
        time_scale=10,
    )
    async with serving(SimulatedEngine(settings)) as url:

        async def accepted(prompt: str) -> list[int]:
            body = {"prompt": prompt, "max_tokens": 41, "ignore_eos": True}
            answer = (await http.post(f"{url}/v1/completions", json=body)).json()
            steps: list[int] = answer["metrics"]["speculative_decoding"]["per_step_accepted"]
            return steps

        assert await accepted("def f():") == [3] * 10
        assert await accepted("Dear aunt,") == [0] * 40
        changed = await http.post(f"{url}/simulate/acceptance", json={"chat": [1.0, 0.0]})
        assert changed.json() == {"structured": [1.0], "chat": [1.0, 0.0]}
        assert await accepted("Dear aunt,") == [1] * 20
        assert (await http.post(f"{url}/simulate/acceptance", json={"chat": [2]})).status_code == 400


async def test_metrics_faults(http: httpx.AsyncClient) -> None:
    async with serving(SimulatedEngine(SPECULATIVE, faults=Faults(metrics="html"))) as url:
        page = await http.get(f"{url}/metrics")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")

        async def fault(**faults: Any) -> httpx.Response:
            answer = await http.post(f"{url}/simulate/faults", json=faults)
            assert answer.status_code == 200
            return await http.get(f"{url}/metrics")

        assert (await fault(metrics="empty")).content == b""
        assert (await fault(metrics="500")).status_code == 500
        cut = (await fault(metrics="cut")).text
        assert cut.startswith("# HELP")
        assert not cut.endswith("\n")
        whole = (await fault(metrics=None)).text
        assert whole.startswith(cut)
        await http.post(f"{url}/simulate/faults", json={"metrics": "silent"})
        with pytest.raises(httpx.ReadTimeout):
            await http.get(f"{url}/metrics", timeout=0.2)
        await http.post(f"{url}/simulate/faults", json={"health": 503})
        assert (await http.get(f"{url}/health")).status_code == 503
        wrong = await http.post(f"{url}/simulate/faults", json={"metric": "html"})
        assert "did you mean 'metrics'" in wrong.json()["error"]["message"]
        assert (await http.post(f"{url}/simulate/faults", json={"metrics": "odd"})).status_code == 400
    async with serving(SimulatedEngine(EngineSettings(statistics=False))) as url:
        assert (await http.get(f"{url}/metrics")).content == b""


@pytest.mark.parametrize("stream", [True, False])
async def test_generation_faults(http: httpx.AsyncClient, stream: bool) -> None:
    faults = Faults(after_events=2)
    engine = SimulatedEngine(SPECULATIVE, faults=faults)
    body = {**HELLO, "max_tokens": 100, "ignore_eos": True, "stream": stream}
    async with serving(engine) as url:

        async def generate(fault: str, timeout: float = 20) -> httpx.Response:
            faults.generation = fault
            return await http.post(f"{url}/v1/chat/completions", json=body, timeout=timeout)

        assert (await generate("500")).status_code == 500
        assert (await generate("503")).status_code == 503
        answer = await generate("error_event")
        if stream:
            lines = [line for line in answer.text.splitlines() if line]
            assert len(lines) == 1 + 2 + 1 + 1
            assert json.loads(lines[-2].removeprefix("data: "))["error"]["code"] == 500
            assert lines[-1] == "data: [DONE]"
        else:
            assert answer.status_code == 500
        with pytest.raises(httpx.RemoteProtocolError):
            await generate("cut")
        with pytest.raises(httpx.ReadTimeout):
            await generate("silent", timeout=0.3)
        await until(http, url, "num_requests_running", 0)
    assert engine.ranks.open_requests == 0


async def test_stopping_ends_open_streams_with_abort(http: httpx.AsyncClient) -> None:
    engine = SimulatedEngine(SPECULATIVE)
    body = {**HELLO, "max_tokens": 8000, "ignore_eos": True, "stream": True}
    async with serving(engine) as url:
        post = asyncio.create_task(http.post(f"{url}/v1/chat/completions", json=body))
        await until(http, url, "num_requests_running", 1)
    lines = [line for line in (await post).text.splitlines() if line]
    assert json.loads(lines[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "abort"
    assert lines[-1] == "data: [DONE]"
