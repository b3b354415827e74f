"""Two real llama.cpp servers, one that speculates and one that does not, and what tests ask of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai

from adaptive_gamma.cli.demo.engines import first_draft
from adaptive_gamma.cli.demo.llama_server import LlamaServer
from tests.support.running import demo_models

__all__ = [
    "CODE",
    "POLICY",
    "PROSE",
    "RATES",
    "Pair",
    "ask",
    "client_of",
    "llama_pair",
    "long_streams",
    "no_slot_in_use",
    "replicas_of",
    "slots_in_use",
]

POLICY = "demo-llamacpp-cpu"
RATES = (0.9, 0.8, 0.7, 0.6)
"""Accepted at each position, of all drafts."""
CODE = "Write a Python function that parses this JSON and returns the list of ids:\n```python\ndef ids(text):\n```"
PROSE = "Write a warm letter to my parents about our holiday by the sea and the little museum we liked."

Pair = tuple[LlamaServer, LlamaServer]


@contextlib.contextmanager
def llama_pair(folder: Path) -> Iterator[Pair]:
    """The speculative one, which has drafted once, and the plain one; the test is skipped where they cannot run."""
    models = demo_models(folder)
    speculative = LlamaServer(models.target, draft=models.draft, gamma=4, synthetic_rates=RATES, slots=8)
    with speculative, LlamaServer(models.target, slots=8) as plain:
        first_draft(speculative.url)
        yield speculative, plain


def replicas_of(engines: Pair) -> list[dict[str, Any]]:
    """The two as a configuration has them: ``spec-0``, ``plain-0``."""
    speculative, plain = engines
    return [
        {"name": "spec-0", "url": speculative.url, "engine": "llamacpp", "gamma": "auto"},
        {"name": "plain-0", "url": plain.url, "engine": "llamacpp", "gamma": 0},
    ]


def client_of(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=60.0)


async def ask(client: openai.AsyncOpenAI, prompt: str, tokens: int = 8) -> httpx.Headers:
    """The head of the answer to a chat request."""
    answer = await client.chat.completions.with_raw_response.create(
        model="tiny", messages=[{"role": "user", "content": prompt}], max_tokens=tokens
    )
    headers: httpx.Headers = answer.headers
    return headers


@contextlib.asynccontextmanager
async def long_streams(url: str, count: int) -> AsyncIterator[None]:
    """Open streams straight at an engine, so that it is loaded by somebody else's traffic."""
    body = {"prompt": "once", "n_predict": 900, "stream": True, "ignore_eos": True, "cache_prompt": False}
    async with httpx.AsyncClient(base_url=url, timeout=60.0, trust_env=False) as client:

        async def run() -> None:
            while True:
                async with client.stream("POST", "/completion", json=body) as answer:
                    async for _ in answer.aiter_bytes():
                        pass

        tasks = [asyncio.ensure_future(run()) for _ in range(count)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def slots_in_use(url: str) -> int:
    """How many sequences an engine is at."""
    async with httpx.AsyncClient(trust_env=False) as client:
        slots: list[dict[str, Any]] = (await client.get(url + "/slots")).json()
    return sum(bool(slot["is_processing"]) for slot in slots)


async def no_slot_in_use(engines: Pair) -> bool:
    return await slots_in_use(engines[0].url) + await slots_in_use(engines[1].url) == 0
