"""The official anthropic client, sync and async, through the proxy in front of llama.cpp's /v1/messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import pytest

from tests.e2e.clients.asks import ANTHROPIC_TOOL, HUGE, LONG, Weather, settled
from tests.e2e.clients.making import anthropic_client, async_anthropic_client
from tests.e2e.clients.stack import ENDLESS, Stack

MESSAGES: list[Any] = [{"role": "user", "content": "Say something about the sea."}]
ASK: dict[str, Any] = {
    "model": "tiny-spec",
    "system": "You are terse.",
    "messages": MESSAGES,
    "max_tokens": 24,
    "extra_body": {"temperature": 0},
}
WITH_TOOL: dict[str, Any] = {**ASK, "max_tokens": 300, "tools": [ANTHROPIC_TOOL], "tool_choice": {"type": "any"}}
LONG_ONE: dict[str, Any] = {**ASK, "max_tokens": ENDLESS}


@pytest.fixture(scope="module")
def _clients(running: Stack) -> Iterator[tuple[anthropic.Anthropic, anthropic.Anthropic]]:
    with anthropic_client(running.url) as client, anthropic_client(running.engine("spec-only")) as direct:
        yield client, direct


@pytest.fixture
def messages(stack: Stack, _clients: tuple[anthropic.Anthropic, anthropic.Anthropic]) -> Any:
    """``client.messages`` at the proxy."""
    return _clients[0].messages


@pytest.fixture
def direct(stack: Stack, _clients: tuple[anthropic.Anthropic, anthropic.Anthropic]) -> Any:
    """``client.messages`` at the engine that answers to tiny-spec."""
    return _clients[1].messages


# -- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [ASK, WITH_TOOL], ids=["text", "tool"])
def test_an_answer_is_the_engines_own(messages: Any, direct: Any, ask: dict[str, Any]) -> None:
    messages.create(**ask)  # so that both find the prompt in the cache; there is no way to ask for it anew
    assert settled(messages.create(**ask)) == settled(direct.create(**ask))


@pytest.mark.parametrize("ask", [ASK, WITH_TOOL], ids=["text", "tool"])
def test_a_stream_is_the_engines_own_event_for_event(messages: Any, direct: Any, ask: dict[str, Any]) -> None:
    messages.create(**ask)
    through, expected = (list(asked.create(**ask, stream=True)) for asked in (messages, direct))
    assert settled(through) == settled(expected)
    assert (through[0].type, through[-1].type) == ("message_start", "message_stop")
    assert sum(event.type == "content_block_delta" for event in through) > 5


def test_the_stream_helper_puts_the_answer_together(messages: Any) -> None:
    whole = messages.create(**ASK)
    with messages.stream(**ASK) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == whole.content[0].text
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", 24)


async def test_an_async_client_gets_the_same(stack: Stack, direct: Any) -> None:
    direct.create(**ASK)
    async with async_anthropic_client(stack.url) as client:
        answer = await client.messages.create(**ASK)
        async with client.messages.stream(**ASK) as stream:
            text = "".join([piece async for piece in stream.text_stream])
        counted = await client.messages.count_tokens(model="tiny", messages=MESSAGES)
    assert settled(answer) == settled(direct.create(**ASK))
    assert text == answer.content[0].text
    assert counted.input_tokens == direct.count_tokens(model="tiny", messages=MESSAGES).input_tokens


def test_tokens_are_counted_before_they_are_spent(messages: Any) -> None:
    counted = messages.count_tokens(model="tiny", system=ASK["system"], messages=MESSAGES)
    assert counted.input_tokens == _prompt_tokens(messages.create(**ASK))


def test_a_call_and_what_comes_of_it(messages: Any) -> None:
    answer = messages.create(**{**WITH_TOOL, "tool_choice": {"type": "tool", "name": "weather"}})
    assert answer.stop_reason == "tool_use"
    call = answer.content[0]
    assert (call.type, call.name) == ("tool_use", "weather")
    assert Weather.model_validate(call.input)
    history = [
        *MESSAGES,
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "Rain."}]},
    ]
    after = messages.create(**{**ASK, "messages": history, "max_tokens": 8})
    assert after.content[0].text
    assert _prompt_tokens(after) > 80  # the call and its result are in the prompt


async def test_a_streamed_call_adds_up_to_the_call(stack: Stack, messages: Any) -> None:
    async with async_anthropic_client(stack.url) as client, client.messages.stream(**WITH_TOOL) as stream:
        kinds = {event.type async for event in stream}
        final = await stream.get_final_message()
    assert {"content_block_start", "input_json", "content_block_stop", "message_stop"} <= kinds
    assert settled(final.content[0].input) == settled(messages.create(**WITH_TOOL).content[0].input)


def test_the_decision_is_in_the_headers(messages: Any) -> None:
    raw = messages.with_raw_response.create(**ASK)
    assert raw.headers["x-adaptive-gamma-replica"] == "spec-only"
    assert raw.headers["x-request-id"]
    assert raw.parse().content
    with messages.with_streaming_response.create(**ASK, stream=True) as response:
        assert response.headers["x-adaptive-gamma-pool"] == "speculative"
        assert any(line == "event: message_stop" for line in response.iter_lines())


async def test_many_streams_over_one_client(stack: Stack) -> None:
    async def read(client: anthropic.AsyncAnthropic, number: int) -> str:
        ask = {**ASK, "model": "tiny", "messages": [{"role": "user", "content": f"Number {number}."}]}
        async with client.messages.stream(**ask) as stream:
            message = await stream.get_final_message()
        assert message.usage.output_tokens == 24
        name: str = message.id
        return name

    async with async_anthropic_client(stack.url) as client:
        ids = await asyncio.gather(*(read(client, number) for number in range(16)))
    assert len(set(ids)) == 16


def _prompt_tokens(message: anthropic.types.Message) -> int:
    tokens: int = message.usage.input_tokens + message.usage.cache_read_input_tokens
    return tokens


# -- errors -----------------------------------------------------------------------------------------------------------

ERRORS: dict[str, tuple[dict[str, Any], type[anthropic.APIStatusError], int, str]] = {
    "unknown model": ({"model": "nope"}, anthropic.NotFoundError, 404, "no replica has the model 'nope'"),
    "body too large": (
        {"messages": [{"role": "user", "content": HUGE}]},
        anthropic.APIStatusError,
        413,
        "the request body is over the limit",
    ),
    "a bad parameter": ({"extra_body": {"temperature": "hot"}}, anthropic.BadRequestError, 400, "type must be number"),
    "a prompt too long": (
        {"messages": [{"role": "user", "content": LONG}]},
        anthropic.BadRequestError,
        400,
        "exceeds the available context size",
    ),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("case", ERRORS)
def test_an_error_is_of_the_clients_own_class(messages: Any, case: str, stream: bool) -> None:
    changes, error, status, words = ERRORS[case]
    with pytest.raises(error, match=words) as caught:
        messages.create(**{**ASK, **changes}, stream=stream)
    assert caught.value.status_code == status
    assert words in caught.value.body["error"]["message"]
    assert caught.value.response.headers["x-request-id"]


async def test_an_error_is_of_the_clients_own_class_async(stack: Stack) -> None:
    async with async_anthropic_client(stack.url) as client:
        with pytest.raises(anthropic.NotFoundError):
            await client.messages.create(**{**ASK, "model": "nope"})
        with pytest.raises(anthropic.NotFoundError):
            await client.messages.batches.retrieve("batch-1")


def test_an_answer_has_its_request_id(messages: Any) -> None:
    assert messages.create(**ASK)._request_id


def test_an_error_has_its_request_id(messages: Any) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        messages.create(**{**ASK, "model": "nope"})
    assert caught.value.request_id


# -- leaving ----------------------------------------------------------------------------------------------------------


def _closed(messages: Any) -> None:
    stream = messages.create(**LONG_ONE, stream=True)
    next(stream)
    stream.close()


def _helper(messages: Any) -> None:
    with messages.stream(**LONG_ONE) as stream:
        next(stream.text_stream)


def _streaming_response(messages: Any) -> None:
    with messages.with_streaming_response.create(**LONG_ONE, stream=True) as response:
        next(response.iter_lines())


@pytest.mark.usefixtures("given_up")
@pytest.mark.parametrize("leave", [_closed, _helper, _streaming_response])
def test_a_stream_left_midway(messages: Any, leave: Callable[[Any], None]) -> None:
    leave(messages)
    assert messages.create(**{**ASK, "max_tokens": 2}).usage.output_tokens == 2


@pytest.mark.usefixtures("given_up")
async def test_a_task_cancelled_while_it_reads(stack: Stack) -> None:
    reading = asyncio.Event()

    async def read(client: anthropic.AsyncAnthropic) -> None:
        async with client.messages.stream(**LONG_ONE) as stream:
            async for _ in stream.text_stream:
                reading.set()

    async with async_anthropic_client(stack.url) as client:
        task = asyncio.ensure_future(read(client))
        await reading.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_task_cancelled_before_its_answer_begins(stack: Stack) -> None:
    """The request is closed at once; that this build computes on without a reader is its own affair."""
    left = stack.left()
    async with async_anthropic_client(stack.url) as client:
        task = asyncio.ensure_future(client.messages.create(**{**ASK, "max_tokens": 600}))
        await asyncio.to_thread(stack.wait_busy)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(stack.wait_left, left + 1)
        assert await asyncio.to_thread(stack.in_flight) == 0
