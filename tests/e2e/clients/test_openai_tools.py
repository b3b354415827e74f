"""Tool calls with the official openai client: asked for, streamed, answered."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.e2e.clients.asks import ASKS, EXACT, MESSAGES, RESPONSE_TOOL, STREAMS, TOOL, Weather
from tests.e2e.clients.making import async_openai_client
from tests.e2e.clients.stack import Stack

OPTIONS: dict[str, Any] = {
    "model": "tiny",
    "messages": MESSAGES,
    "max_tokens": 300,
    "parallel_tool_calls": False,
    **EXACT,
}
NAMED = {"type": "function", "function": {"name": "weather"}}


def fits(arguments: str) -> bool:
    """The arguments are what the tool's schema asks for."""
    return set(json.loads(arguments)) == {"city", "unit"} and Weather.model_validate_json(arguments) is not None


@pytest.mark.parametrize("choice", ["auto", "required", NAMED], ids=["auto", "required", "named"])
def test_a_call_and_what_comes_of_it(client: openai.OpenAI, choice: Any) -> None:
    answer = client.chat.completions.create(**OPTIONS, tools=[TOOL], tool_choice=choice).choices[0]
    assert answer.finish_reason == "tool_calls"
    (call,) = answer.message.tool_calls
    assert call.function.name == "weather"
    assert fits(call.function.arguments)
    history = [*MESSAGES, answer.message, {"role": "tool", "tool_call_id": call.id, "content": "Rain."}]
    after = client.chat.completions.create(**{**OPTIONS, "messages": history, "max_tokens": 8})
    assert after.choices[0].message.content
    assert after.usage.prompt_tokens > 60  # the call and its result are in the prompt


def test_no_tool_is_called_when_none_may_be(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**{**OPTIONS, "max_tokens": 8}, tools=[TOOL], tool_choice="none")
    assert answer.choices[0].message.tool_calls is None


def test_a_streamed_call_adds_up_to_the_call(client: openai.OpenAI) -> None:
    (whole,) = ASKS["chat with a tool"](client, "tiny-plain").choices[0].message.tool_calls
    deltas = [
        call
        for chunk in STREAMS["chat with a tool"](client, "tiny-plain")
        for call in chunk.choices[0].delta.tool_calls or []
    ]
    assert deltas[0].id
    assert deltas[0].function.name == whole.function.name
    assert {delta.index for delta in deltas} == {0}
    assert "".join(delta.function.arguments for delta in deltas) == whole.function.arguments
    assert len(deltas) > 5


async def test_the_stream_helper_parses_the_arguments(stack: Stack) -> None:
    async with (
        async_openai_client(stack.url) as client,
        client.chat.completions.stream(**OPTIONS, tools=[openai.pydantic_function_tool(Weather)]) as stream,
    ):
        kinds = {event.type async for event in stream}
        final = await stream.get_final_completion()
    assert {"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= kinds
    (call,) = final.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Weather)


def test_a_call_of_the_responses_api_and_what_comes_of_it(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": "tiny", "max_output_tokens": 300, "temperature": 0}
    question = {"role": "user", "content": "Say something."}
    answer = client.responses.create(**options, input=[question], tools=[RESPONSE_TOOL], parallel_tool_calls=False)
    (call,) = answer.output
    assert (call.type, call.name) == ("function_call", "weather")
    assert fits(call.arguments)
    history = [
        question,
        {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
        {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."},
    ]
    after = client.responses.create(**{**options, "max_output_tokens": 8}, input=history)
    assert after.output_text
    assert after.usage.input_tokens > answer.usage.output_tokens


async def test_a_streamed_call_of_the_responses_api_adds_up(stack: Stack) -> None:
    async with async_openai_client(stack.url) as client:
        events = [event async for event in await STREAMS["response with a tool"](client, "tiny")]
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    parts = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    (call,) = events[-1].response.output
    assert "".join(parts) == call.arguments
    assert fits(call.arguments)
