"""Prices of engine steps, asked of the policy only through its public names."""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol, runtime_checkable

from adaptive_gamma.routing import PolicyPrices

__all__ = ["PLAIN", "PrefillPrices", "ReplayPolicy", "StepPrices", "survival_of"]

PLAIN = -1
"""Stands for "no drafter" where a gamma is a key; gamma 0 on a speculative replica has a price of its own."""


class ReplayPolicy(PolicyPrices, Protocol):
    """What a replay asks of a policy; ``adaptive_gamma.policy.Policy`` answers it."""

    @property
    def name(self) -> str: ...

    @property
    def default_class(self) -> str: ...

    @property
    def max_gamma(self) -> int: ...

    @property
    def max_batch(self) -> int: ...

    def step_row(self, gamma: int, context_tokens: float | None = None, speculative: bool = True) -> list[float]: ...

    def best_gamma(self, request_class: str, batch: int, context_tokens: float | None = None) -> int: ...


@runtime_checkable
class PrefillPrices(Protocol):
    """A policy that prices prompt tokens itself."""

    def prefill_seconds(self, tokens: int) -> float: ...


def survival_of(policy: PolicyPrices, request_class: str, positions: int) -> list[float]:
    """The probability that at least 1, 2, .. ``positions`` draft tokens are accepted, by the policy's own prior."""
    expected = [policy.expected_tokens(request_class, gamma) for gamma in range(positions + 1)]
    survival: list[float] = []
    for before, after in pairwise(expected):
        # A difference of sums; the last bits of it must not make the curve rise or leave 0..1.
        survival.append(min(max(after - before, 0.0), survival[-1] if survival else 1.0))
    return survival


class StepPrices:
    """Seconds of a step by gamma, batch and context, and what prompt tokens add to it.

    Prompt tokens cost what ``policy.prefill_seconds`` says. A policy without it is asked for the price of one more
    token of verification where compute binds hardest (its largest batch and gamma); a prompt token runs through the
    same matrices, so it is priced the same.

    Args:
        policy: the policy.
        by_context: price each step at the mean context of its batch; False prices all at the policy's own context.
        prefill_budget: most prompt tokens in a step.
    """

    def __init__(self, policy: ReplayPolicy, by_context: bool, prefill_budget: int) -> None:
        self._policy = policy
        self.by_context = by_context
        self.prefill_budget = prefill_budget
        if isinstance(policy, PrefillPrices):
            self.prefill: list[float] = [policy.prefill_seconds(n) for n in range(prefill_budget + 1)]
        else:
            each = self._verified_token_seconds()
            self.prefill = [each * n for n in range(prefill_budget + 1)]

    def seconds(self, key: int, batch: int, context: float | None) -> float:
        """A step of ``batch`` sequences with ``key`` draft tokens (or ``PLAIN``) without prompt tokens."""
        speculative = key != PLAIN
        gamma = key if speculative else 0
        row = self._policy.step_row(gamma, context, speculative)
        if batch < len(row):
            return row[batch]
        return self._policy.step_seconds(batch, gamma, context, speculative)

    def _verified_token_seconds(self) -> float:
        batch, gamma = self._policy.max_batch, max(self._policy.max_gamma, 1)
        high = self._policy.step_seconds(batch, gamma, None, True)
        low = self._policy.step_seconds(batch, gamma - 1, None, gamma > 1)
        return max(high - low, 0.0) / batch
