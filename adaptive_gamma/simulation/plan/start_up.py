"""The ways a replica may be started: plain, with one gamma at every batch, or with a schedule by batch."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.policy import Policy
from adaptive_gamma.policy.export import ScheduleOptions, make_schedule
from adaptive_gamma.routing import GammaSchedule, GammaSetting
from adaptive_gamma.simulation.replay import ReplicaPlan, Workload

__all__ = ["PLAIN", "StartUp", "Traffic", "start_ups", "traffic_of"]

PLAIN = "plain"
_LEAST_SHARE = 0.01
"""A class with less of the output tokens does not bring in a gamma of its own."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a workload is like, as far as a start-up schedule cares."""

    mix: dict[str, float]
    """Share of the output tokens by class."""
    context_tokens: float
    """Mean context of an output token: its request's prompt and half of its output."""


@dataclass(frozen=True, slots=True)
class StartUp:
    """One way to start a replica."""

    name: str
    gamma: GammaSetting
    speculative: bool
    max_num_seqs: int

    def replicas(self, count: int) -> list[ReplicaPlan]:
        """So many of them, as a fleet file names them."""
        return [ReplicaPlan(f"{self.name}-{i}", self.speculative, self.gamma, self.max_num_seqs) for i in range(count)]


def traffic_of(workload: Workload) -> Traffic:
    """The mix and the context of a workload, weighted by output tokens.

    Raises:
        ConfigurationError: no request asks for a token.
    """
    by_class = [0] * len(workload.classes)
    context = 0.0
    for which, prompt, output in zip(workload.class_of, workload.prompt_tokens, workload.output_tokens, strict=True):
        by_class[which] += output
        context += output * (prompt + output / 2)
    total = sum(by_class)
    if not total:
        raise ConfigurationError("--trace", "", "no request asks for an output token, so there is nothing to plan for")
    mix = {name: tokens / total for name, tokens in zip(workload.classes, by_class, strict=True) if tokens}
    return Traffic(mix, context / total)


def start_ups(policy: Policy, traffic: Traffic, max_num_seqs: int) -> list[StartUp]:
    """Plain; each gamma that is the best of some class at some batch up to ``max_num_seqs``; a schedule for the mix,
    and one that may fall to 0 where that differs.

    Raises:
        ExportRefused: the policy's capture limit leaves no room for any gamma.
    """
    names = [name for name, share in traffic.mix.items() if share >= _LEAST_SHARE]
    best = {
        policy.best_gamma(name, batch, traffic.context_tokens) for name in names for batch in range(1, max_num_seqs + 1)
    }
    found = [StartUp(PLAIN, 0, False, max_num_seqs)]
    found += [StartUp(f"gamma-{gamma}", gamma, True, max_num_seqs) for gamma in sorted(best - {0})]
    settings: set[tuple[tuple[int, int, int], ...]] = set()
    for name, zero in (("schedule", False), ("schedule-to-0", True)):
        made = make_schedule(
            policy,
            ScheduleOptions(
                mix=traffic.mix, context_tokens=traffic.context_tokens, max_batch=max_num_seqs, allow_zero=zero
            ),
        )
        steps = tuple((step.first, step.last, step.gamma) for step in made.steps)
        if len(steps) > 1 and steps not in settings:
            settings.add(steps)
            found.append(StartUp(name, GammaSchedule(steps), True, made.max_batch))
    return found
