"""Asking an engine for a report in the client's place: what goes to it, and what the client sees."""

from __future__ import annotations

import asyncio
import json
import random
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

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
from tests.support.gated_engine import EngineExchange, GatedEngine, answer_json
from tests.support.raw_client import Answer, post

ASK = {"ask": "usage"}
RECORDED = Path(__file__).resolve().parents[2].parent / "shared/data/vllm/responses"
ASKED = {**STREAM, "stream_options": {"include_usage": True}}


def body_at(engine: GatedEngine, index: int = -1) -> bytes:
    request = [request for request in engine.requests if request.method == "POST"][index]
    assert request.one("content-length") == str(len(request.body)).encode()
    return request.body


async def test_a_stream_is_asked_for_usage_and_the_client_does_not_see_it() -> None:
    async with GatedEngine(event_stream()) as engine, learning_proxy(engine, learn=ASK) as (proxy, learned):
        raw = json.dumps({**STREAM, "note": "é\u2028"}, ensure_ascii=False, indent=1).encode()
        answer = await proxy.ask(post(body=raw, headers=(("accept-encoding", "gzip, br"), ("accept", "*/*"))))
        assert (answer.status, answer.complete) == (200, True)
        assert answer.body == stream_body(usage=False)
        assert answer.chunks == [chunk("one"), chunk("two"), DONE], "each as the engine sent it"
        assert body_at(engine) == b'{"stream_options":{"include_usage":true},' + raw[1:], "in bytes, nothing else"
        assert engine.requests[0].one("accept-encoding") is None, "or the engine might compress what is read here"
        assert engine.requests[0].one("accept") == b"*/*"
        (note,) = learned.notes
        assert (note[0], note[1], note[2].position_counts()) == ("r0", "unsure", ((3, 5), (1, 3), (0, 1)))
        assert (await proxy.metrics()).total("acceptance_reports_total", replica="r0") == 1


@pytest.mark.parametrize("learn", [{}, {"ask": "none"}])
async def test_nothing_is_asked_unless_the_setting_says_so(learn: dict[str, Any]) -> None:
    async with GatedEngine(event_stream()) as engine, learning_proxy(engine, learn=learn) as (proxy, learned):
        raw = json.dumps(STREAM).encode()
        answer = await proxy.ask(post(body=raw, headers=(("accept-encoding", "gzip"),)))
        assert answer.body == stream_body(usage=False)
        assert body_at(engine) == raw
        assert engine.requests[0].one("accept-encoding") == b"gzip"
        assert learned.notes == []


async def test_nothing_is_asked_when_nobody_learns() -> None:
    async with GatedEngine(event_stream()) as engine, learning_proxy(engine, learn=ASK) as (proxy, _):
        proxy.plane.fleet.learning = None
        raw = json.dumps(STREAM).encode()
        assert (await proxy.ask(post(body=raw))).body == stream_body(usage=False)
        assert body_at(engine) == raw


@pytest.mark.parametrize("learn", [{}, ASK])
async def test_the_client_that_asks_itself_gets_its_usage(learn: dict[str, Any]) -> None:
    async with GatedEngine(event_stream()) as engine, learning_proxy(engine, learn=learn) as (proxy, learned):
        raw = json.dumps(ASKED).encode()
        answer = await proxy.ask(post(body=raw))
        assert answer.body == stream_body(usage=True)
        assert body_at(engine) == raw
        assert len(learned.notes) == 1


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ("null", '{"include_usage":true}'),
        ("{}", '{"include_usage":true}'),
        ('{"include_usage": false}', '{"include_usage": true}'),
        ('{"include_obfuscation": false}', '{"include_usage":true,"include_obfuscation": false}'),
        ('{"continuous_usage_stats": false}', '{"include_usage":true,"continuous_usage_stats": false}'),
        ('{"continuous_usage_stats": true}', None),
        ('{"include_usage": "maybe"}', None),
        ("[]", None),
        ("7", None),
    ],
)
async def test_stream_options_of_the_clients_own(options: str, sent: str | None) -> None:
    async with GatedEngine(event_stream()) as engine, learning_proxy(engine, learn=ASK) as (proxy, learned):
        raw = '{"model":"m", "stream":true, "stream_options":%s ,"prompt":"x"}'
        answer = await proxy.ask(post("/v1/completions", body=(raw % options).encode()))
        assert body_at(engine) == (raw % (sent or options)).encode()
        assert answer.body == stream_body(usage=False)
        assert len(learned.notes) == (0 if sent is None else 1)


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("/v1/chat/completions", {"stream": False}),
        ("/v1/chat/completions", {"stream": None}),
        ("/v1/chat/completions", {"n": 2}),
        ("/v1/completions", {"best_of": 4}),
        ("/v1/completions", {"prompt": ["one", "two"]}),
        ("/v1/completions", {"prompt": [[1, 2], [3]]}),
        ("/v1/responses", {}),
        ("/v1/messages", {}),
        ("/v1/embeddings", {}),
    ],
)
async def test_requests_that_are_not_made_to_ask(path: str, change: dict[str, Any]) -> None:
    async with GatedEngine() as engine, learning_proxy(engine, learn=ASK) as (proxy, _):
        raw = json.dumps({**STREAM, **change}).encode()
        assert (await proxy.ask(post(path, body=raw))).status == 200
        assert body_at(engine) == raw


@pytest.mark.parametrize("prompt", [["one"], [1, 2, 3], "one", []])
async def test_one_prompt_in_any_form_is_one_choice(prompt: object) -> None:
    async with GatedEngine(event_stream()) as engine, learning_proxy(engine, learn=ASK) as (proxy, learned):
        body = json.dumps({"model": "m", "stream": True, "prompt": prompt, "n": 1, "best_of": None}).encode()
        await proxy.ask(post("/v1/completions", body=body))
        assert len(learned.notes) == 1


async def test_a_plain_replica_is_not_asked() -> None:
    async with GatedEngine(event_stream()) as engine, learning_proxy(engine, gamma=0, learn=ASK) as (proxy, learned):
        raw = json.dumps(ASKED).encode()
        for body in (json.dumps(STREAM).encode(), raw):
            await proxy.ask(post(body=body))
            assert body_at(engine) == body
        assert learned.notes == [], "nor believed"


async def test_llamacpp_is_not_asked_and_sglang_by_its_own_word() -> None:
    async with GatedEngine(event_stream()) as engine:
        raw = json.dumps(STREAM).encode()
        async with learning_proxy(engine, kind="llamacpp", learn=ASK) as (proxy, _):
            await proxy.ask(post(body=raw))
            assert body_at(engine) == raw
        details = {"spec_verify_ct": 5, "spec_num_proposed_drafts": 15, "spec_num_correct_drafts": 4}
        added = chunk("", choices=[], sglext={"spec_tokens_details": details, "routed_experts": None}, usage=None)

        async def sglang(exchange: EngineExchange) -> None:
            if exchange.request.method != "POST":
                exchange.answer(404, b"")
                return
            assert json.loads(exchange.request.body)["return_spec_tokens_details"] is True
            exchange.head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
            for event in (chunk("one"), added, usage_chunk(None), DONE):
                exchange.chunk(event)
            exchange.end()

        engine.script = sglang
        async with learning_proxy(engine, kind="sglang", learn=ASK) as (proxy, learned):
            answer = await proxy.ask(post(body=raw))
            assert body_at(engine) == b'{"return_spec_tokens_details": true,'.replace(b": ", b":") + raw[1:]
            assert answer.body == chunk("one") + usage_chunk(None) + DONE
            assert [note[2].drafts for note in learned.notes] == [5]


async def test_cut_anywhere() -> None:
    """Each answer cut at other places, at both edges of every byte of the chunk that is taken out among them."""
    whole = stream_body(usage=True)
    start, size = whole.index(usage_chunk()), len(usage_chunk())
    spans: list[tuple[int, ...]] = [(at,) for at in range(start - 3, start + size + 4, 3)]
    rng = random.Random(7)
    spans += [tuple(rng.sample(range(len(whole)), rng.randint(2, 40))) for _ in range(40)]
    spans.append(tuple(range(len(whole))))
    async with GatedEngine() as engine, learning_proxy(engine, learn=ASK) as (proxy, learned), proxy.client() as client:
        for span in spans:
            engine.script = event_stream(cut=span)
            answer = await client.ask(post(body=STREAM))
            assert (answer.complete, answer.body) == (True, stream_body(usage=False)), span
            # Pieces end where they did, or where an event does.
            edges = {*(at for at in span if at < start), *(at - size for at in span if at > start + size)}
            seen = set(accumulate(map(len, answer.chunks)))
            assert seen <= edges | {len(chunk("one")), start, len(whole) - size}, span
        assert len(learned.notes) == len(spans)


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
async def test_other_line_ends_and_comments(end: str) -> None:
    def spelled(data: bytes) -> bytes:
        return data.replace(b"\n", end.encode())

    comment = f": keep-alive{end}{end}".encode()
    sent = [comment, spelled(chunk("one")), comment, spelled(usage_chunk()), comment, spelled(DONE)]

    async def script(exchange: EngineExchange) -> None:
        exchange.head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
        for part in sent:
            exchange.chunk(part)
        exchange.end()

    async with GatedEngine(script) as engine, learning_proxy(engine, learn=ASK) as (proxy, learned):
        answer = await proxy.ask(post(body=STREAM))
        assert answer.chunks == [*sent[:3], *sent[4:]]
        assert len(learned.notes) == 1


async def test_nothing_waits_for_the_end_of_the_stream() -> None:
    gate = asyncio.Event()

    async def script(exchange: EngineExchange) -> None:
        exchange.head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
        exchange.chunk(chunk("one"))
        exchange.chunk(chunk("two")[:140])  # its beginning, and choices in it
        await gate.wait()
        exchange.chunk(chunk("two")[140:] + usage_chunk() + DONE)
        exchange.end()

    async with GatedEngine(script) as engine, learning_proxy(engine, learn=ASK) as (proxy, _), proxy.client() as client:
        client.send(post(body=STREAM))
        answer = await client.head()
        assert await client.chunk() == chunk("one")
        assert await client.chunk() == chunk("two")[:140]
        gate.set()
        assert (await client.rest(answer)).chunks == [chunk("two")[140:], DONE]


async def test_a_stream_with_a_length_gets_another_framing() -> None:
    async def script(exchange: EngineExchange) -> None:
        exchange.answer(200, stream_body(usage=True), [("content-type", "text/event-stream")])

    async with GatedEngine(script) as engine, learning_proxy(engine, learn=ASK) as (proxy, learned):
        async with proxy.client() as client:
            for _ in range(2):
                answer = await client.ask(post(body=STREAM))
                assert (answer.one("content-length"), answer.one("transfer-encoding")) == (None, "chunked")
                assert (answer.complete, answer.body) == (True, stream_body(usage=False))
        async with proxy.client() as client:
            client.send(post(body=STREAM).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
            answer = await client.answer()
            assert (answer.one("content-length"), answer.body) == (None, stream_body(usage=False))
        assert len(learned.notes) == 3


@pytest.mark.parametrize("coding", ["gzip", "br"])
async def test_a_stream_compressed_all_the_same_passes_as_it_is(coding: str) -> None:
    script = event_stream(headers=[("content-encoding", coding)])
    async with GatedEngine(script) as engine, learning_proxy(engine, learn=ASK) as (proxy, learned):
        answer = await proxy.ask(post(body=STREAM))
        assert answer.body == stream_body(usage=True)
        assert learned.notes == []


async def test_an_answer_that_is_no_stream_passes_as_it_is() -> None:
    body = {"choices": [], "usage": {"n": 1}}
    async with GatedEngine(answer_json(200, body)) as engine, learning_proxy(engine, learn=ASK) as (proxy, _):
        answer = await proxy.ask(post(body=STREAM))
        assert json.loads(answer.body) == body
    async with GatedEngine(answer_json(400, body)) as engine, learning_proxy(engine, learn=ASK) as (proxy, _):
        assert json.loads((await proxy.ask(post(body=STREAM))).body) == body


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ([chunk("one")], chunk("one")),
        ([chunk("one"), chunk("two")[:30]], chunk("one") + chunk("two")[:30]),
        ([chunk("one"), usage_chunk()], chunk("one")),
        ([chunk("one"), usage_chunk()[:-40]], chunk("one")),
    ],
)
@pytest.mark.parametrize("how", ["die", "reset", "close"])
async def test_an_engine_that_dies(sent: list[bytes], seen: bytes, how: str) -> None:
    async def script(exchange: EngineExchange) -> None:
        exchange.head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
        for part in sent:
            exchange.chunk(part)
        await exchange.room()
        await got.wait()
        getattr(exchange, how)()

    got = asyncio.Event()
    async with GatedEngine(script) as engine, learning_proxy(engine, learn=ASK) as (proxy, learned):
        async with proxy.client() as client:
            client.send(post(body=STREAM))
            answer = await client.head()
            assert await client.chunk() == chunk("one")
            got.set()
            answer = await client.rest(answer)
            assert not answer.complete
            assert chunk("one") + answer.body == seen
        await proxy.counted("protocol_error")
        assert len(learned.notes) == (usage_chunk() in sent)


async def test_a_client_that_leaves_at_done_has_told_already() -> None:
    async def script(exchange: EngineExchange) -> None:
        exchange.head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
        for part in (chunk("one"), usage_chunk(), DONE):
            exchange.chunk(part)
        await exchange.gone()

    async with GatedEngine(script) as engine, learning_proxy(engine, learn=ASK) as (proxy, learned):
        async with proxy.client() as client:
            client.send(post(body=STREAM))
            await client.head()
            assert [await client.chunk(), await client.chunk()] == [chunk("one"), DONE]
            client.drop()
        await proxy.counted("client_closed")
        assert len(learned.notes) == 1


async def test_each_try_asks_as_its_own_engine_needs_it() -> None:
    """The first replica is full; the next is of another kind."""
    raw = json.dumps(STREAM).encode()
    async with GatedEngine(answer_json(503)) as busy, GatedEngine(event_stream()) as engine:
        replicas = [
            {"name": "r0", "url": busy.url, "engine": "sglang", "gamma": 3},
            {"name": "r1", "url": engine.url, "gamma": 3},
        ]
        async with learning_proxy(busy, learn=ASK, replicas=replicas) as (proxy, learned):
            for _ in range(12):
                answer = await proxy.ask(post(body=raw))
                assert answer.body == stream_body(usage=False)
        assert {request.body[1:30] for request in busy.requests if request.method == "POST"} == {
            b'"return_spec_tokens_details":'
        }
        assert {request.body for request in engine.requests} == {b'{"stream_options":{"include_usage":true},' + raw[1:]}
        assert learned.replicas == ["r1"] * 12


async def test_an_engine_that_never_reports_is_hardly_asked_any_more(caplog: pytest.LogCaptureFixture) -> None:
    async with GatedEngine(event_stream(report=None)) as engine, learning_proxy(engine, learn=ASK) as (proxy, learned):

        async def asked(times: int) -> int:
            before = len(engine.requests)
            async with proxy.client() as client:
                for _ in range(times):
                    assert (await client.ask(post(body=STREAM))).body == stream_body(usage=False)
            return sum(b"include_usage" in request.body for request in engine.requests[before:])

        assert await asked(32) == 32
        assert sum("made to ask" in record.message for record in caplog.records) == 1
        assert await asked(64) == 2
        engine.script = event_stream()
        assert await asked(32) == 1
        assert len(learned.notes) == 1
        assert await asked(20) == 20, "it reports now"


async def test_many_streams_at_once() -> None:
    script = event_stream(cut=range(0, 2000, 7))
    async with GatedEngine(script) as engine, learning_proxy(engine, learn=ASK) as (proxy, learned):

        async def one(index: int) -> Answer:
            return await proxy.ask(post(body=ASKED if index % 3 == 0 else STREAM))

        answers = await asyncio.gather(*(one(index) for index in range(60)))
        assert [answer.body for answer in answers] == [stream_body(usage=index % 3 == 0) for index in range(60)]
        assert len(learned.notes) == 60
        assert REPORT["num_spec_steps"] == learned.notes[0][2].drafts


@pytest.mark.parametrize("name", ["draft_chat", "draft_completion", "ngram_chat", "ngram_completion", "dynamic_chat"])
async def test_recorded_streams_of_a_real_vllm(name: str) -> None:
    path = RECORDED / f"{name}_stream.http"
    if not path.exists():
        pytest.skip(f"streams of a real server are not here: {path.name}")
    events = path.read_bytes().replace(b"\r\n", b"\n").split(b"\n\n", 1)[1].split(b"\n\n")[:-1]
    sent = [event + b"\n\n" for event in events]

    async def script(exchange: EngineExchange) -> None:
        exchange.head(200, [("content-type", "text/event-stream; charset=utf-8"), ("transfer-encoding", "chunked")])
        for part in sent:
            exchange.chunk(part)
        exchange.end()

    async with GatedEngine(script) as engine, learning_proxy(engine, learn=ASK) as (proxy, learned):
        assert (await proxy.ask(post(body=STREAM))).chunks == [*sent[:-2], sent[-1]]
        assert (await proxy.ask(post(body=ASKED))).chunks == sent
        assert sent[-1] == DONE
        assert len(learned.notes) == 2
        assert all(note[2].trials is not None for note in learned.notes)


async def test_a_body_in_another_unicode_passes_as_it_is() -> None:
    raw = json.dumps({**HELLO, "stream": True}).encode("utf-16-le")
    async with GatedEngine() as engine, learning_proxy(engine, learn=ASK) as (proxy, _):
        answer = await proxy.ask(post(body=raw))
        assert answer.status in (200, 400)
        assert not engine.requests or body_at(engine) == raw
