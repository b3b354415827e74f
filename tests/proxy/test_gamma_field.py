"""A gamma that goes with each request: the engine's bytes, the client's bytes, what is watched, what is left alone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adaptive_gamma.fleet import ReplicaControl
from tests.support.gated_engine import Arrived, EngineExchange, GatedEngine
from tests.support.raw_client import post
from tests.support.running_proxy import RunningProxy, running_proxy

FIELD = "speculative.n_max"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
STEPS, OWN = 40, 8
JSON = [("content-type", "application/json; charset=utf-8")]


class LlamaLike:
    """Answers as llama.cpp does: ``timings`` in the body, or in the last event of a stream."""

    def __init__(self, *, heeds: bool = True) -> None:
        self.heeds = heeds
        self.refuses = False
        self.tells = True

    async def __call__(self, exchange: EngineExchange) -> None:
        if exchange.request.method == "GET":
            exchange.answer(404, b"{}", JSON)
            return
        fields = json.loads(exchange.request.body)
        if self.refuses and FIELD in fields:
            exchange.answer(400, b'{"error":{"code":400,"message":"no such field"}}', JSON)
            return
        drafted = min(fields.get(FIELD, OWN), OWN) if self.heeds else OWN
        timings: dict[str, Any] = {"predicted_n": STEPS + 5}
        if drafted:
            timings = {"predicted_n": STEPS + 5, "draft_n": STEPS * drafted, "draft_n_accepted": 5}
        answer = {"id": "x", "choices": [{"index": 0}], **({"timings": timings} if self.tells else {})}
        if not fields.get("stream"):
            exchange.answer(200, json.dumps(answer).encode(), JSON)
            return
        exchange.head(headers=[("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
        for event in ({"id": "x", "choices": [{"index": 0, "delta": {"content": "a"}}]}, answer):
            exchange.chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
        exchange.chunk(b"data: [DONE]\n\n")
        exchange.end()


def posted(engine: GatedEngine) -> list[Arrived]:
    """The requests that clients sent; the rest are looks at the engine's slots."""
    return [request for request in engine.requests if request.method == "POST"]


@asynccontextmanager
async def proxy_of(*engines: GatedEngine, **settings: Any) -> AsyncIterator[RunningProxy]:
    replicas = [
        {"name": f"r{i}", "url": engine.url, "engine": "llamacpp", "gamma": OWN, "set_gamma": "per_request"}
        for i, engine in enumerate(engines)
    ]
    async with running_proxy(list(engines), **{"replicas": replicas, **settings}) as proxy:
        yield proxy


async def ask(proxy: RunningProxy, count: int = 1, path: str = "/v1/chat/completions", **more: Any) -> None:
    for _ in range(count):
        answer = await proxy.ask(post(path, {**CHAT, **more}))
        assert (answer.status, answer.complete) == (200, True)


def control_of(proxy: RunningProxy, index: int = 0) -> ReplicaControl:
    return proxy.plane.control.controls[index]


async def verified(proxy: RunningProxy, gamma: int = 2) -> None:
    """What the control's loop does once it wants a gamma."""
    control = control_of(proxy)
    await ask(proxy, 2)
    await control.actuator.change(gamma)
    await ask(proxy, 3)
    assert control.actuator.settled()


@pytest.mark.parametrize("stream", [False, True])
async def test_the_field_goes_with_each_request_once_asked_for(stream: bool) -> None:
    async with GatedEngine(LlamaLike()) as engine, proxy_of(engine) as proxy:
        raw = json.dumps({**CHAT, "stream": stream, "note": "Grüße 🙂"}, ensure_ascii=False, indent=2).encode()
        before = await proxy.ask(post(body=raw))
        assert posted(engine)[-1].body == raw
        await ask(proxy, 1, stream=stream)
        control = control_of(proxy)
        assert control.actuator.waits_for is None, "two answers have told what the engine drafts by itself"
        await control.actuator.change(3)
        for _ in range(3):
            after = await proxy.ask(post(body=raw))
            arrived = posted(engine)[-1]
            assert arrived.body == b'{"speculative.n_max":3,' + raw[1:]
            assert arrived.one("content-length") == str(len(arrived.body)).encode()
        assert control.actuator.settled()
        assert control.actuator.gamma == 3
        assert (before.status, after.status) == (200, 200)
        if stream:
            assert after.chunks[0] == before.chunks[0], "the client's stream is the engine's"


async def test_an_engine_that_ignores_it_is_left_alone_from_then_on() -> None:
    async with GatedEngine(LlamaLike(heeds=False)) as engine, proxy_of(engine) as proxy:
        await ask(proxy, 2)
        await control_of(proxy).actuator.change(3)
        await ask(proxy, 3, stream=True)
        assert control_of(proxy).actuator.state == "stopped"
        raw = json.dumps(CHAT).encode()
        await proxy.ask(post(body=raw))
        assert posted(engine)[-1].body == raw
        await proxy.plane.control.look_once()
        row = (await proxy.status())["r0"]
        assert row["set_gamma"]["state"] == "stopped"
        assert any("the engine ignores speculative.n_max" in note for note in row["notes"])
        page = await proxy.metrics()
        assert page.total("actuator_stopped", replica="r0") == 1


async def test_a_client_that_sets_it_itself_is_left_alone_and_not_judged() -> None:
    async with GatedEngine(LlamaLike()) as engine, proxy_of(engine) as proxy:
        await verified(proxy)
        for _ in range(10):
            assert (await proxy.ask(post(body={**CHAT, FIELD: 8}))).status == 200
            assert json.loads(posted(engine)[-1].body)[FIELD] == 8
            assert posted(engine)[-1].body == json.dumps({**CHAT, FIELD: 8}).encode()
        assert control_of(proxy).actuator.state == "verified"


@pytest.mark.parametrize(
    ("path", "carries"),
    [("/v1/chat/completions", True), ("/v1/completions", True), ("/completion", True), ("/v1/messages", False),
     ("/v1/responses", False), ("/v1/embeddings", False), ("/tokenize", False)],
)  # fmt: skip
async def test_only_paths_whose_answers_tell_carry_it(path: str, carries: bool) -> None:
    async with GatedEngine(LlamaLike()) as engine, proxy_of(engine) as proxy:
        await verified(proxy)
        await ask(proxy, path=path)
        assert (FIELD in json.loads(posted(engine)[-1].body)) is carries
        await ask(proxy, path="/completion", prompt="x")
        assert json.loads(posted(engine)[-1].body)[FIELD] == 2


async def test_a_body_that_is_not_utf_8_passes_as_it_came() -> None:
    async with GatedEngine(LlamaLike()) as engine, proxy_of(engine) as proxy:
        await verified(proxy)
        raw = json.dumps(CHAT).encode("utf-16-le")
        await proxy.ask(post(body=raw))
        assert posted(engine)[-1].body == raw


async def test_refusals_of_requests_with_the_field_stop_it() -> None:
    script = LlamaLike()
    async with GatedEngine(script) as engine, proxy_of(engine) as proxy:
        await ask(proxy, 2)
        await control_of(proxy).actuator.change(2)
        script.refuses = True
        statuses = [(await proxy.ask(post(body=CHAT))).status for _ in range(5)]
        assert statuses == [400, 400, 400, 200, 200]
        assert control_of(proxy).actuator.state == "stopped"


async def test_an_engine_that_does_not_tell_stops_it() -> None:
    script = LlamaLike()
    async with GatedEngine(script) as engine, proxy_of(engine) as proxy:
        await ask(proxy, 2)
        await control_of(proxy).actuator.change(2)
        script.tells = False
        await ask(proxy, 4)
        assert control_of(proxy).actuator.state == "verifying"
        await ask(proxy, 4, stream=True)
        assert control_of(proxy).actuator.problem == "8 answers in a row did not tell how much was drafted for them"


async def test_while_observing_nothing_is_put_in() -> None:
    async with GatedEngine(LlamaLike()) as engine, proxy_of(engine, mode="observe") as proxy:
        await ask(proxy, 2)
        await control_of(proxy).actuator.change(2)
        await ask(proxy, 3)
        assert all(FIELD not in json.loads(request.body) for request in posted(engine))


async def test_without_a_replica_that_takes_it_no_answer_is_looked_at() -> None:
    async with GatedEngine(LlamaLike()) as engine, running_proxy([engine], [4]) as proxy:
        assert not proxy.plane.control.active
        await ask(proxy, 3)
        assert (await proxy.status())["r0"]["set_gamma"] is None


async def test_a_retry_elsewhere_carries_what_that_replica_takes() -> None:
    """The first replica's field is its own: the other one gets the client's bytes."""

    async def busy(exchange: EngineExchange) -> None:
        exchange.answer(503, b"{}", JSON)

    async with GatedEngine(LlamaLike()) as one, GatedEngine(busy) as other:
        replicas = [
            {"name": "r0", "url": one.url, "engine": "llamacpp", "gamma": OWN},
            {"name": "r1", "url": other.url, "engine": "llamacpp", "gamma": OWN, "set_gamma": "per_request"},
        ]
        async with running_proxy([one, other], replicas=replicas) as proxy:
            actuator = control_of(proxy).actuator
            for _ in range(3):
                actuator.answered(None, {"timings": {"predicted_n": 45, "draft_n": 320, "draft_n_accepted": 5}})
            await actuator.change(2)
            proxy.plane.fleet.set_draining("r0", True)
            await proxy.ask(post(body=CHAT))
            proxy.plane.fleet.set_draining("r0", False)
            assert json.loads(posted(other)[-1].body)[FIELD] == 2
            for _ in range(12):
                await proxy.ask(post(body=CHAT))
            assert len(posted(other)) > 1, "some met the busy one first"
            assert all(json.loads(request.body)[FIELD] == 2 for request in posted(other))
            assert {request.body for request in posted(one)} == {json.dumps(CHAT).encode()}
