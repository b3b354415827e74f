"""What a replica's KV cache is worth to a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from adaptive_gamma.routing.pricing import PolicyPrices
from adaptive_gamma.routing.replica import ReplicaState
from adaptive_gamma.routing.weighing import Weighed

__all__ = ["NO_CREDITS", "CacheCredits", "cache_credits"]


class CacheCredits(NamedTuple):
    """What caches take off the costs of one request, by index into the states."""

    tokens: Mapping[int, int]
    """Prompt tokens that need no prefill."""
    saved: Mapping[int, float]
    """(P - P_r) / L: seconds of prefill saved per output token of the request."""
    most_saved: float
    """(P - P_0) / L: the most that any replica saves."""

    def on(self, index: int, load: int) -> float:
        """What is added to n P / L: (n+1) P_r / L - P_0 / L in place of it."""
        return self.most_saved - (load + 1) * self.saved.get(index, 0.0)

    def applied(self, weighed: Sequence[Weighed]) -> list[Weighed]:
        most, saved = self.most_saved, self.saved
        return [
            (cost + (self.on(index, load) if index in saved else most), index, load) for cost, index, load in weighed
        ]


NO_CREDITS = CacheCredits({}, {}, 0.0)


def cache_credits(
    cached: Mapping[str, int],
    prompt_tokens: int,
    stall_seconds: float,
    policy: PolicyPrices,
    states: Sequence[ReplicaState],
    eligible: Sequence[Weighed],
    refusing: Sequence[Weighed],
    ramping: Mapping[int, int],
) -> CacheCredits:
    """The credit of each replica that holds part of the prompt and is not overloaded.

    With the request, a replica may carry 1.25 times the mean load of the eligible ones, rounded up; one that would
    carry more gets none, so that a popular prompt cannot draw a herd.

    Args:
        cached: tokens believed cached, by replica name.
        prompt_tokens: length of the prompt; above 0.
        stall_seconds: P / L of the whole prompt.
        policy: prices the prefill.
        states: the fleet.
        eligible: those the choice is made from.
        refusing: those that only a parameter of the request keeps out.
        ramping: the true load of those that are priced at another one.
    """
    carried = sum([load for _, _, load in eligible])
    if ramping:
        carried += sum([ramping[index] - load for _, index, load in eligible if index in ramping])
    most = -(-5 * (carried + 1) // (4 * len(eligible)))
    whole = policy.prefill_seconds(prompt_tokens)
    tokens: dict[int, int] = {}
    saved: dict[int, float] = {}
    for _, index, load in (*eligible, *refusing):
        held = cached.get(states[index].name, 0)
        if held > 0 and ramping.get(index, load) < most:
            tokens[index] = held = min(held, prompt_tokens)
            spared = stall_seconds * (1.0 - policy.prefill_seconds(prompt_tokens - held) / whole)
            ratio = states[index].step_time_ratio
            saved[index] = spared if ratio is None else spared * ratio
    return CacheCredits(tokens, saved, max(saved.values(), default=0.0))
