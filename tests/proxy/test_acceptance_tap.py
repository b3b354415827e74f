"""What the proxy learns from the answers it passes on, and that it passes them on as they are."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.config.settings import HealthSettings, ReplicaSettings, ScrapeSettings
from adaptive_gamma.engines import RequestAcceptance
from adaptive_gamma.fleet import Fleet, FleetReplica
from adaptive_gamma.proxy.asking import ReportLog
from adaptive_gamma.proxy.learning import ResponseTap
from tests.proxy.reports import (
    DONE,
    HELLO,
    REPORT,
    STREAM,
    chunk,
    event_stream,
    learning_proxy,
    stream_body,
    usage_chunk,
)
from tests.support.acceptance_recorder import AcceptanceRecorder
from tests.support.gated_engine import EngineExchange, GatedEngine, answer_json
from tests.support.raw_client import post

ANSWER: dict[str, Any] = {
    "id": "chatcmpl-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "one two"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "total_tokens": 4, "completion_tokens": 3},
    "metrics": {"speculative_decoding": REPORT},
}


def a_tap(*, stream: bool, engine: str = "vllm", gamma: int | str = 3) -> tuple[ResponseTap, AcceptanceRecorder]:
    fleet = Fleet(
        [ReplicaSettings(name="r0", url="http://127.0.0.1:9", engine=engine, gamma=gamma)],  # type: ignore[arg-type]
        scrape=ScrapeSettings(),
        health=HealthSettings(),
    )
    fleet.learning = recorder = AcceptanceRecorder()
    kind = b"text/event-stream" if stream else b"application/json"
    tap = ResponseTap.wanted(fleet, "r0", 200, [(b"content-type", kind)], request_class="chat", log=ReportLog())
    assert tap is not None
    return tap, recorder


async def test_a_json_answer_is_learned_from() -> None:
    async with GatedEngine(answer_json(200, ANSWER)) as engine, learning_proxy(engine) as (proxy, learned):
        answer = await proxy.ask(post(body=HELLO, headers=(("x-adaptive-gamma-class", "code"),)))
        assert json.loads(answer.body) == ANSWER
        assert learned.notes == [
            (
                "r0",
                "structured",
                RequestAcceptance(drafts=5, draft_tokens=15, accepted_tokens=4, histogram=(2, 2, 1, 0), gamma=3),
            )
        ]


async def test_gamma_and_acceptance_come_from_one_answer() -> None:
    async with (
        GatedEngine(answer_json(200, ANSWER)) as engine,
        learning_proxy(engine, gamma="auto") as (proxy, learned),
    ):
        assert (await proxy.ask(post(body=HELLO))).one("x-adaptive-gamma-gamma") is None
        assert (await proxy.ask(post(body=HELLO))).one("x-adaptive-gamma-gamma") == "3"
        assert len(learned.notes) == 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {**HELLO, "n": 2}),
        ("/v1/completions", {"model": "m", "prompt": ["a", "b"]}),
        ("/v1/completions", {"model": "m", "prompt": "a", "best_of": 3}),
        ("/v1/embeddings", {"model": "m", "input": "a"}),
    ],
)
async def test_requests_of_several_sequences_or_none_are_not_learned_from(path: str, body: dict[str, Any]) -> None:
    async with GatedEngine(answer_json(200, ANSWER)) as engine, learning_proxy(engine) as (proxy, learned):
        assert json.loads((await proxy.ask(post(path, body=body))).body) == ANSWER
        assert learned.notes == []


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (json.dumps({**ANSWER, "choices": [1, 2]}).encode(), {}),
        (json.dumps({**ANSWER, "metrics": None}).encode(), {}),
        (json.dumps([ANSWER]).encode(), {}),
        (json.dumps(ANSWER).encode()[:-9], {}),
        (json.dumps(ANSWER).encode() + b"]", {}),
        (json.dumps({**ANSWER, "pad": "x" * (1 << 20)}).encode(), {}),
        (gzip.compress(json.dumps(ANSWER).encode(), mtime=0), {"content-encoding": "gzip"}),
        (json.dumps(ANSWER).encode(), {"content-encoding": "zstd"}),
        (b'{"speculative_decoding":' + b"[" * 9999, {}),
        (b"\xff\xfe\x00", {}),
        (b"", {}),
    ],
)
async def test_odd_bodies_pass_and_teach_nothing(body: bytes, headers: dict[str, str]) -> None:
    async def script(exchange: EngineExchange) -> None:
        exchange.answer(200, body, [("content-type", "application/json"), *headers.items()])

    async with GatedEngine(script) as engine, learning_proxy(engine) as (proxy, learned):
        answer = await proxy.ask(post(body=HELLO))
        assert (answer.complete, answer.body) == (True, body)
        assert learned.notes == []


@pytest.mark.parametrize("status", [201, 400, 500])
async def test_only_good_answers_are_learned_from(status: int) -> None:
    async with GatedEngine(answer_json(status, ANSWER)) as engine, learning_proxy(engine) as (proxy, learned):
        assert (await proxy.ask(post(body=HELLO))).status == status
        assert learned.notes == []


async def test_a_plain_replicas_answers_are_not_looked_at() -> None:
    async with GatedEngine(answer_json(200, ANSWER)) as engine, learning_proxy(engine, gamma=0) as (proxy, learned):
        await proxy.ask(post(body=HELLO))
        assert learned.notes == []


async def test_streams_of_clients_that_ask_for_usage() -> None:
    body = {**STREAM, "stream_options": {"include_usage": True}}
    async with GatedEngine(event_stream()) as engine, learning_proxy(engine) as (proxy, learned):
        for path in ("/v1/chat/completions", "/v1/completions"):
            assert (await proxy.ask(post(path, body=body))).body == stream_body(usage=True)
        assert learned.replicas == ["r0", "r0"]


async def test_llamacpp_reports_in_its_last_chunk() -> None:
    last = chunk(
        "", choices=[{"finish_reason": "stop"}], timings={"predicted_n": 40, "draft_n": 60, "draft_n_accepted": 24}
    )

    async def script(exchange: EngineExchange) -> None:
        if exchange.request.method == "POST":
            exchange.head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
            for part in (chunk("one"), last, DONE):
                exchange.chunk(part)
            exchange.end()
        else:
            exchange.answer(404, b"")

    async with GatedEngine(script) as engine, learning_proxy(engine, kind="llamacpp") as (proxy, learned):
        answer = await proxy.ask(post(body=STREAM))
        assert answer.chunks == [chunk("one"), last, DONE]
        (note,) = learned.notes
        assert (note[2].draft_tokens, note[2].accepted_tokens, note[2].most_drafts) == (60, 24, 16)


class Broken(AcceptanceRecorder):
    """Learning that meets a fault of ours."""

    def note_acceptance(self, replica: FleetReplica, request_class: str, acceptance: RequestAcceptance) -> None:
        raise ZeroDivisionError(request_class)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_fault_in_learning_harms_no_answer(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    script = event_stream() if stream else answer_json(200, ANSWER)
    async with GatedEngine(script) as engine, learning_proxy(engine, learn={"ask": "usage"}) as (proxy, _):
        proxy.plane.fleet.learning = Broken()
        for _ in range(2):
            answer = await proxy.ask(post(body=STREAM if stream else HELLO))
            assert answer.complete
        await proxy.ended(ok=2)
    assert sum("met a fault" in record.message for record in caplog.records) == 2


@given(st.data(), st.sampled_from([b"\n", b"\r\n"]))
def test_a_stream_in_any_pieces_tells_the_same(data: st.DataObject, end: bytes) -> None:
    text = data.draw(st.text(max_size=40))
    before = [chunk(text), chunk('data: {"speculative_decoding": {}}'), b": ping\n\n"]
    body = b"".join([*before, usage_chunk(), *data.draw(st.sampled_from([[], [DONE], [b": bye\n\n", DONE]]))])
    body = body.replace(b"\n", end)
    cuts = [0, *sorted(data.draw(st.sets(st.integers(0, len(body)), max_size=20))), len(body)]
    tap, recorder = a_tap(stream=True)
    for start, stop in pairwise(cuts):
        pieces = [body[start:stop]]
        assert tap.feed(pieces) is pieces
    assert recorder.notes == [], "it looks once, at the end"
    assert tap.finish() == b""
    assert [note[2].histogram for note in recorder.notes] == [(2, 2, 1, 0)]


@given(st.lists(st.binary(max_size=60), max_size=12), st.booleans(), st.sampled_from(["vllm", "llamacpp", "sglang"]))
def test_no_bytes_upset_a_tap(pieces: list[bytes], stream: bool, engine: str) -> None:
    marks = [b'"speculative_decoding"', b'data: {"draft_n":', b'\ndata:{"spec_verify_ct"\r', b"\n"]
    tap, recorder = a_tap(stream=stream, engine=engine)
    for index, piece in enumerate(pieces):
        assert tap.feed([piece, marks[index % 4]]) == [piece, marks[index % 4]]
    assert tap.finish() == b""
    assert recorder.notes == []


@pytest.mark.parametrize("tail", [0, 100, 15_000])
def test_a_long_stream_takes_little_memory(tail: int) -> None:
    tap, recorder = a_tap(stream=True)
    piece = chunk("word " * 20)
    tracemalloc.start()
    try:
        for _ in range(20_000):
            tap.feed([piece])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 256 * 1024
    tap.feed([usage_chunk(), b": " + b"x" * tail + b"\n\n", DONE])
    tap.finish()
    assert len(recorder.notes) == 1


def test_a_report_step_by_step_is_read_whole() -> None:
    steps = 16_000
    report = {
        "acceptance_histogram": [0, 0, 0, steps],
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": 3 * steps,
        "num_draft_tokens": 3 * steps,
        "num_spec_tokens": 3,
        "per_step_accepted": [3] * steps,
        "per_step_drafted": [3] * steps,
    }
    event = usage_chunk(report)
    assert len(event) > 60_000
    for size in (1000, 65_536):
        tap, recorder = a_tap(stream=True)
        body = chunk("one") * 200 + event + DONE
        for start in range(0, len(body), size):
            tap.feed([body[start : start + size]])
        tap.finish()
        assert [note[2].trials for note in recorder.notes] == [((steps, steps),) * 3]


def test_a_line_without_end_is_not_kept() -> None:
    tap, recorder = a_tap(stream=True)
    tap.feed([b"data: "])
    for _ in range(1000):
        tap.feed([b"x" * 4096])
        kept = tap._kept
        assert kept is not None
        assert len(kept) <= 256 * 1024 + 4096
    tap.feed([b"\n\n", usage_chunk(), DONE])
    tap.finish()
    assert len(recorder.notes) == 1


def test_the_end_of_a_stream_that_broke_off_inside_the_report_tells_nothing() -> None:
    for cut in range(1, len(usage_chunk()) - 1, 7):
        tap, recorder = a_tap(stream=True)
        tap.feed([chunk("one"), usage_chunk()[:cut]])
        tap.finish(whole=False)
        assert recorder.notes == []


def test_a_replica_that_never_reports_is_looked_at_now_and_then() -> None:
    log = ReportLog()
    for _ in range(32):
        assert log.worth_a_look("r0", "stream")
        log.looked("r0", "stream", reported=False)
    assert [log.worth_a_look("r0", "stream") for _ in range(64)] == [*[False] * 31, True] * 2
    assert log.worth_a_look("r0", "body")
    assert log.worth_a_look("r1", "stream")
    log.looked("r0", "stream", reported=True)
    assert log.worth_a_look("r0", "stream")
    assert log.reports == {"r0": 1}
    log.keep_only(frozenset({"r1"}))
    assert log.reports == {}


async def test_one_answer_in_32_of_a_silent_replica_is_looked_at() -> None:
    asked = 0

    async def reports_late(exchange: EngineExchange) -> None:
        nonlocal asked
        asked += 1
        answer = ANSWER if asked > 32 else {**ANSWER, "metrics": None}
        exchange.answer(200, json.dumps(answer).encode(), [("content-type", "application/json")])

    async with GatedEngine(reports_late) as engine, learning_proxy(engine) as (proxy, learned):
        for _ in range(32 + 31):
            await proxy.ask(post(body=HELLO))
        assert learned.notes == []
        await proxy.ask(post(body=HELLO))
        assert len(learned.notes) == 1
        await proxy.ask(post(body=HELLO))
        assert len(learned.notes) == 2
