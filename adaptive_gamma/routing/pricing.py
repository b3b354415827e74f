"""What a policy says a replica costs one request, with the look-ups of one decision kept."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from adaptive_gamma.routing.decision import RequestNeeds
from adaptive_gamma.routing.replica import GammaSchedule, GammaSetting, ReplicaState

__all__ = ["USUAL_OUTPUT_TOKENS", "GammaPrice", "PolicyPrices", "Pricing", "gamma_at"]

USUAL_OUTPUT_TOKENS = 200
"""Output tokens expected of a request that allows as many. On the Azure 2023 traces 100 to 400 route alike."""


class PolicyPrices(Protocol):
    """What the decision asks of a policy; ``adaptive_gamma.policy.Policy`` answers it."""

    @property
    def classes(self) -> tuple[str, ...]: ...

    def class_for(self, name: str) -> str: ...

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


class Pricing:
    """Prices for one request: its class and context are fixed, replicas and loads vary.

    A gamma of None stands for plain; gamma 0 on a speculative replica has a price of its own.
    """

    __slots__ = ("_context", "_policy", "request_class", "rows", "stall_seconds")

    def __init__(self, policy: PolicyPrices, needs: RequestNeeds) -> None:
        self._policy = policy
        self._context = needs.prompt_tokens
        self.request_class = policy.class_for(needs.request_class)
        prompt, output = (
            needs.prompt_tokens or 0,
            min(needs.max_output_tokens or USUAL_OUTPUT_TOKENS, USUAL_OUTPUT_TOKENS),
        )
        self.stall_seconds = policy.prefill_seconds(prompt) / output if prompt else 0.0
        """P / L: what the request's prompt takes from each neighbour, per output token it brings."""
        self.rows: dict[GammaSetting | None, GammaPrice] = {}
        """Prices looked up so far."""

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
            )
        return found

    def step_seconds(self, gamma: int | None, batch: int) -> float:
        steps = self.price(gamma).steps
        if batch < len(steps):
            return steps[batch]
        return self._policy.step_seconds(batch, gamma or 0, self._context, gamma is not None)

    def tokens_per_step(self, state: ReplicaState, batch: int, request_class: str | None = None) -> float:
        """E: the policy's expected tokens of a class (of the request by default), moved by what the replica accepts."""
        gamma = gamma_at(state, batch)
        if not gamma:
            return 1.0
        if request_class is None:
            accepted = self.price(gamma).accepted
        else:
            accepted = self._policy.expected_tokens(request_class, gamma) - 1.0
        return 1.0 + (accepted if state.acceptance_ratio is None else accepted * state.acceptance_ratio)

    def tpot(self, state: ReplicaState, batch: int) -> float:
        """tau: seconds per output token of one request among ``batch``."""
        return self.step_seconds(gamma_at(state, batch), batch) / self.tokens_per_step(state, batch)

    def marginal_cost(self, state: ReplicaState, load: int) -> float:
        """tau(n+1) + n (tau(n+1) - tau(n)) + n P / L, n = load; right also where gamma changes as the request joins."""
        after = self.tpot(state, load + 1)
        return after + load * (after - self.tpot(state, load) + self.stall_seconds) if load else after


def gamma_at(state: ReplicaState, batch: int) -> int | None:
    """The gamma that prices a replica at a batch; None where it is plain, or not known and priced as plain."""
    gamma = state.gamma
    if gamma is None or not state.speculative:
        return None
    return gamma.at(batch) if isinstance(gamma, GammaSchedule) else gamma
