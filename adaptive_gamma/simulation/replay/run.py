"""Replay a workload under routing policies.

``World`` is everything that all policies share: the requests, their acceptance draws, the prices of steps, the fleet
and what a scrape shows. ``replay`` runs one policy in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from adaptive_gamma.routing import DecisionLimits, RequestNeeds
from adaptive_gamma.simulation.replay.fleet_file import ReplicaPlan, largest_gamma
from adaptive_gamma.simulation.replay.gamma_choice import BestGamma
from adaptive_gamma.simulation.replay.policies import RoutingPolicy
from adaptive_gamma.simulation.replay.pricing import ReplayPolicy, StepPrices, survival_of
from adaptive_gamma.simulation.replay.replica import ReplicaTotals, RunLog
from adaptive_gamma.simulation.replay.scrape import ScrapeRule
from adaptive_gamma.simulation.replay.session import Session
from adaptive_gamma.simulation.replay.timeline import Timeline
from adaptive_gamma.simulation.replay.workload import AcceptanceDraws, Workload

__all__ = ["DEFAULT_PREFILL_BUDGET", "PolicyRun", "World", "replay", "run_session"]

DEFAULT_PREFILL_BUDGET = 2048
_REPORT_EVERY = 256
"""Requests between two calls of the progress function."""


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """What one policy made of the workload."""

    name: str
    meaning: str
    log: RunLog
    pools: Counter[str]
    """Requests by pool."""
    reasons: Counter[str]
    """Requests by the decision's reason."""
    replicas: dict[str, ReplicaTotals]


@dataclass(slots=True)
class World:
    """What the policies share.

    Args:
        workload: the requests.
        policy: prices and, where ``true_acceptance`` is silent, acceptance.
        plans: the fleet given.
        seed: of all randomness.
        true_acceptance: by class, the probabilities that at least 1, 2, .. draft tokens are accepted, for at least as
            many positions as the longest draft has; they replace the policy's own.
        by_context: price steps, and tell the decision, by context length.
        scrape: what the decision gets to see.
        limits: the decision's.
        prefill_budget: most prompt tokens in a step.
        populations: by request, the name in ``true_acceptance`` of the acceptance it has; None: its class. The oracle
            goes by classes all the same.
    """

    workload: Workload
    policy: ReplayPolicy
    plans: Sequence[ReplicaPlan]
    seed: int = 0
    true_acceptance: Mapping[str, Sequence[float]] = field(default_factory=dict)
    by_context: bool = True
    scrape: ScrapeRule = field(default_factory=ScrapeRule)
    limits: DecisionLimits = field(default_factory=DecisionLimits)
    prefill_budget: int = DEFAULT_PREFILL_BUDGET
    populations: Sequence[str] | None = None
    prices: StepPrices = field(init=False)
    draws: AcceptanceDraws = field(init=False)
    tie_breaks: list[float] = field(init=False)
    needs: list[RequestNeeds] = field(init=False)
    _oracle: BestGamma = field(init=False)

    def __post_init__(self) -> None:
        classes = self.workload.classes
        best = self.policy.max_gamma
        positions = max(best, *(largest_gamma(plan) for plan in self.plans))
        survival = {
            name: self.true_acceptance.get(name) or survival_of(self.policy, name, positions) for name in classes
        }
        self.prices = StepPrices(self.policy, self.by_context, self.prefill_budget)
        others = {name: curve for name, curve in self.true_acceptance.items() if name not in survival}
        self.draws = AcceptanceDraws(self.workload, {**survival, **others}, self.seed, self.populations)
        rng = np.random.Generator(np.random.PCG64([self.seed, 2]))
        self.tie_breaks = rng.random(len(self.workload)).tolist()
        self.needs = [
            RequestNeeds(classes[c], prompt if self.by_context else None)
            for c, prompt in zip(self.workload.class_of, self.workload.prompt_tokens, strict=True)
        ]
        expected = [np.concatenate(([1.0], 1.0 + np.cumsum(survival[name][:best]))).tolist() for name in classes]
        self._oracle = BestGamma(self.prices, expected)

    @property
    def oracle(self) -> BestGamma:
        """The best gamma at a batch, with the true acceptance."""
        return self._oracle


def replay(
    world: World,
    routing: RoutingPolicy,
    on_progress: Callable[[int], None] = lambda done: None,
    timeline: Timeline | None = None,
) -> PolicyRun:
    """Run one policy over the workload.

    Args:
        world: what is replayed.
        routing: the policy.
        on_progress: called now and then with the number of requests sent so far.
        timeline: keeps what the replicas did over time; it changes nothing.

    Raises:
        NoReplica: the policy found no replica for a request.
    """
    session = Session(
        world, routing.fleet(world.plans, world.oracle), routing.route(world.policy, world.limits), timeline=timeline
    )
    return run_session(session, routing.name, routing.meaning, on_progress)


def run_session(
    session: Session, name: str, meaning: str, on_progress: Callable[[int], None] = lambda done: None
) -> PolicyRun:
    """Send every request of the world at its time of arrival, and run until all are done."""
    world = session.world
    for request, now in enumerate(world.workload.arrival_s):
        session.advance(now)
        session.send(request, now)
        if request % _REPORT_EVERY == 0:
            on_progress(request)
    session.finish()
    on_progress(len(world.workload))
    world.draws.release()
    totals = {replica.name: replica.totals for replica in session.replicas}
    return PolicyRun(name, meaning, session.log, session.pools, session.reasons, totals)
