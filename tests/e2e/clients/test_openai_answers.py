"""The official openai client, sync and async: every answer through the proxy is the engine's own, headers added."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import openai
import pytest

from tests.e2e.clients.asks import ASKS, EXACT, MESSAGES, STREAMS, Weather, settled
from tests.e2e.clients.making import async_openai_client
from tests.e2e.clients.stack import Stack

Direct = Callable[[str], openai.OpenAI]
MODELS = {"tiny-spec": "spec-only", "tiny-plain": "plain-only"}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("ask", ASKS)
def test_an_answer_is_the_engines_own(client: openai.OpenAI, direct: Direct, ask: str, model: str) -> None:
    assert settled(ASKS[ask](client, model)) == settled(ASKS[ask](direct(MODELS[model]), model))


@pytest.mark.parametrize("ask", ["chat", "completion", "response with a tool"])
async def test_an_answer_is_the_engines_own_async(stack: Stack, ask: str) -> None:
    async with (
        async_openai_client(stack.url) as client,
        async_openai_client(stack.engine("spec-only")) as direct,
    ):
        assert settled(await ASKS[ask](client, "tiny-spec")) == settled(await ASKS[ask](direct, "tiny-spec"))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("ask", STREAMS)
def test_a_stream_is_the_engines_own_event_for_event(
    client: openai.OpenAI, direct: Direct, ask: str, model: str
) -> None:
    through, expected = (list(STREAMS[ask](asked, model)) for asked in (client, direct(MODELS[model])))
    assert len(through) > 5
    assert settled(through) == settled(expected)


@pytest.mark.parametrize("ask", ["chat with usage", "completion", "response"])
async def test_a_stream_is_the_engines_own_event_for_event_async(stack: Stack, ask: str) -> None:
    async with (
        async_openai_client(stack.url) as client,
        async_openai_client(stack.engine("spec-only")) as direct,
    ):
        through = [event async for event in await STREAMS[ask](client, "tiny-spec")]
        expected = [event async for event in await STREAMS[ask](direct, "tiny-spec")]
    assert settled(through) == settled(expected)


def test_logprobs_are_the_engines_own(client: openai.OpenAI, direct: Direct) -> None:
    options: dict[str, Any] = {"model": "tiny-plain", "messages": MESSAGES, "max_tokens": 6, **EXACT}
    answers = [
        asked.chat.completions.create(**options, logprobs=True, top_logprobs=3)
        for asked in (client, direct("plain-only"))
    ]
    assert [len(token.top_logprobs) for token in answers[0].choices[0].logprobs.content] == [3] * 6
    assert settled(answers[0]) == settled(answers[1])


def test_the_usage_asked_for_comes_last(client: openai.OpenAI) -> None:
    *chunks, last = STREAMS["chat with usage"](client, "tiny-spec")
    assert [chunk.usage for chunk in chunks] == [None] * len(chunks)
    assert last.choices == []
    assert last.usage.completion_tokens == 24
    assert chunks[-1].choices[0].finish_reason == "length"


def test_the_stream_helper_puts_the_answer_together(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": "tiny-spec", "messages": MESSAGES, "max_tokens": 300, **EXACT}
    with client.chat.completions.stream(**options, response_format=Weather) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert kinds == {"chunk", "content.delta", "content.done"}
    assert isinstance(final.choices[0].message.parsed, Weather)
    whole = ASKS["chat in a schema"](client, "tiny-spec")
    assert final.choices[0].message.content == whole.choices[0].message.content


async def test_the_stream_helper_puts_the_answer_together_async(stack: Stack) -> None:
    options: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": 300, **EXACT}
    async with (
        async_openai_client(stack.url) as client,
        client.chat.completions.stream(**options, response_format=Weather) as stream,
    ):
        text = "".join([event.delta async for event in stream if event.type == "content.delta"])
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == text
    assert final.choices[0].message.parsed == Weather.model_validate_json(text)


def test_an_answer_is_parsed_into_the_class_given(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="tiny", messages=MESSAGES, max_tokens=300, response_format=Weather, **EXACT
    )
    assert isinstance(answer.choices[0].message.parsed, Weather)
    assert answer.choices[0].finish_reason == "stop"


def test_several_prompts_are_answered_in_one_request(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt=["one", "two", "three"], max_tokens=4, **EXACT)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert all(choice.text for choice in answer.choices)


def test_a_raw_response_has_the_decision_in_its_headers(stack: Stack, client: openai.OpenAI) -> None:
    mine = uuid.uuid4().hex
    raw = client.chat.completions.with_raw_response.create(
        model="tiny-spec",
        messages=MESSAGES,
        max_tokens=4,
        extra_headers={"x-request-id": mine, "x-adaptive-gamma-class": "code"},
    )
    assert {
        "replica": "spec-only",
        "pool": "speculative",
        "gamma": "3",
        "class": "structured",
    }.items() <= _own(raw.headers).items()
    assert _own(raw.headers)["reason"]
    assert raw.request_id == raw.parse()._request_id == mine
    row = stack.decision(mine)
    assert (row["sent_to"], row["outcome"], row["status"]) == ("spec-only", "ok", 200)


def test_each_answer_has_a_request_id_of_its_own(client: openai.OpenAI) -> None:
    ids = {ASKS["chat"](client, "tiny")._request_id for _ in range(3)}
    assert len(ids) == 3
    assert None not in ids


def test_a_streaming_response_has_them_before_its_first_byte_is_read(client: openai.OpenAI) -> None:
    with client.chat.completions.with_streaming_response.create(
        model="tiny-plain", messages=MESSAGES, max_tokens=4, stream=True, **EXACT
    ) as response:
        assert {"replica": "plain-only", "pool": "plain", "gamma": "0"}.items() <= _own(response.headers).items()
        assert response.headers["content-type"].startswith("text/event-stream")
        events = [line for line in response.iter_lines() if line]
    assert events[-1] == "data: [DONE]"
    assert all(line.startswith("data: ") for line in events)


async def test_a_streaming_response_has_them_before_its_first_byte_is_read_async(stack: Stack) -> None:
    async with (
        async_openai_client(stack.url) as client,
        client.completions.with_streaming_response.create(
            model="tiny-spec", prompt="once", max_tokens=4, **EXACT
        ) as response,
    ):
        assert _own(response.headers)["replica"] == "spec-only"
        answer = json.loads(await response.read())
    assert answer["usage"]["completion_tokens"] == 4


def _own(headers: Any) -> dict[str, str]:
    prefix = "x-adaptive-gamma-"
    return {key.removeprefix(prefix): value for key, value in headers.items() if key.startswith(prefix)}


@pytest.mark.parametrize("encoding", [{}, {"encoding_format": "float"}], ids=["base64", "float"])
def test_embeddings_are_the_engines_own(client: openai.OpenAI, direct: Direct, encoding: dict[str, Any]) -> None:
    options: dict[str, Any] = {"model": "tiny-embed", "input": ["the sea", "a museum"], **encoding}
    raw = client.embeddings.with_raw_response.create(**options)
    assert raw.headers["x-adaptive-gamma-replica"] == "embed-0"
    answer = raw.parse()
    assert [len(row.embedding) for row in answer.data] == [128, 128]
    assert settled(answer) == settled(direct("embed-0").embeddings.create(**options))


async def test_embeddings_async(stack: Stack) -> None:
    async with async_openai_client(stack.url) as client:
        answer = await client.embeddings.create(model="tiny-embed", input="the sea")
    assert len(answer.data[0].embedding) == 128
    assert answer.usage.prompt_tokens > 0
