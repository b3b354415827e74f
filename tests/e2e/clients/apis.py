"""Both official libraries in one shape, for tests of what holds for either, and a scripted engine to try them on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anthropic
import httpx2
import openai

from tests.e2e.clients.making import async_anthropic_client, async_openai_client
from tests.support.gated_engine import GatedEngine, Script
from tests.support.running_proxy import RunningProxy, running_proxy

__all__ = ["ANSWER", "APIS", "Api", "asking"]

ANSWER: dict[str, Any] = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "type": "message",
    "role": "assistant",
    "content": [{"type": "text", "text": "Hello."}],
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello."}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, "input_tokens": 1, "output_tokens": 1},
}
"""Fits both APIs."""
MESSAGES: list[Any] = [{"role": "user", "content": "Hello?"}]


class Api(NamedTuple):
    """One library as the tests use it."""

    library: Any
    client: Callable[..., Any]
    """Makes a client of the proxy at an url."""
    ask: Callable[..., Awaitable[Any]]
    begun: Sequence[dict[str, Any]]
    """The first events of a stream."""
    broke_off: type[Exception]
    """What the library raises when a stream breaks off: the anthropic one lets its HTTP client's error through."""
    out_of_patience: type[Exception]
    """What it raises when a stream falls silent."""


def _chunk(text: str) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


APIS = {
    "openai": Api(
        openai,
        async_openai_client,
        lambda client, **more: client.chat.completions.create(model="m", messages=MESSAGES, **more),
        [_chunk("Hel"), _chunk("lo")],
        openai.APIConnectionError,
        openai.APITimeoutError,
    ),
    "anthropic": Api(
        anthropic,
        async_anthropic_client,
        lambda client, **more: client.messages.create(model="m", messages=MESSAGES, max_tokens=9, **more),
        [
            {"type": "message_start", "message": {**ANSWER, "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
        ],
        httpx2.RemoteProtocolError,
        httpx2.ReadTimeout,
    ),
}


@asynccontextmanager
async def asking(
    api: Api, script: Script, *, max_retries: int, timeout: float = 30.0, **settings: Any
) -> AsyncIterator[tuple[Any, GatedEngine, RunningProxy]]:
    """A client, the scripted engine that gets its requests, and the proxy between them."""
    async with (
        GatedEngine(script) as engine,
        running_proxy([engine], **settings) as proxy,
        api.client(f"http://127.0.0.1:{proxy.port}", max_retries=max_retries, timeout=timeout) as client,
    ):
        yield client, engine, proxy
