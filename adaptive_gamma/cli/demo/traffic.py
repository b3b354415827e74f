"""Closed-loop traffic: a number of requests kept open, code and prose in turn, through the proxy."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from adaptive_gamma.cli.demo.prompts import CODE_PROMPTS, PROSE_PROMPTS

__all__ = ["Admin", "StepTally", "keep_open"]

_MAX_TOKENS = 80


@dataclass
class StepTally:
    """What came back during one step of the demo."""

    concurrency: int
    pools: dict[str, Counter[str]] = field(default_factory=dict)
    """Kind of prompt -> requests by the pool that answered."""
    reasons: Counter[str] = field(default_factory=Counter)
    classes: dict[str, Counter[str]] = field(default_factory=dict)
    """Kind of prompt -> requests by the class the proxy gave them."""
    tokens: int = 0
    latencies_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    elapsed_s: float = 0.0

    def share_speculative(self, kind: str) -> float | None:
        """Share of this kind's requests that a speculative replica answered; None before the first."""
        pools = self.pools.get(kind, Counter())
        total = pools.total()
        return pools["speculative"] / total if total else None


class Admin:
    """Reads the admin port."""

    def __init__(self, base_url: str) -> None:
        self._client = httpx.AsyncClient(base_url=base_url, timeout=2.0, trust_env=False)

    async def status(self) -> Mapping[str, Any]:
        answer = await self._client.get("/status")
        answer.raise_for_status()
        data: Mapping[str, Any] = answer.json()
        return data

    async def ready(self) -> bool:
        try:
            return (await self._client.get("/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    async def aclose(self) -> None:
        await self._client.aclose()


async def keep_open(base_url: str, tally: StepTally, seconds: float, seed: int) -> None:
    """Keep ``tally.concurrency`` requests open for ``seconds``; the last ones are let finish."""
    rng = random.Random(seed)  # nosec B311  # traffic that comes out alike again
    code, prose = rng.sample(CODE_PROMPTS, len(CODE_PROMPTS)), rng.sample(PROSE_PROMPTS, len(PROSE_PROMPTS))
    work = itertools.chain.from_iterable(
        (("code", c), ("prose", p)) for c, p in zip(itertools.cycle(code), itertools.cycle(prose), strict=False)
    )
    start = time.monotonic()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=tally.concurrency)
    async with httpx.AsyncClient(base_url=base_url, timeout=30.0, trust_env=False, limits=limits) as client:

        async def one_after_another() -> None:
            while time.monotonic() - start < seconds:
                kind, prompt = next(work)
                await _ask(client, tally, kind, prompt)

        await asyncio.gather(*(one_after_another() for _ in range(tally.concurrency)))
    tally.elapsed_s = time.monotonic() - start


async def _ask(client: httpx.AsyncClient, tally: StepTally, kind: str, prompt: str) -> None:
    body = {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": _MAX_TOKENS,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "cache_prompt": False,
    }
    started = time.monotonic()
    done = False
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code != 200:
                tally.failures.append(f"HTTP {answer.status_code}: {(await answer.aread())[:200]!r}")
                return
            async for line in answer.aiter_lines():
                if line == "data: [DONE]":
                    done = True
                elif line.startswith("data: "):
                    usage = json.loads(line[6:]).get("usage")
                    tally.tokens += usage["completion_tokens"] if usage else 0
    except httpx.TransportError as error:
        tally.failures.append(f"{type(error).__name__}: {error}")
        return
    if not done:
        tally.failures.append("the stream ended without [DONE]")
        return
    head = answer.headers
    tally.latencies_s.append(time.monotonic() - started)
    tally.pools.setdefault(kind, Counter())[head["x-adaptive-gamma-pool"]] += 1
    tally.classes.setdefault(kind, Counter())[head["x-adaptive-gamma-class"]] += 1
    tally.reasons[head["x-adaptive-gamma-reason"]] += 1
