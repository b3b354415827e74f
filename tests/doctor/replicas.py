"""Simulated replicas on sockets, as the field note had them: no graphs, pieces, and plain with full graphs.

MiniMax M3 on GB10 with three draft tokens (July 2026): steps of 165 ms without graphs and of 108 ms with pieces; code
17.0 and 26.8 tokens/s, prose 10.6 and 16.5; plain 26.3. Tokens of a step follow: 2.85 of code, 1.77 of prose.

They do their work in simulated time, step after step, so that what they have measured does not depend on how busy this
machine is; only the asking of their pages takes real time.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator

from adaptive_gamma.simulation.engine import (
    EngineRequest,
    EngineSettings,
    SimulatedEngine,
    drain,
    serving,
)

__all__ = [
    "EAGER_S",
    "GAMMA",
    "PIECES_S",
    "PLAIN_S",
    "SteadyClock",
    "busy",
    "plain_engine",
    "speculative_engine",
    "work",
]

GAMMA = 3
EAGER_S, PIECES_S, PLAIN_S = 0.165, 0.108, 1 / 26.3
_CODE, _PROSE = (0.82, 0.77, 0.74), (0.48, 0.45, 0.42)
_IDS = itertools.count()


class SteadyClock:
    """Every step takes ``step_s``, at any load; it may be changed."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s

    def seconds(self, batch: int, gamma: int, context_tokens: float, prefill_tokens: int) -> float:
        """See ``StepClock``."""
        return self.step_s


def speculative_engine(step_s: float | SteadyClock) -> SimulatedEngine:
    """A step takes ``step_s``, drafts included."""
    return SimulatedEngine(
        EngineSettings(
            gamma=GAMMA,
            step_clock=SteadyClock(step_s) if isinstance(step_s, float) else step_s,
            acceptance={"structured": _CODE, "chat": _PROSE},
        )
    )


def plain_engine(step_s: float = PLAIN_S) -> SimulatedEngine:
    """A plain one."""
    return SimulatedEngine(EngineSettings(step_clock=SteadyClock(step_s)))


def work(engine: SimulatedEngine, *, code: bool = False, tokens: int = 1500, requests: int = 1) -> None:
    """Answer requests that run at once, in simulated time."""
    kind = "structured" if code else "chat"
    arrivals = [(0.0, EngineRequest(f"r{next(_IDS)}", kind, 16, tokens, None, seed=seed)) for seed in range(requests)]
    for outcome in drain(engine.ranks.cores[0], 0.0, arrivals):
        engine.ranks.metrics.observe_step(0, outcome)


@contextlib.asynccontextmanager
async def busy(
    engine: SimulatedEngine, *, code: bool = False, tokens: int = 1500, requests: int = 1
) -> AsyncIterator[str]:
    """The url of the engine, served after it has answered some requests."""
    work(engine, code=code, tokens=tokens, requests=requests)
    async with serving(engine) as url:
        yield url
