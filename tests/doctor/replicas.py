"""Simulated replicas on sockets, as the field note had them: no graphs, pieces, and plain with full graphs.

MiniMax M3 on GB10 with three draft tokens (July 2026): steps of 165 ms without graphs and of 108 ms with pieces; code
17.0 and 26.8 tokens/s, prose 10.6 and 16.5; plain 26.3. Tokens of a step follow: 2.85 of code, 1.77 of prose.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx

from adaptive_gamma.simulation.engine import EngineSettings, LinearStepClock, SimulatedEngine, serving

__all__ = ["EAGER_S", "GAMMA", "PIECES_S", "PLAIN_S", "TIMES", "busy", "plain_engine", "speculative_engine"]

GAMMA = 3
EAGER_S, PIECES_S, PLAIN_S = 0.165, 0.108, 1 / 26.3
TIMES = 400.0
"""Simulated seconds in a real one."""
_CODE, _PROSE = (0.82, 0.77, 0.74), (0.48, 0.45, 0.42)


def speculative_engine(step_s: float) -> SimulatedEngine:
    """A step takes ``step_s`` at any load, drafts included."""
    return SimulatedEngine(
        EngineSettings(
            gamma=GAMMA,
            step_clock=LinearStepClock(step_s, 0.0, speculative=True),
            acceptance={"structured": _CODE, "chat": _PROSE, "unsure": _PROSE},
            classify=lambda prompt: "structured" if "def " in prompt else "chat",
            time_scale=TIMES,
        )
    )


def plain_engine(step_s: float = PLAIN_S) -> SimulatedEngine:
    """A plain one."""
    return SimulatedEngine(EngineSettings(step_clock=LinearStepClock(step_s, 0.0), time_scale=TIMES))


async def _ask(url: str, prompt: str, tokens: int) -> None:
    async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
        body = {"model": "simulated", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
        (await client.post(f"{url}/v1/completions", json=body)).raise_for_status()


@contextlib.asynccontextmanager
async def busy(
    engine: SimulatedEngine, *, code: bool = False, tokens: int = 1500, requests: int = 1
) -> AsyncIterator[str]:
    """The url of the engine, served, after it has answered requests that ran at once."""
    prompt = "def add(a, b):" if code else "Tell me of the sea."
    async with serving(engine) as url:
        await asyncio.gather(*(_ask(url, prompt, tokens) for _ in range(requests)))
        yield url
