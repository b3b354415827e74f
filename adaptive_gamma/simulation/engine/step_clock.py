"""How long one engine step takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["LinearStepClock", "PolicyStepClock", "StepClock", "StepPricing"]


class StepClock(Protocol):
    """Prices one step of the engine."""

    def seconds(self, batch: int, gamma: int, context_tokens: float, prefill_tokens: int) -> float:
        """Seconds that a step takes.

        Args:
            batch: sequences that decode in the step; may be 0 when the step only prefills.
            gamma: draft tokens each of them verifies, the same number being drafted anew.
            context_tokens: mean context of those sequences, in tokens.
            prefill_tokens: prompt tokens computed in the same step.
        """


@dataclass(frozen=True, slots=True)
class LinearStepClock:
    """``t0 + c * tokens + gamma * draft pass``, times 1 + tax where a drafter is loaded and gamma is 0."""

    base_s: float
    """The step's fixed part (weights read once), in seconds."""
    token_s: float
    """Each token computed, in seconds."""
    draft_pass_s: float = 0.0
    """One pass of the drafter, in seconds."""
    speculative: bool = False
    """Whether a drafter is loaded."""
    zero_gamma_tax: float = 0.066
    """Extra share of a step with gamma 0 on a speculative engine (vLLM issue #49548 measured 6.6 % to 21.6 %)."""

    def seconds(self, batch: int, gamma: int, context_tokens: float, prefill_tokens: int) -> float:
        plain = self.base_s + self.token_s * (batch * (gamma + 1) + prefill_tokens)
        if gamma == 0 and self.speculative:
            return plain * (1.0 + self.zero_gamma_tax)
        return plain + gamma * self.draft_pass_s


class StepPricing(Protocol):
    """What a policy offers to a clock."""

    @property
    def max_batch(self) -> int:
        """Largest batch in the table."""

    def step_seconds(
        self, batch: int, gamma: int, context_tokens: int | None = None, speculative: bool = True
    ) -> float:
        """Seconds of a decode step."""


class PolicyStepClock:
    """The step times of a policy, so that a simulated engine behaves as the policy's physics says.

    A policy prices decode steps. Prompt tokens in a step are charged what one more plain token costs at the largest
    batch of the table, where the step is bound by compute.
    """

    def __init__(self, policy: StepPricing, *, speculative: bool) -> None:
        self._policy = policy
        self._speculative = speculative
        largest = policy.max_batch
        smaller = max(largest // 2, 1)
        if largest > smaller:
            wide = policy.step_seconds(largest, 0, speculative=False)
            narrow = policy.step_seconds(smaller, 0, speculative=False)
            self._prefill_token_s = max((wide - narrow) / (largest - smaller), 0.0)
        else:
            self._prefill_token_s = policy.step_seconds(1, 0, speculative=False)

    def seconds(self, batch: int, gamma: int, context_tokens: float, prefill_tokens: int) -> float:
        decode = self._policy.step_seconds(max(batch, 1), gamma, round(context_tokens), speculative=self._speculative)
        return decode + prefill_tokens * self._prefill_token_s
