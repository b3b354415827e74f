"""What is asked of both a client of the proxy and a client of the engine, and how their answers are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel

__all__ = [
    "ANTHROPIC_TOOL",
    "ASKS",
    "EXACT",
    "HUGE",
    "LONG",
    "MESSAGES",
    "RESPONSE_TOOL",
    "STREAMS",
    "TOOL",
    "Weather",
    "settled",
]


class Weather(BaseModel):
    """The weather of a city."""

    city: Literal["Paris", "Rome"]
    unit: Literal["c", "f"]


_SCHEMA = Weather.model_json_schema() | {"additionalProperties": False}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "description": "Tells the weather.", "parameters": _SCHEMA},
}
RESPONSE_TOOL: dict[str, Any] = {"type": "function", **TOOL["function"]}
ANTHROPIC_TOOL: dict[str, Any] = {"name": "weather", "description": "Tells the weather.", "input_schema": _SCHEMA}

MESSAGES: list[Any] = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "Say something about the sea."},
]

LONG = "word " * 9000
"""More tokens than a slot holds."""
HUGE = "word " * 300_000
"""More bytes than the proxy takes."""

_FRESH = {"cache_prompt": False}
"""A prompt computed anew is computed in the same pieces each time, so that floats and with them words are the same."""
EXACT: dict[str, Any] = {"temperature": 0, "seed": 1, "extra_body": _FRESH}
_RESPONSE: dict[str, Any] = {"temperature": 0, "extra_body": {"seed": 1, **_FRESH}}
_STRUCTURED: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {"name": "weather", "strict": True, "schema": _SCHEMA},
}

Ask = Callable[[Any, str], Any]
"""Asks a client (sync or async) for a model's answer."""


def _chat(**options: Any) -> Ask:
    return lambda client, model: client.chat.completions.create(
        **{"model": model, "messages": MESSAGES, "max_tokens": 24, **EXACT, **options}
    )


def _completion(**options: Any) -> Ask:
    return lambda client, model: client.completions.create(
        **{"model": model, "prompt": "def ids(text):", "max_tokens": 24, **EXACT, **options}
    )


def _response(**options: Any) -> Ask:
    return lambda client, model: client.responses.create(
        **{"model": model, "input": "Say something.", "max_output_tokens": 24, **_RESPONSE, **options}
    )


_ONE_CALL: dict[str, Any] = {"parallel_tool_calls": False, "tool_choice": "required"}

ASKS: Mapping[str, Ask] = {
    "chat": _chat(),
    "sampled chat": _chat(temperature=0.9, seed=7),
    "chat in a schema": _chat(response_format=_STRUCTURED, max_tokens=300),
    "chat with a tool": _chat(tools=[TOOL], max_tokens=300, **_ONE_CALL),
    "completion": _completion(),
    "completion that stops": _completion(stop=["e"], max_tokens=200),
    "response": _response(),
    "response with a tool": _response(tools=[RESPONSE_TOOL], max_output_tokens=300, **_ONE_CALL),
}
STREAMS: Mapping[str, Ask] = {
    "chat": _chat(stream=True),
    "chat with usage": _chat(stream=True, stream_options={"include_usage": True}),
    "chat with a tool": _chat(stream=True, tools=[TOOL], max_tokens=300, **_ONE_CALL),
    "completion": _completion(stream=True),
    "response": _response(stream=True),
    "response with a tool": _response(stream=True, tools=[RESPONSE_TOOL], max_output_tokens=300, **_ONE_CALL),
}

_ALWAYS_NEW = frozenset({"call_id", "completed_at", "created", "created_at", "id", "item_id", "timings"})


def settled(answer: Any) -> Any:
    """An answer, or a part of one, without names and times that are new with every answer."""
    if isinstance(answer, BaseModel):
        answer = answer.model_dump(warnings=False)
    if isinstance(answer, dict):
        return {key: settled(value) for key, value in answer.items() if key not in _ALWAYS_NEW}
    if isinstance(answer, list | tuple):
        return [settled(value) for value in answer]
    return answer
