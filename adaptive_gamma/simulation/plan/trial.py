"""A fleet tried on the whole trace, by the replay that ``dry-run`` prints, and what the limits on service say of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from adaptive_gamma.simulation.plan.start_up import PLAIN, StartUp
from adaptive_gamma.simulation.replay import (
    PolicyRun,
    ReplicaPlan,
    Workload,
    World,
    policy_figures,
    replay,
    routing_policies,
)

__all__ = ["FleetTrials", "ServiceLimits", "Shape", "Trial"]

Shape: TypeAlias = tuple[int, ...]
"""Replicas by way of starting them, in the order of ``start_ups``."""


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """What service must be like; None is no limit."""

    tpot_s: float | None = None
    """Time per output token of a request, (last token - first token) / (tokens - 1), in seconds."""
    ttft_s: float | None = None
    """Time from arrival to the first token, in seconds."""
    percentile: float = 95.0
    """The percentile of requests that each limit is held against, 0..100."""

    @property
    def any(self) -> bool:
        return self.tpot_s is not None or self.ttft_s is not None


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of one fleet."""

    shape: Shape
    parts: Mapping[str, int]
    """Replicas by the name of their start-up, those with none left out."""
    figures: Mapping[str, Any]
    """As ``dry-run`` reports them (``FIGURES``)."""
    tpot_s: float | None
    """At the percentile of the limits; None where no request has two tokens."""
    ttft_s: float
    """At the percentile of the limits."""
    within_share: float
    """Share of the requests within both limits."""
    within: bool
    """Whether each limit holds at the percentile."""

    @property
    def replicas(self) -> int:
        return sum(self.shape)

    @property
    def plain(self) -> int:
        return self.parts.get(PLAIN, 0)

    @property
    def latency_s(self) -> float:
        """Mean over requests, from arrival to the last token."""
        latency: float = self.figures["mean_latency_s"]
        return latency

    @property
    def rank(self) -> tuple[float, float]:
        """Smaller is better: within the limits first, else the most requests within them, to a whole percent; then by
        mean latency. Less than a percent of the requests is not worth more latency for all."""
        return (0.0 if self.within else 1.0 + math.floor(100.0 * (1.0 - self.within_share)), self.latency_s)


@dataclass(slots=True)
class FleetTrials:
    """Tries fleets in one world, each once.

    Args:
        world: the requests, their luck and the prices; its plans are ignored.
        start_ups: what a shape counts; the first is plain.
        limits: on service.
        on_trial: called before each replay with the number made so far.
    """

    world: World
    start_ups: Sequence[StartUp]
    limits: ServiceLimits
    on_trial: Callable[[int], None] = lambda done: None
    made: dict[Shape, Trial] = field(default_factory=dict, init=False)

    def plans(self, shape: Shape) -> list[ReplicaPlan]:
        """The fleet of a shape, as a fleet file has it."""
        return [plan for way, count in zip(self.start_ups, shape, strict=True) for plan in way.replicas(count)]

    def trial(self, shape: Shape) -> Trial:
        """Replay the trace on a fleet; a shape tried before is not replayed."""
        found = self.made.get(shape)
        if found is None:
            self.on_trial(len(self.made))
            found = self.made[shape] = self._try(shape)
        return found

    def _try(self, shape: Shape) -> Trial:
        adaptive = routing_policies(self.world.policy.max_gamma)["adaptive"]
        plans = self.plans(shape)
        run = replay(self.world, replace(adaptive, fleet=lambda given, oracle: adaptive.fleet(plans, oracle)))
        parts = {way.name: count for way, count in zip(self.start_ups, shape, strict=True) if count}
        return _judged(shape, parts, run, self.world.workload, self.limits)


def _judged(shape: Shape, parts: Mapping[str, int], run: PolicyRun, workload: Workload, limits: ServiceLimits) -> Trial:
    arrival = np.asarray(workload.arrival_s)
    first = np.asarray(run.log.first_token_s)
    finished = np.asarray(run.log.finished_s)
    later_tokens = np.asarray(workload.output_tokens) - 1
    ttft = first - arrival
    # A request of one token has no time between tokens and cannot break that limit.
    tpot = np.where(later_tokens > 0, (finished - first) / np.maximum(later_tokens, 1), 0.0)
    several = tpot[later_tokens > 0]
    kept = np.ones(len(ttft), dtype=bool)
    if limits.tpot_s is not None:
        kept &= tpot <= limits.tpot_s
    if limits.ttft_s is not None:
        kept &= ttft <= limits.ttft_s
    tpot_s = float(np.percentile(several, limits.percentile)) if len(several) else None
    ttft_s = float(np.percentile(ttft, limits.percentile))
    return Trial(
        shape=shape,
        parts=parts,
        figures=policy_figures(run, workload),
        tpot_s=tpot_s,
        ttft_s=ttft_s,
        within_share=float(kept.mean()),
        within=(limits.tpot_s is None or tpot_s is None or tpot_s <= limits.tpot_s)
        and (limits.ttft_s is None or ttft_s <= limits.ttft_s),
    )
