"""A client of the official openai library that leaves midway frees the proxy and the engine, however it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any

import openai
import pytest

from tests.e2e.clients.asks import MESSAGES
from tests.e2e.clients.making import async_openai_client, openai_client
from tests.e2e.clients.stack import ENDLESS, Stack

CHAT: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": ENDLESS}
TO_THE_END = 600
"""Tokens of answers that are not streamed: this build computes those to the end for nobody."""


def _closed(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(**CHAT, stream=True)
    assert len(list(islice(stream, 5))) == 5
    stream.close()


def _left_with(client: openai.OpenAI) -> None:
    with client.chat.completions.create(**CHAT, stream=True) as stream:
        next(stream)


def _left_at_once(client: openai.OpenAI) -> None:
    client.chat.completions.create(**CHAT, stream=True).close()


def _helper(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(**CHAT) as stream:
        next(stream)


def _completion(client: openai.OpenAI) -> None:
    with client.completions.create(model="tiny-plain", prompt="once", max_tokens=ENDLESS, stream=True) as stream:
        next(stream)


def _response(client: openai.OpenAI) -> None:
    with client.responses.create(model="tiny", input="once", max_output_tokens=ENDLESS, stream=True) as stream:
        next(stream)


def _streaming_response(client: openai.OpenAI) -> None:
    with client.chat.completions.with_streaming_response.create(**CHAT, stream=True) as response:
        next(response.iter_lines())


@pytest.mark.usefixtures("given_up")
@pytest.mark.parametrize(
    "leave", [_closed, _left_with, _left_at_once, _helper, _completion, _response, _streaming_response]
)
def test_a_stream_left_midway(client: openai.OpenAI, leave: Callable[[openai.OpenAI], None]) -> None:
    leave(client)
    # The connection is spoilt, the client is not.
    assert client.completions.create(model="tiny", prompt="once", max_tokens=2).usage.completion_tokens == 2


@pytest.mark.usefixtures("given_up")
def test_a_client_closed_with_its_stream_open(stack: Stack) -> None:
    with openai_client(stack.url) as client:
        next(client.chat.completions.create(**CHAT, stream=True))


@pytest.mark.usefixtures("given_up")
async def test_a_task_cancelled_while_it_reads(stack: Stack) -> None:
    reading = asyncio.Event()

    async def read(client: openai.AsyncOpenAI) -> None:
        async for _ in await client.chat.completions.create(**CHAT, stream=True):
            reading.set()

    async with async_openai_client(stack.url) as client:
        task = asyncio.ensure_future(read(client))
        await reading.wait()
        await _cancelled(task)


@pytest.mark.usefixtures("given_up")
async def test_a_task_cancelled_in_the_stream_helper(stack: Stack) -> None:
    reading = asyncio.Event()

    async def read(client: openai.AsyncOpenAI) -> None:
        async with client.chat.completions.stream(**CHAT) as stream:
            async for _ in stream:
                reading.set()

    async with async_openai_client(stack.url) as client:
        task = asyncio.ensure_future(read(client))
        await reading.wait()
        await _cancelled(task)


@pytest.mark.usefixtures("given_up")
async def test_an_async_stream_closed(stack: Stack) -> None:
    async with async_openai_client(stack.url) as client:
        stream = await client.responses.create(model="tiny", input="once", max_output_tokens=ENDLESS, stream=True)
        await anext(stream)
        await stream.close()


async def test_a_task_cancelled_before_its_answer_begins(stack: Stack) -> None:
    """The request is closed at once; that this build computes on without a reader is its own affair."""
    left = stack.left()
    async with async_openai_client(stack.url) as client:
        task = asyncio.ensure_future(client.chat.completions.create(**{**CHAT, "max_tokens": TO_THE_END}))
        await asyncio.to_thread(stack.wait_busy)
        await _cancelled(task)
        await asyncio.to_thread(stack.wait_left, left + 1)
        assert await asyncio.to_thread(stack.in_flight) == 0


async def _cancelled(task: asyncio.Future[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
