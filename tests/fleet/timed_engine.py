"""A simulated engine in simulated time, scraped once a second: its real page, read by the real dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from adaptive_gamma.engines import EngineReading, dialect_for
from adaptive_gamma.policy import Policy
from adaptive_gamma.routing import GammaSchedule
from adaptive_gamma.simulation.engine import (
    CoreLimits,
    EngineCore,
    EngineMetrics,
    EngineRequest,
    PolicyStepClock,
    ScriptedAcceptance,
    StepClock,
    metrics_page,
)

__all__ = ["FactorClock", "scrapes"]


@dataclass
class FactorClock:
    """Another clock, slower by a factor that may change."""

    clock: StepClock
    factor: Callable[[float], float]
    now: float = 0.0

    def seconds(self, batch: int, gamma: int, context_tokens: float, prefill_tokens: int) -> float:
        return self.factor(self.now) * self.clock.seconds(batch, gamma, context_tokens, prefill_tokens)


def scrapes(
    policy: Policy,
    seconds: int,
    *,
    concurrency: Callable[[float], int],
    gamma: int | GammaSchedule | None = 4,
    factor: Callable[[float], float] = lambda now: 1.0,
    prompt_tokens: int = 1,
    answer_tokens: int = 200,
    rates: tuple[float, ...] = (0.8, 0.64, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1),
) -> Iterator[tuple[float, EngineReading]]:
    """(time, reading) once a second, under as many requests at a time as ``concurrency`` says."""
    clock = FactorClock(PolicyStepClock(policy, speculative=gamma is not None), factor)
    # A context is one of the policy's middle bucket, as a check without knowledge of contexts takes it.
    core = EngineCore(CoreLimits(max_num_seqs=256), _AtContext(clock), ScriptedAcceptance({"chat": rates}), gamma)
    metrics, dialect = EngineMetrics([core], "m"), dialect_for("vllm")
    now, due, number = 0.0, 0.0, 0
    while due <= seconds:
        while core.running + core.waiting < concurrency(now):
            number += 1
            core.submit(EngineRequest(f"r{number}", "chat", prompt_tokens, answer_tokens, seed=number), now)
        clock.now = now
        plan = core.begin_step(now)
        ends = now + (plan.seconds if plan is not None else 0.01)
        while due <= ends and due <= seconds:
            yield due, dialect.read({"/metrics": metrics_page(metrics).decode()})
            due += 1.0
        now = ends
        if plan is not None:
            metrics.observe_step(0, core.finish_step(now))


class _AtContext:
    """Steps priced at the policy's middle context, whatever the sequences' is."""

    def __init__(self, clock: StepClock) -> None:
        self._clock = clock

    def seconds(self, batch: int, gamma: int, context_tokens: float, prefill_tokens: int) -> float:
        return self._clock.seconds(batch, gamma, None, prefill_tokens)  # type: ignore[arg-type]  # a policy takes None
