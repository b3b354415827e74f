"""What a policy says a replica costs one request, with the look-ups kept."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from adaptive_gamma.routing.replica import GammaSchedule, GammaSetting, ReplicaState

__all__ = ["USUAL_OUTPUT_TOKENS", "GammaPrice", "PolicyPrices", "PriceBook", "Pricing", "gamma_at", "tokens_per_step"]

USUAL_OUTPUT_TOKENS = 200
"""Output tokens expected of a request that allows as many. On the Azure 2023 traces 100 to 400 route alike."""
_MOST_KEPT = 256
"""Pairs of class and context bucket a book holds; a policy has a dozen."""


class PolicyPrices(Protocol):
    """What the decision asks of a policy; ``adaptive_gamma.policy.Policy`` answers it."""

    @property
    def classes(self) -> tuple[str, ...]: ...

    def class_for(self, name: str) -> str: ...

    def context_bucket(self, context_tokens: float | None) -> int:
        """The bucket of a context: contexts of one bucket have the same prices."""
        ...

    def expected_tokens(self, request_class: str, gamma: int) -> float: ...

    def step_seconds(
        self, batch: int, gamma: int, context_tokens: float | None = None, speculative: bool = True
    ) -> float: ...

    def step_row(self, gamma: int, context_tokens: float | None = None, speculative: bool = True) -> list[float]: ...

    def marginal_row(
        self, gamma: int, context_tokens: float | None = None, speculative: bool = True
    ) -> list[float]: ...

    def prefill_seconds(self, tokens: int) -> float: ...


class GammaPrice(NamedTuple):
    """Prices of one gamma at one context, for one class."""

    marginal: list[float]
    """By load n: t(n+1) + n (t(n+1) - t(n)), seconds per step."""
    steps: list[float]
    """By batch: seconds per step."""
    accepted: float
    """Expected accepted draft tokens per step."""
    least_accepted: float
    """The same for the policy's class that accepts least."""


class Pricing:
    """Prices for one class at one context; replicas and loads vary.

    A gamma of None stands for plain; gamma 0 on a speculative replica has a price of its own.
    """

    __slots__ = ("_context", "_policy", "max_load", "request_class", "rows")

    def __init__(self, policy: PolicyPrices, request_class: str, context: int | None) -> None:
        self._policy = policy
        self._context = context
        self.request_class = policy.class_for(request_class)
        self.rows: dict[GammaSetting | None, GammaPrice] = {}
        """Prices looked up so far."""
        self.max_load = len(self.price(None).marginal)
        """Loads below this one have a price in ``marginal``; the rows of all gammas are equally long."""

    def price(self, gamma: int | None) -> GammaPrice:
        """Prices of a gamma."""
        found = self.rows.get(gamma)
        if found is None:
            policy, context = self._policy, self._context
            drafted, speculative = (0, False) if gamma is None else (gamma, True)
            found = self.rows[gamma] = GammaPrice(
                policy.marginal_row(drafted, context, speculative),
                policy.step_row(drafted, context, speculative),
                policy.expected_tokens(self.request_class, gamma) - 1.0 if gamma else 0.0,
                min(policy.expected_tokens(name, gamma) for name in policy.classes) - 1.0 if gamma else 0.0,
            )
        return found

    def price_if_fixed(self, setting: GammaSetting | None) -> GammaPrice | None:
        """Prices of a gamma; None where it depends on the batch."""
        return None if isinstance(setting, GammaSchedule) else self.price(setting)

    def tpot(self, state: ReplicaState, batch: int) -> float:
        """tau: seconds per output token of one request among ``batch``."""
        return self.tpot_at(gamma_at(state, batch), batch, state.acceptance_ratio, state.step_time_ratio)

    def tpot_at(
        self, gamma: int | None, batch: int, acceptance_ratio: float | None, step_time_ratio: float | None
    ) -> float:
        """The same of a replica with this gamma at that batch."""
        price = self.rows.get(gamma) or self.price(gamma)
        steps = price.steps
        if batch < len(steps):
            seconds = steps[batch]
        else:
            seconds = self._policy.step_seconds(batch, gamma or 0, self._context, gamma is not None)
        tpot = seconds / tokens_per_step(price.accepted, acceptance_ratio)
        return tpot if step_time_ratio is None else tpot * step_time_ratio

    def marginal_cost(self, state: ReplicaState, load: int, stall_seconds: float) -> float:
        """tau(n+1) + n (tau(n+1) - tau(n)) + n P / L, n = load; right also where gamma changes as the request joins."""
        gamma = gamma_at(state, load + 1)
        after = self.tpot_at(gamma, load + 1, state.acceptance_ratio, state.step_time_ratio)
        if not load:
            return after
        if state.step_time_ratio is not None:
            stall_seconds *= state.step_time_ratio
        return after + load * (after - self.tpot(state, load) + stall_seconds)


class PriceBook:
    """Prices of one policy kept from one decision to the next; another policy starts it afresh.

    Whoever decides often owns one and hands it to ``decide``. It holds what it was asked for, a dozen rows per class
    and context bucket, and relies on a policy never changing once built.
    """

    __slots__ = ("_kept", "_policy")

    def __init__(self) -> None:
        self._policy: PolicyPrices | None = None
        self._kept: dict[tuple[str, int], Pricing] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def pricing(self, policy: PolicyPrices, request_class: str, context: int | None) -> Pricing:
        kept = self._kept
        if policy is not self._policy or len(kept) >= _MOST_KEPT:
            self._policy = policy
            kept.clear()
        key = (request_class, policy.context_bucket(context))
        found = kept.get(key)
        if found is None:
            found = kept[key] = Pricing(policy, request_class, context)
        return found


def gamma_at(state: ReplicaState, batch: int) -> int | None:
    """The gamma that prices a replica at a batch; None where it is plain, or not known and priced as plain."""
    gamma = state.gamma
    if gamma is None or not state.speculative:
        return None
    return gamma.at(batch) if isinstance(gamma, GammaSchedule) else gamma


def tokens_per_step(accepted: float, acceptance_ratio: float | None) -> float:
    """E: one token and the accepted ones, these scaled by what the replica has accepted of late."""
    return 1.0 + (accepted if acceptance_ratio is None else accepted * acceptance_ratio)
