"""Many streams at once over one keep-alive client of the official openai library."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai

from tests.e2e.clients.asks import MESSAGES
from tests.e2e.clients.making import async_openai_client
from tests.e2e.clients.stack import ENDLESS, Stack

COUNT = 20


def _says(number: int) -> dict[str, Any]:
    """A response format that allows one answer only."""
    schema = {
        "type": "object",
        "properties": {"number": {"const": number}},
        "required": ["number"],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "number", "strict": True, "schema": schema}}


async def _read(client: openai.AsyncOpenAI, number: int) -> tuple[int, str, tuple[str, int]]:
    """The number the stream brought, who answered, and the client's end of the connection."""
    async with await client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        max_tokens=100,
        response_format=_says(number),
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        local = stream.response.extensions["network_stream"].get_extra_info("client_addr")
        chunks = [chunk async for chunk in stream]
    assert chunks[-1].usage.completion_tokens > 0
    assert chunks[-2].choices[0].finish_reason == "stop"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return json.loads(text)["number"], stream.response.headers["x-adaptive-gamma-replica"], local


async def test_each_stream_gets_its_own_words_and_connections_are_used_again(stack: Stack) -> None:
    async with async_openai_client(stack.url) as client:
        first = await asyncio.gather(*(_read(client, number) for number in range(100, 100 + COUNT)))
        second = await asyncio.gather(*(_read(client, number) for number in range(200, 200 + COUNT)))
    assert [number for number, _, _ in first] == list(range(100, 100 + COUNT))
    assert [number for number, _, _ in second] == list(range(200, 200 + COUNT))
    assert {replica for _, replica, _ in first + second} == {"spec-0", "plain-0"}
    assert len({local for _, _, local in first + second}) <= COUNT


async def test_those_that_stay_get_all_when_half_of_them_leave(stack: Stack) -> None:
    left, cancelled = stack.left(), stack.cancelled_tasks()

    async def leave(client: openai.AsyncOpenAI) -> None:
        async with await client.chat.completions.create(
            model="tiny", messages=MESSAGES, max_tokens=ENDLESS, stream=True
        ) as stream:
            await anext(stream)

    async with async_openai_client(stack.url) as client:
        leaving = [leave(client) for _ in range(COUNT // 2)]
        numbers, _ = await asyncio.gather(
            asyncio.gather(*(_read(client, number) for number in range(COUNT // 2))), asyncio.gather(*leaving)
        )
    assert [number for number, _, _ in numbers] == list(range(COUNT // 2))
    await asyncio.to_thread(stack.wait_left, left + COUNT // 2)
    await asyncio.to_thread(stack.wait_idle)
    assert stack.cancelled_tasks() >= cancelled + COUNT // 2
