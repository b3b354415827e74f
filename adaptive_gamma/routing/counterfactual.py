"""What a request pays where it goes, against what the decision says it would have paid where it would have sent it.

Both are predictions of the same policy at the same moment, for the loads as they are then. Had the decision acted, the
loads would have been others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from adaptive_gamma.routing.decision import RequestNeeds
from adaptive_gamma.routing.load import load_of, typical_foreign_load
from adaptive_gamma.routing.pricing import USUAL_OUTPUT_TOKENS, PolicyPrices, PriceBook, gamma_at
from adaptive_gamma.routing.replica import Pool, ReplicaState

__all__ = ["Alternative", "Counterfactual", "compare"]


class Alternative(NamedTuple):
    """One replica as a place for one request."""

    replica: str
    pool: Pool
    gamma: int | None
    """Draft tokens per step at the load with the request; None when not known, and then priced as plain."""
    load: int
    """Requests already there."""
    tpot_s: float
    """Predicted time per output token of the request, in seconds."""
    cost_s: float
    """The same with the request's share of its own prefill and the delay it puts on the others, per output token."""
    prefill_s: float
    """Predicted time of the part of the prompt that is not believed to be cached, in seconds."""


class Counterfactual(NamedTuple):
    """Where a request went and where the decision would have sent it."""

    decided: Alternative
    sent: Alternative
    output_tokens: int
    """Output tokens expected when it was decided."""


def compare(
    needs: RequestNeeds,
    states: Sequence[ReplicaState],
    policy: PolicyPrices,
    *,
    decided: str,
    sent: str,
    now: float,
    prices: PriceBook,
) -> Counterfactual:
    """Price two replicas for a request that neither has yet, as ``decide`` prices them but for ramps.

    Args:
        needs: the request.
        states: the fleet, both replicas in it.
        policy: prices.
        decided: the replica that the decision names.
        sent: the replica that the request goes to.
        now: seconds on the clock of ``ReplicaState.fresh_until``.
        prices: keeps prices from one call to the next.
    """
    output = min(needs.max_output_tokens or USUAL_OUTPUT_TOKENS, USUAL_OUTPUT_TOKENS)
    pricing = prices.pricing(policy, needs.request_class, needs.prompt_tokens)
    cached = needs.cached or {}

    def priced(name: str) -> Alternative:
        state = next(state for state in states if state.name == name)
        load = load_of(state, now)
        if load is None:
            load = state.in_flight + typical_foreign_load(states, now)
        prompt = max((needs.prompt_tokens or 0) - cached.get(name, 0), 0)
        prefill = policy.prefill_seconds(prompt) if prompt else 0.0
        stall = prefill / output
        gamma = gamma_at(state, load + 1)
        return Alternative(
            name,
            state.pool,
            0 if gamma is None and state.speculative is False else gamma,
            load,
            pricing.tpot(state, load + 1),
            pricing.marginal_cost(state, load, stall) + stall,
            prefill,
        )

    there = priced(sent)
    return Counterfactual(there if decided == sent else priced(decided), there, output)
