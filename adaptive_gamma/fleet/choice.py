"""Choosing a replica with what is known now: the decision, acted on or only recorded."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from adaptive_gamma.routing import (
    ClassRule,
    Counterfactual,
    DecisionLimits,
    GammaSchedule,
    PolicyPrices,
    Pool,
    PriceBook,
    ReplicaState,
    RequestClassifier,
    RequestNeeds,
    Verdict,
    compare,
    least_loaded,
    weigh,
)

if TYPE_CHECKING:
    from adaptive_gamma.config.settings import ClassifySettings, DecisionSettings
    from adaptive_gamma.fleet import Fleet

__all__ = ["Choice", "Chooser", "ServedPolicy", "classifier_of", "decision_limits"]


class ServedPolicy(PolicyPrices, Protocol):
    """A policy in service: prices for the decision, and what the admin pages show of it."""

    @property
    def name(self) -> str: ...

    @property
    def default_class(self) -> str: ...

    @property
    def min_gamma(self) -> int: ...

    @property
    def max_gamma(self) -> int: ...

    @property
    def max_batch(self) -> int: ...

    def best_gamma(self, request_class: str, batch: int, context_tokens: float | None = None) -> int: ...

    def largest_gamma(self, batch: int) -> int | None: ...

    def plain_wins_from(self, request_class: str, context_tokens: float | None = None) -> int | None: ...


@dataclass(slots=True)
class Choice:
    """Where one try goes."""

    replica: str
    pool: Pool
    gamma: int | None
    reason: str
    decided: Verdict
    """While only observing it may name another replica."""
    foregone: Counterfactual | None = None
    """While only observing: the replica it goes to and the one decided, priced."""


class Chooser:
    """Applies the decision to the live fleet.

    Args:
        fleet: gives the states.
        policy: prices; may be replaced while serving, as may mode and limits.
        mode: ``act`` sends where the decision says; ``observe`` records it and sends to the least loaded replica.
        limits: what filters replicas before their costs are compared.
        clock: monotonic seconds, the fleet's clock.
        draw: a number in [0, 1) for ties.
    """

    def __init__(
        self,
        fleet: Fleet,
        policy: ServedPolicy,
        *,
        mode: Literal["act", "observe"],
        limits: DecisionLimits,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.policy = policy
        self.mode = mode
        self.limits = limits
        self._fleet = fleet
        self._prices = PriceBook()
        self._clock = clock
        self._draw = draw

    def choose(
        self, needs: RequestNeeds, tried: Collection[str], among: Sequence[ReplicaState] | None = None
    ) -> Choice:
        """The next replica to try, of the whole fleet or ``among`` these. Raises NoReplica when none is left."""
        now, states = self._clock(), self._fleet.states if among is None else among
        decided = weigh(
            needs,
            states,
            self.policy,
            now=now,
            tie_break=self._draw(),
            limits=self.limits,
            exclude=tried,
            prices=self._prices,
        )
        if self.mode == "act":
            return Choice(decided.replica, decided.pool, decided.gamma, decided.reason, decided)
        state = least_loaded(needs, states, now=now, tie_break=self._draw(), exclude=tried)
        gamma = state.gamma.at(state.in_flight + 1) if isinstance(state.gamma, GammaSchedule) else state.gamma
        foregone = compare(
            needs, states, self.policy, decided=decided.replica, sent=state.name, now=now, prices=self._prices
        )
        return Choice(state.name, state.pool, gamma, "observe", decided, foregone)


def classifier_of(settings: ClassifySettings, policy: ServedPolicy) -> RequestClassifier:
    """What gives requests their class under a configuration and a policy."""
    rules = [ClassRule(rule.request_class, path=rule.path, model=rule.model) for rule in settings.rules]
    return RequestClassifier(rules, default=settings.default, known=policy.classes)


def decision_limits(settings: DecisionSettings) -> DecisionLimits:
    """The soft limits of a configuration."""
    return DecisionLimits(kv_usage=settings.kv_usage_limit, slo_tpot_s=settings.slo_tpot_s)
