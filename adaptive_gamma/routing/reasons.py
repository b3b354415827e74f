"""Which difference between the two pools a choice rests on."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_gamma.routing.cache_credit import CacheCredits
from adaptive_gamma.routing.pricing import Pricing, gamma_at, tokens_per_step
from adaptive_gamma.routing.replica import ReplicaState
from adaptive_gamma.routing.weighing import Weighed

__all__ = ["pool_reason"]


def pool_reason(
    pricing: Pricing,
    states: Sequence[ReplicaState],
    best: Weighed,
    weighed: Sequence[Weighed],
    stall_seconds: float,
    credits: CacheCredits,
) -> str:
    """``low_load``, ``class``, ``high_load`` or ``balance``; ``weighed`` is sorted by cost."""
    speculative = plain = None
    for entry in weighed:
        state = states[entry[1]]
        if state.speculative and state.gamma is not None:
            if speculative is None:
                speculative = entry
        elif plain is None:
            plain = entry
        if speculative is not None and plain is not None:
            break
    else:
        return "balance"
    cost, index, load = speculative
    state, chosen = states[index], states[best[1]]
    if chosen.gamma is None or not chosen.speculative:
        return "high_load" if pricing.tpot(state, 1) < pricing.tpot(states[plain[1]], 1) else "class"
    same_for_all = load * stall_seconds
    if state.step_time_ratio is not None:
        same_for_all *= state.step_time_ratio
    if credits.tokens:
        same_for_all += credits.on(index, load)
    gamma = gamma_at(state, load + 1)
    price = pricing.rows.get(gamma) or pricing.price(gamma)
    ratio = state.acceptance_ratio
    step_cost = (cost - same_for_all) * tokens_per_step(price.accepted, ratio)
    dearest = step_cost / tokens_per_step(price.least_accepted, ratio) + same_for_all
    return "class" if dearest > plain[0] else "low_load"
