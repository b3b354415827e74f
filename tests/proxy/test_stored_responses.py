"""Responses that an engine stores, and the requests that go on from them."""

from __future__ import annotations

import json
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.config import Settings
from adaptive_gamma.proxy.stored_responses import ResponseIdListener, StoredResponses, response_id_of
from tests.support.gated_engine import EngineExchange, GatedEngine
from tests.support.raw_client import post
from tests.support.running_proxy import RunningProxy, running_proxy


class StoringEngine:
    """Answers /v1/responses, keeps what it answered, and knows nothing of other engines."""

    def __init__(self, name: str, *, stream: bool = False) -> None:
        self.name = name
        self.stored: set[str] = set()
        self._stream = stream

    async def __call__(self, x: EngineExchange) -> None:
        target, count = x.request.target, len(self.stored)
        if target.startswith("/v1/responses/"):
            self._found(x, target.removeprefix("/v1/responses/").removesuffix("/cancel"))
            return
        body = json.loads(x.request.body)
        previous = body.get("previous_response_id")
        if previous is not None and previous not in self.stored:
            self._found(x, str(previous))
            return
        made = f"resp_{self.name}{count}"
        self.stored.add(made)
        if not self._stream:
            x.answer(
                200, json.dumps({"id": made, "object": "response"}).encode(), [("content-type", "application/json")]
            )
            return
        x.head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
        x.chunk(b"event: response.created\n")
        event = json.dumps({"response": {"id": made, "output": []}, "type": "response.created"}).encode()
        for part in (b"data: ", event[:9], event[9:], b"\n\n", b'data: {"delta": "x"}\n\n'):
            x.chunk(part)
        x.end()

    def _found(self, x: EngineExchange, response_id: str) -> None:
        known = response_id in self.stored
        x.answer(200 if known else 404, b'{"id": "%b"}' % response_id.encode(), [("content-type", "application/json")])


async def _ask(proxy: RunningProxy, **fields: Any) -> tuple[str, str]:
    answer = await proxy.ask(post("/v1/responses", {"input": "x", **fields}))
    assert answer.status == 200, answer.body
    text = answer.body.decode()
    made = text[text.index("resp_") :].split('"')[0]
    return made, answer.one("x-adaptive-gamma-replica") or ""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["act", "observe"])
async def test_a_conversation_stays_on_its_replica(stream: bool, mode: str) -> None:
    async with (
        GatedEngine(StoringEngine("a", stream=stream)) as one,
        GatedEngine(StoringEngine("b", stream=stream)) as two,
        running_proxy([one, two], mode=mode, affinity={"entries": 0}) as proxy,
    ):
        starts = [await _ask(proxy) for _ in range(20)]
        assert {replica for _, replica in starts} == {"r0", "r1"}
        for response_id, replica in starts:
            for _ in range(3):
                response_id, again = await _ask(proxy, previous_response_id=response_id)
                assert again == replica
        assert (await proxy.decisions())[0]["decision"]["reason"] == "capability"
        page = (await proxy.admin("/metrics")).body.decode()
        assert "adaptive_gamma_stored_responses 80.0" in page


async def test_a_stored_response_is_asked_for_where_it_is() -> None:
    async with (
        GatedEngine(StoringEngine("a")) as one,
        GatedEngine(StoringEngine("b")) as two,
        running_proxy([one, two]) as proxy,
    ):
        made = [(await _ask(proxy))[0] for _ in range(20)]
        asked = len(one.requests) + len(two.requests)
        for response_id in made:
            answer = await proxy.ask(f"GET /v1/responses/{response_id} HTTP/1.1\r\nhost: a\r\n\r\n".encode(), "GET")
            assert (answer.status, answer.one("x-adaptive-gamma-reason")) == (200, "search")
            answer = await proxy.ask(post(f"/v1/responses/{response_id}/cancel", {}))
            assert answer.status == 200
        assert len(one.requests) + len(two.requests) == asked + 40, "nobody was asked in vain"


async def test_one_that_is_not_known_is_searched_for_and_then_known() -> None:
    async with (
        GatedEngine(StoringEngine("a")) as one,
        GatedEngine(StoringEngine("b")) as two,
        running_proxy([one, two]) as proxy,
    ):
        script = two.script
        assert isinstance(script, StoringEngine)
        script.stored.add("resp_old")
        for _ in range(3):
            answer = await proxy.ask(b"GET /v1/responses/resp_old HTTP/1.1\r\nhost: a\r\n\r\n", "GET")
            assert answer.one("x-adaptive-gamma-replica") == "r1"
        assert len(one.requests) <= 1
        assert (await _ask(proxy, previous_response_id="resp_old"))[1] == "r1"
        assert (await proxy.ask(b"GET /v1/responses/none HTTP/1.1\r\nhost: a\r\n\r\n", "GET")).status == 404


async def test_what_is_not_stored_is_not_remembered() -> None:
    async with GatedEngine(StoringEngine("a")) as one, running_proxy([one]) as proxy:
        await _ask(proxy, store=False)
        assert len(proxy.plane.stored) == 0
        values = proxy.plane.settings.model_dump(by_alias=True)
        await _ask(proxy)
        assert len(proxy.plane.stored) == 1
        proxy.plane.apply(Settings(**{**values, "capability": {"stored_responses": 0}}), proxy.plane.policy)
        await _ask(proxy)
        assert len(proxy.plane.stored) == 0
        assert (await proxy.ask(post("/v1/responses", {"input": "x", "previous_response_id": 7}))).status == 404


async def test_a_holder_that_died_leaves_the_answer_to_another_engine() -> None:
    async with (
        GatedEngine(StoringEngine("a")) as one,
        GatedEngine(StoringEngine("b")) as two,
        running_proxy([one, two]) as proxy,
    ):
        replica = ""
        while replica != "r1":
            made, replica = await _ask(proxy)
        await two.__aexit__(None, None, None)
        answer = await proxy.ask(post("/v1/responses", {"input": "x", "previous_response_id": made}))
        assert (answer.status, answer.one("x-adaptive-gamma-replica")) == (404, "r0")


def test_ids_in_paths() -> None:
    assert response_id_of("/v1/responses/resp_1") == "resp_1"
    assert response_id_of("/v1/responses/resp_1/cancel") == "resp_1"
    assert response_id_of("/v1/responses") is None


def test_memory_is_bounded_and_the_longest_unused_go_first() -> None:
    tracemalloc.start()
    try:
        stored = StoredResponses(10_000)
        for n in range(50_000):
            stored.put(f"resp_{n}", "r0")
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(stored) == 10_000
    assert used < 10_000 * 250
    stored = StoredResponses(2)
    stored.put("a", "r0")
    stored.put("b", "r1")
    assert stored.holder("a") == "r0"
    stored.put("c", "r2")
    assert (stored.holder("a"), stored.holder("b"), stored.holder("c")) == ("r0", None, "r2")


@given(
    cuts=st.lists(st.integers(0, 200), max_size=8),
    first=st.sampled_from([{}, {"object": "response"}, {"output": [{"id": "msg_1"}]}]),
    stream=st.booleans(),
    more=st.integers(0, 100_000),
)
def test_an_id_is_found_however_the_bytes_come(cuts: list[int], first: dict[str, Any], stream: bool, more: int) -> None:
    response = {**first, "id": "resp_x", "text": "t" * more}
    if stream:
        event = json.dumps({"type": "response.created", "response": response if more < 60_000 else {"id": "resp_x"}})
        body = f"event: response.created\r\ndata: {event}\r\n\r\ndata: [DONE]\n\n".encode()
    else:
        body = json.dumps(response).encode()
    stored = StoredResponses(9)
    listener = ResponseIdListener(stored, "r0", stream=stream)
    edges = [0, *sorted(cuts), len(body)]
    for start, end in pairwise(edges):
        listener.feed([body[start:end]])
    listener.finish(whole=True)
    assert stored.holder("resp_x") == "r0"
    assert len(stored) == 1


@given(st.lists(st.binary(max_size=300), max_size=20), st.booleans())
def test_any_answer_is_harmless(pieces: list[bytes], stream: bool) -> None:
    stored = StoredResponses(9)
    listener = ResponseIdListener(stored, "r0", stream=stream)
    for piece in pieces:
        listener.feed([piece])
    listener.finish(whole=True)


def test_a_long_answer_without_an_id_is_not_kept() -> None:
    for stream, limit in ((True, 1 << 17), (False, 1 << 21)):
        listener = ResponseIdListener(StoredResponses(9), "r0", stream=stream)
        tracemalloc.start()
        try:
            for _ in range(1000):
                listener.feed([b"x" * 16_384])
            used, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert used < limit


async def test_an_empty_fleet_says_so() -> None:
    """Replicas that are all found may all go; a search then has nobody to ask."""
    async with GatedEngine(StoringEngine("a")) as engine, running_proxy([engine]) as proxy:
        proxy.plane.take_replicas([])
        for request, method in ((b"GET /v1/responses/resp_a HTTP/1.1\r\nhost: a\r\n\r\n", "GET"), (post(), "POST")):
            answer = await proxy.ask(request, method)
            error = json.loads(answer.body)["error"]
            assert (answer.status, error["code"]) == (503, "no_replica")
            assert error["message"] == "no replica can take the request (the fleet is empty)"
