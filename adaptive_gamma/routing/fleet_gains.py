"""What the fleet's gammas and the spread of its requests gain over plain decoding and over one gamma everywhere.

All three are priced at the load there is now. The alternatives are those of the dry run: as many replicas, all plain or
all speculating with the same gamma at every load, the same sequences spread evenly over them. What was observed goes
into both sides: the acceptance of the speculative replicas scales every gamma's tokens, and where steps of a pool were
found to take longer or shorter than the policy says, so do those of its alternative. An error that all prices share
cancels in the ratio; one of a single pool does not, so that a drafter that makes steps slow is seen to lose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from adaptive_gamma.routing.load import batch_of
from adaptive_gamma.routing.pricing import PolicyPrices, gamma_at, tokens_per_step
from adaptive_gamma.routing.replica import ReplicaState

__all__ = ["FleetGains", "GainPrices", "fleet_gains"]


class GainPrices(PolicyPrices, Protocol):
    """What is asked of a policy."""

    @property
    def default_class(self) -> str: ...

    @property
    def max_gamma(self) -> int: ...

    def largest_gamma(self, batch: int) -> int | None: ...


class FleetGains(NamedTuple):
    """Tokens per second of the whole fleet at its present load, priced."""

    sequences: int
    """That are being decoded now."""
    replicas: int
    """That the sequences are spread over in the alternatives: those whose load is known and that are not down."""
    left_out: int
    """Replicas that may serve and whose load or gamma is not known, so that neither side has them."""
    in_force: float
    plain: float
    fixed: dict[int, float]
    """By gamma; without those whose step is not captured at this load."""
    plain_observed: bool
    """Whether plain replicas decode something now, whose observed step times the plain alternative then has."""

    @property
    def best_fixed(self) -> int | None:
        """The gamma with the most tokens per second."""
        return max(self.fixed, key=lambda gamma: self.fixed[gamma]) if self.fixed else None

    @property
    def over_plain(self) -> float:
        """Tokens per second over plain's, less 1."""
        return self.in_force / self.plain - 1.0

    @property
    def over_best_fixed(self) -> float | None:
        """Likewise, over the best gamma for this load; None where there is none."""
        best = self.best_fixed
        return None if best is None else self.in_force / self.fixed[best] - 1.0


def fleet_gains(
    states: Sequence[ReplicaState],
    class_counts: Mapping[str, Mapping[str, int]],
    policy: GainPrices,
    *,
    now: float,
) -> FleetGains | None:
    """Price the fleet as it is and its alternatives; None while nothing is decoded or no load is known.

    Args:
        states: the replicas.
        class_counts: by replica, its open requests by class. Sequences beyond them have the policy's default class.
        policy: prices.
        now: seconds on the clock of ``ReplicaState.fresh_until``.
    """
    serving: list[tuple[ReplicaState, int]] = []
    left_out = 0
    for state in states:
        batch = batch_of(state, now)
        if not state.healthy and not batch:
            continue
        unpriced = state.speculative is None or (state.speculative and state.gamma is None)
        if batch is None or (batch and unpriced):
            left_out += 1
            continue
        serving.append((state, batch))
    total = sum(batch for _, batch in serving)
    if not total:
        return None
    mixes = [_mix(class_counts.get(state.name, {}), batch, policy) for state, batch in serving]
    in_force = math.fsum(
        _in_force(state, batch, mix, policy) for (state, batch), mix in zip(serving, mixes, strict=True) if batch
    )
    fleet_mix: dict[str, float] = {}
    for mix in mixes:
        for name, count in mix.items():
            fleet_mix[name] = fleet_mix.get(name, 0.0) + count
    speculative = [(state, batch) for state, batch in serving if batch and state.speculative]
    plain = [(state, batch) for state, batch in serving if batch and not state.speculative]
    acceptance = _mean([(state.acceptance_ratio, batch) for state, batch in speculative])
    slower = _mean([(state.step_time_ratio or 1.0, batch) for state, batch in speculative]) or 1.0
    slower_plain = _mean([(state.step_time_ratio or 1.0, batch) for state, batch in plain]) or 1.0
    batches = _spread(total, len(serving))
    fixed = {}
    largest = policy.largest_gamma(max(batches))
    for gamma in range(1, policy.max_gamma + 1 if largest is None else min(policy.max_gamma, largest) + 1):
        tokens = _mean_tokens(fleet_mix, gamma, acceptance, policy)
        rate = math.fsum(count * batch * tokens / policy.step_seconds(batch, gamma) for batch, count in batches.items())
        fixed[gamma] = rate / slower
    plain_rate = math.fsum(
        count * batch / policy.step_seconds(batch, 0, None, False) for batch, count in batches.items()
    )
    return FleetGains(
        total, len(serving), left_out, in_force, plain_rate / slower_plain, fixed, plain_observed=bool(plain)
    )


def _in_force(state: ReplicaState, batch: int, mix: Mapping[str, float], policy: GainPrices) -> float:
    gamma = gamma_at(state, batch)
    seconds = policy.step_seconds(batch, gamma or 0, None, gamma is not None) * (state.step_time_ratio or 1.0)
    tokens = 1.0 if not gamma else _mean_tokens(mix, gamma, state.acceptance_ratio, policy)
    return batch * tokens / seconds


def _mix(counts: Mapping[str, int], batch: int, policy: GainPrices) -> dict[str, float]:
    """Sequences of a batch by class of the policy. What waits in the engine is taken to be mixed alike."""
    known: dict[str, float] = {}
    for name, count in counts.items():
        if count > 0:
            name = policy.class_for(name)
            known[name] = known.get(name, 0.0) + count
    open_here = sum(known.values())
    if open_here > batch:
        return {name: count * batch / open_here for name, count in known.items()}
    if open_here < batch:
        known[policy.default_class] = known.get(policy.default_class, 0.0) + batch - open_here
    return known


def _mean_tokens(mix: Mapping[str, float], gamma: int, ratio: float | None, policy: GainPrices) -> float:
    total = math.fsum(mix.values())
    accepted = math.fsum(n * (policy.expected_tokens(name, gamma) - 1.0) for name, n in mix.items()) / total
    return tokens_per_step(accepted, ratio)


def _mean(weighted: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in weighted if value is not None]
    weights = sum(weight for _, weight in known)
    return math.fsum(value * weight for value, weight in known) / weights if weights else None


def _spread(total: int, replicas: int) -> dict[int, int]:
    """Replicas by batch, as even as whole sequences can be; without those that get none."""
    each, more = divmod(total, replicas)
    spread = {each + 1: more, each: replicas - more}
    return {batch: count for batch, count in spread.items() if batch and count}
