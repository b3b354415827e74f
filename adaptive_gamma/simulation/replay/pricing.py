"""Prices of engine steps, asked of the policy only through its public names."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from adaptive_gamma.routing import PolicyPrices

__all__ = ["PLAIN", "MixedStepCost", "MixedStepPrices", "PrefillPrices", "ReplayPolicy", "StepPrices", "survival_of"]

PLAIN = -1
"""Stands for "no drafter" where a gamma is a key; gamma 0 on a speculative replica has a price of its own."""


Numbers: TypeAlias = Any
FloatArray: TypeAlias = npt.NDArray[np.float64]


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
    """A policy that prices prompt tokens by themselves."""

    def prefill_seconds(self, tokens: int) -> float: ...


class MixedStepCost(Protocol):
    """Seconds of steps in which prompt tokens run beside decoding ones (``roofline.SpeculationCost``)."""

    def plain_seconds(self, batch: Numbers, context_tokens: Numbers, prefill_tokens: Numbers = 0) -> FloatArray: ...

    def speculative_seconds(
        self, batch: Numbers, gamma: Numbers, context_tokens: Numbers, prefill_tokens: Numbers = 0
    ) -> FloatArray: ...


@runtime_checkable
class MixedStepPrices(Protocol):
    """A policy that shows its cost model, and the context lengths (tokens) it knows."""

    @property
    def cost(self) -> MixedStepCost: ...

    @property
    def context_buckets(self) -> tuple[int, ...]: ...


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

    What prompt tokens add is taken from the policy's cost model, where they share the step with decoding tokens: a step
    bound by memory takes some for nothing. A policy that does not show its cost model is asked for
    ``prefill_seconds``, and one without that for the price of one more token of verification where compute binds
    hardest (its largest batch and gamma); a prompt token runs through the same matrices.

    Args:
        policy: the policy.
        by_context: price each step at the mean context of its batch; False prices all at the policy's own context.
        prefill_budget: most prompt tokens in a step.
    """

    def __init__(self, policy: ReplayPolicy, by_context: bool, prefill_budget: int) -> None:
        self._policy = policy
        self.by_context = by_context
        self.prefill_budget = prefill_budget
        self._mixed: MixedStepCost | None = None
        self._usual_context = 0
        self._prefill: list[float] = []
        if isinstance(policy, MixedStepPrices):
            self._mixed = policy.cost
            self._usual_context = policy.context_buckets[len(policy.context_buckets) // 2]
        elif isinstance(policy, PrefillPrices):
            self._prefill = [policy.prefill_seconds(n) for n in range(prefill_budget + 1)]
        else:
            each = self._verified_token_seconds()
            self._prefill = [each * n for n in range(prefill_budget + 1)]

    def seconds(self, key: int, batch: int, context: float | None) -> float:
        """A step of ``batch`` sequences with ``key`` draft tokens (or ``PLAIN``) without prompt tokens."""
        speculative = key != PLAIN
        gamma = key if speculative else 0
        row = self._policy.step_row(gamma, context, speculative)
        if batch < len(row):
            return row[batch]
        return self._policy.step_seconds(batch, gamma, context, speculative)

    def prefill_seconds(self, key: int, batch: int, context: float | None, tokens: int) -> float:
        """What ``tokens`` prompt tokens, at most the budget, add to such a step."""
        if self._mixed is None:
            return self._prefill[tokens]
        prompt = np.array((0.0, tokens))
        where = self._usual_context if context is None else context
        if key == PLAIN:
            without, with_prompt = self._mixed.plain_seconds(batch, where, prompt).tolist()
        else:
            without, with_prompt = self._mixed.speculative_seconds(batch, key, where, prompt).tolist()
        return float(with_prompt - without)

    def _verified_token_seconds(self) -> float:
        batch, gamma = self._policy.max_batch, max(self._policy.max_gamma, 1)
        high = self._policy.step_seconds(batch, gamma, None, True)
        low = self._policy.step_seconds(batch, gamma - 1, None, gamma > 1)
        return max(high - low, 0.0) / batch
