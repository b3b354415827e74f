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
        """See ``StepClock``."""
        plain = self.base_s + self.token_s * (batch * (gamma + 1) + prefill_tokens)
        if gamma == 0 and self.speculative:
            return plain * (1.0 + self.zero_gamma_tax)
        return plain + gamma * self.draft_pass_s


class StepPricing(Protocol):
    """What a policy offers to a clock."""

    def step_seconds(
        self, batch: int, gamma: int, context_tokens: float | None = None, speculative: bool = True
    ) -> float:
        """Seconds of a decode step."""

    def prefill_seconds(self, tokens: int) -> float:
        """Seconds that prompt tokens add to a step."""


class PolicyStepClock:
    """The step times of a policy, so that a simulated engine behaves as the policy's physics says.

    A step that only prefills is priced as one sequence's plain decode step (the weights are read all the same) and the
    prompt tokens on top.
    """

    def __init__(self, policy: StepPricing, *, speculative: bool) -> None:
        self._policy = policy
        self._speculative = speculative

    def seconds(self, batch: int, gamma: int, context_tokens: float, prefill_tokens: int) -> float:
        """See ``StepClock``."""
        prefill = self._policy.prefill_seconds(prefill_tokens)
        if batch == 0:
            return self._policy.step_seconds(1, 0, None, speculative=False) + prefill
        return self._policy.step_seconds(batch, gamma, context_tokens, speculative=self._speculative) + prefill
