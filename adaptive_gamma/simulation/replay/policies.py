"""The named ways to run a fleet that a replay compares.

Each is a fleet (which engines, with which gamma) and a rule that sends a request to one of them. All have the same
number of replicas with the same ``max_num_seqs`` as the fleet given, so none wins by having more machines.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from adaptive_gamma.errors import ConfigurationError, nearest
from adaptive_gamma.routing import (
    DecisionLimits,
    GammaSchedule,
    GammaSetting,
    ReplicaState,
    RequestNeeds,
    decide,
    least_loaded,
)
from adaptive_gamma.simulation.replay.fleet_file import ReplicaPlan
from adaptive_gamma.simulation.replay.gamma_choice import BestGamma, ConstantGamma, GammaChoice, ScheduledGamma
from adaptive_gamma.simulation.replay.pricing import PLAIN, ReplayPolicy

__all__ = ["MEANINGS", "Engine", "Route", "RoutingPolicy", "routing_policies", "select"]

MEANINGS = {
    "adaptive": "the fleet as given, each request sent where `decide`, the proxy's own function, sends it",
    "fixed-K": "as many replicas, all speculating with gamma K at every load, each request sent to the least loaded",
    "plain": "as many replicas, all without a drafter, least loaded",
    "least-loaded": "the fleet as given, each request sent to the replica with the fewest requests, as most routers do",
    "round-robin": "the fleet as given, each replica in its turn",
    "oracle": "as many replicas, each using at every step the gamma (0: truly plain, no tax) that gives its present"
    " batch and class mix the most tokens a second with the true acceptance, least loaded",
}
"""What each name stands for; the help text and the JSON document print it."""

Route: TypeAlias = Callable[[RequestNeeds, Sequence[ReplicaState], float, float], tuple[str, str]]
"""(needs, states, now, tie break in [0, 1)) to (name of the replica, reason)."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica as a routing policy starts it."""

    name: str
    speculative: bool
    gamma: GammaSetting | None
    """What the decision is told; None where gamma is the oracle's own affair."""
    choice: GammaChoice
    max_num_seqs: int


class _Fleet(Protocol):
    def __call__(self, plans: Sequence[ReplicaPlan], oracle: BestGamma) -> list[Engine]: ...


@dataclass(frozen=True, slots=True)
class RoutingPolicy:
    """A way to run a fleet."""

    name: str
    meaning: str
    fleet: _Fleet
    """The engines, from the fleet given and the oracle's choice of gamma."""
    route: Callable[[ReplayPolicy, DecisionLimits], Route]
    """Makes the rule for one run; it may keep state."""


def routing_policies(max_gamma: int) -> dict[str, RoutingPolicy]:
    """All of them by name, in the order they are run and shown."""
    fixed = [
        RoutingPolicy(f"fixed-{k}", MEANINGS["fixed-K"].replace("gamma K", f"gamma {k}"), _uniform(k), _least_loaded)
        for k in range(1, max_gamma + 1)
    ]
    every = [
        RoutingPolicy("adaptive", MEANINGS["adaptive"], _as_given, _adaptive),
        *fixed,
        RoutingPolicy("plain", MEANINGS["plain"], _uniform(PLAIN), _least_loaded),
        RoutingPolicy("least-loaded", MEANINGS["least-loaded"], _as_given, _least_loaded),
        RoutingPolicy("round-robin", MEANINGS["round-robin"], _as_given, _round_robin),
        RoutingPolicy("oracle", MEANINGS["oracle"], _oracle, _least_loaded),
    ]
    return {policy.name: policy for policy in every}


def select(names: Sequence[str], known: dict[str, RoutingPolicy]) -> list[RoutingPolicy]:
    """The policies named, in the registry's order; all of them when none is named.

    Raises:
        ConfigurationError: an unknown name.
    """
    for name in names:
        if name not in known:
            raise ConfigurationError(
                "--only", "", f"no policy {name!r}; there are {', '.join(known)}", nearest(name, known)
            )
    return [policy for name, policy in known.items() if not names or name in names]


def _as_given(plans: Sequence[ReplicaPlan], oracle: BestGamma) -> list[Engine]:
    return [Engine(p.name, p.speculative, p.gamma, _choice(p), p.max_num_seqs) for p in plans]


def _choice(plan: ReplicaPlan) -> GammaChoice:
    if isinstance(plan.gamma, GammaSchedule):
        return ScheduledGamma(plan.gamma)
    return ConstantGamma(plan.gamma if plan.speculative else PLAIN)


def _uniform(key: int) -> _Fleet:
    def fleet(plans: Sequence[ReplicaPlan], oracle: BestGamma) -> list[Engine]:
        speculative = key != PLAIN
        gamma = key if speculative else 0
        return [Engine(p.name, speculative, gamma, ConstantGamma(key), p.max_num_seqs) for p in plans]

    return fleet


def _oracle(plans: Sequence[ReplicaPlan], oracle: BestGamma) -> list[Engine]:
    return [Engine(p.name, True, None, oracle, p.max_num_seqs) for p in plans]


def _adaptive(policy: ReplayPolicy, limits: DecisionLimits) -> Route:
    def route(needs: RequestNeeds, states: Sequence[ReplicaState], now: float, tie_break: float) -> tuple[str, str]:
        decision = decide(needs, states, policy, now=now, tie_break=tie_break, limits=limits)
        return decision.replica, decision.reason

    return route


def _least_loaded(policy: ReplayPolicy, limits: DecisionLimits) -> Route:
    def route(needs: RequestNeeds, states: Sequence[ReplicaState], now: float, tie_break: float) -> tuple[str, str]:
        return least_loaded(needs, states, now=now, tie_break=tie_break).name, "least_loaded"

    return route


def _round_robin(policy: ReplayPolicy, limits: DecisionLimits) -> Route:
    turns = itertools.count()

    def route(needs: RequestNeeds, states: Sequence[ReplicaState], now: float, tie_break: float) -> tuple[str, str]:
        return states[next(turns) % len(states)].name, "round_robin"

    return route
