"""Which replica serves, and what is said about it."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from adaptive_gamma.routing.json_request import parse_json
from tests.support.gated_engine import EngineExchange, GatedEngine, answer_json, until
from tests.support.raw_client import post
from tests.support.running_proxy import running_proxy

CODE = {
    "messages": [{"role": "user", "content": "```python\ndef f(x):\n    return x\n```\nfix the bug in this function"}]
}


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


async def test_models_page_is_the_union_once_known() -> None:
    async with (
        GatedEngine(models=["a", "b"]) as one,
        GatedEngine(models=["b", "c"]) as two,
        running_proxy([one, two]) as proxy,
    ):
        await proxy.plane.fleet.check_health_once()
        answer = await proxy.ask(b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n", "GET")
        assert [entry["id"] for entry in json.loads(answer.body)["data"]] == ["a", "b", "c"]
        assert answer.one("x-request-id")
        assert one.requests == two.requests == []
        await proxy.ask(b"HEAD /v1/models HTTP/1.1\r\nhost: a\r\n\r\n", "HEAD")


async def test_models_page_passes_while_unknown() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n", "GET")
        assert answer.status == 500
        assert answer.one("x-adaptive-gamma-replica") == "r0"


async def test_model_decides_the_replica() -> None:
    async with GatedEngine(models=["a"]) as one, GatedEngine(models=["b"]) as two, running_proxy([one, two]) as proxy:
        await proxy.plane.fleet.check_health_once()
        for model, replica in (("a", "r0"), ("b", "r1")):
            answer = await proxy.ask(post(body={"model": model, "prompt": "x"}))
            assert answer.one("x-adaptive-gamma-replica") == replica
        answer = await proxy.ask(post(body={"model": "c", "prompt": "x"}))
        assert (answer.status, answer.error_code) == (404, "model_not_found")
        assert proxy.count("client_error", "none") == 1


async def test_unknown_model_passes_while_some_list_is_unknown() -> None:
    async with GatedEngine(models=["a"]) as one, GatedEngine() as two, running_proxy([one, two]) as proxy:
        await proxy.plane.fleet.check_health_once()
        answer = await proxy.ask(post(body={"model": "c", "prompt": "x"}))
        assert answer.one("x-adaptive-gamma-replica") == "r1"


async def test_class_from_the_prompt() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        assert (await proxy.ask(post(body=CODE))).one("x-adaptive-gamma-class") == "structured"
        assert (await proxy.ask(post("/v1/embeddings", CODE))).one("x-adaptive-gamma-class") == "unsure"


async def test_class_from_rules() -> None:
    classify = {"rules": [{"path": "/v1/completions", "class": "code"}], "default": "chat"}
    async with GatedEngine() as engine, running_proxy([engine], classify=classify) as proxy:
        answer = await proxy.ask(post("/v1/completions", {"prompt": [1]}))
        assert answer.one("x-adaptive-gamma-class") == "structured"
        assert (await proxy.ask(post(body={"prompt": [1]}))).one("x-adaptive-gamma-class") == "chat"


async def test_load_spreads_by_own_open_requests() -> None:
    async with GatedEngine(_silent) as one, GatedEngine(_silent) as two, running_proxy([one, two]) as proxy:
        await until(lambda: all(r.scraped_at is not None for r in proxy.plane.fleet.replicas), "first scrapes")
        clients = [proxy.client() for _ in range(20)]
        for client in clients:
            await client.__aenter__()
            client.send(post())
        await until(lambda: len(one.requests) + len(two.requests) == 20, "all arrived")
        assert len(one.requests) == len(two.requests) == 10
        for client in clients:
            client.drop()
        await proxy.counted("client_closed", 20)


async def test_decisions_page() -> None:
    async with GatedEngine() as engine, running_proxy([engine], gammas=[4]) as proxy:
        await proxy.ask(post(headers=(("x-request-id", "first"),)))
        await proxy.ask(post(headers=(("x-request-id", "second"),)))
        page = json.loads((await proxy.admin("/decisions?limit=5")).body)["decisions"]
        assert [entry["request_id"] for entry in page] == ["second", "first"]
        entry = page[0]
        assert entry["outcome"] == "ok"
        assert entry["status"] == 200
        assert entry["mode"] == "act"
        assert entry["path"] == "/v1/chat/completions"
        assert entry["model"] == "m"
        assert entry["sent_to"] == entry["decision"]["replica"] == "r0"
        assert entry["decision"]["gamma"] == 4
        assert entry["decision"]["reason"] == "only_replica"
        assert len(json.loads((await proxy.admin("/decisions?limit=1")).body)["decisions"]) == 1
        assert (await proxy.admin("/decisions?limit=0")).status == 422


async def test_decision_log_is_bounded() -> None:
    async with GatedEngine() as engine, running_proxy([engine], decision={"keep": 3}) as proxy:
        for _ in range(5):
            await proxy.ask(post())
        assert len(proxy.plane.decisions) == 3


async def test_retries_leave_one_record_a_try() -> None:
    async with GatedEngine() as dead:
        url = dead.url
    async with GatedEngine(answer_json(503)) as one, running_proxy([one, url]) as proxy:
        while not proxy.retries("rejected_503"):
            await proxy.ask(post())
        page = json.loads((await proxy.admin("/decisions?limit=2")).body)["decisions"]
        assert {(e["sent_to"], e["outcome"]) for e in page} == {("r0", "rejected"), ("r1", "connect_error")}


async def test_observe_records_and_sends_to_the_least_loaded() -> None:
    """The decision prefers the speculative replica; observing, the requests spread."""
    async with (
        GatedEngine(_silent) as one,
        GatedEngine(_silent) as two,
        running_proxy([one, two], gammas=[3, 0], mode="observe") as proxy,
    ):
        await until(lambda: all(r.scraped_at is not None for r in proxy.plane.fleet.replicas), "first scrapes")
        clients = [proxy.client() for _ in range(6)]
        for client in clients:
            await client.__aenter__()
            client.send(post())
        await until(lambda: len(one.requests) + len(two.requests) == 6, "all arrived")
        assert len(one.requests) == len(two.requests) == 3
        for exchange in one.exchanges + two.exchanges:
            exchange.answer(200, b"{}")
        seen = set()
        for client in clients:
            answer = await client.answer()
            assert answer.one("x-adaptive-gamma-reason") == "observe"
            pool = answer.one("x-adaptive-gamma-pool")
            seen.add((answer.one("x-adaptive-gamma-replica"), pool, answer.one("x-adaptive-gamma-gamma")))
            client.drop()
        assert seen == {("r0", "speculative", "3"), ("r1", "plain", "0")}
        page = json.loads((await proxy.admin("/decisions")).body)["decisions"]
        assert {entry["decision"]["replica"] for entry in page} == {"r0"}
        assert {entry["sent_to"] for entry in page} == {"r0", "r1"}
        assert {entry["mode"] for entry in page} == {"observe"}


async def test_stored_responses_are_searched_for() -> None:
    missing = answer_json(404, {"error": {"message": "no such response"}})
    async with (
        GatedEngine(missing) as one,
        GatedEngine(answer_json(200, {"id": "resp_1"})) as two,
        GatedEngine(missing) as three,
        running_proxy([one, two, three]) as proxy,
    ):
        answer = await proxy.ask(b"GET /v1/responses/resp_1?stream=false HTTP/1.1\r\nhost: a\r\n\r\n", "GET")
        assert (answer.status, json.loads(answer.body)) == (200, {"id": "resp_1"})
        assert answer.one("x-adaptive-gamma-replica") == "r1"
        assert (len(one.requests), len(three.requests)) == (1, 0)
        assert two.requests[0].target == "/v1/responses/resp_1?stream=false"
        two.script = missing
        answer = await proxy.ask(post("/v1/responses/resp_2/cancel", b""))
        assert answer.status == 404
        assert b"no such response" in answer.body
        assert three.requests[-1].method == "POST"
        assert proxy.count("client_error") == 1


async def test_multipart_passes_unparsed() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, httpx.AsyncClient() as client:
        url = f"{proxy.server.data.url}/v1/audio/transcriptions"
        response = await client.post(url, files={"file": ("a.wav", b"\x00\xff" * 1000)}, data={"model": "whisper"})
        assert response.status_code == 200
        assert b"\x00\xff" * 1000 in engine.requests[0].body
        kind = engine.requests[0].one("content-type")
        assert kind is not None
        assert kind.startswith(b"multipart/form-data; boundary=")


async def test_delicate_parameters_avoid_speculative_replicas() -> None:
    async with GatedEngine() as one, GatedEngine() as two, running_proxy([one, two], gammas=[3, 0]) as proxy:
        await until(lambda: all(r.scraped_at is not None for r in proxy.plane.fleet.replicas), "first scrapes")
        plain = await proxy.ask(post(body={"prompt": "x", "min_p": 0.1}))
        assert plain.one("x-adaptive-gamma-pool") == "plain"
        assert plain.one("x-adaptive-gamma-reason") == "capability"
        harmless = await proxy.ask(post(body={"prompt": "x", "min_p": 0, "logit_bias": {}}))
        assert harmless.one("x-adaptive-gamma-pool") == "speculative"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"messages": [{"content": "a"}, {"content": [{"type": "text", "text": "b"}, {"type": "image_url"}]}]}, "a\nb"),
        ({"prompt": ["a", "b"]}, "a\nb"),
        ({"prompt": [1, 2, 3]}, ""),
        ({"prompt": [[1, 2], [3]]}, ""),
        ({"input": "a"}, "a"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]}, "a"),
        ({"system": "s", "messages": [{"content": "a"}]}, "s\na"),
        ({"instructions": "s", "input": "a"}, "s\na"),
        ({"messages": "odd"}, "odd"),
        ({"messages": [None, 1, {"content": None}]}, ""),
        ({}, ""),
    ],
)
def test_prompt_text(body: dict[str, object], text: str) -> None:
    assert parse_json(json.dumps(body).encode(), None).prompt_text() == text


def test_prompt_text_is_bounded_and_has_both_ends() -> None:
    body = {"messages": [{"content": f"<{number}>" + "x" * 1000} for number in range(100_000)]}
    text = parse_json(json.dumps(body).encode(), None).prompt_text()
    assert len(text) <= 2 * 4096 + 1
    assert text.startswith("<0>")
    assert "<99999>" in text


@pytest.mark.parametrize("streamed", [False, True])
async def test_gamma_is_learned_from_answers_where_pages_do_not_tell_it(streamed: bool) -> None:
    """llama.cpp tells its draft counts in its answers only; the answers pass as they are."""
    timings = {"timings": {"predicted_n": 10, "draft_n": 12, "draft_n_accepted": 6}}
    text = json.dumps(timings).encode()

    async def script(x: EngineExchange) -> None:
        if not streamed:
            x.answer(200, text, [("content-type", "application/json")])
            return
        x.head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
        x.chunk(b'data: {"content":"a"}\n\ndata: ' + text[:20])
        await asyncio.sleep(0)
        x.chunk(text[20:] + b"\n\ndata: [DONE]\n\n")
        x.end()

    expected = b'data: {"content":"a"}\n\ndata: ' + text + b"\n\ndata: [DONE]\n\n" if streamed else text
    async with GatedEngine(script) as engine:
        replica = {"name": "r0", "url": engine.url, "engine": "llamacpp", "gamma": "auto"}
        async with running_proxy([engine], replicas=[replica]) as proxy:
            assert (await proxy.status())["r0"]["gamma"] is None
            answer = await proxy.ask(post())
            assert (answer.body, answer.complete) == (expected, True)
            assert (await proxy.status())["r0"]["gamma"] == 3
