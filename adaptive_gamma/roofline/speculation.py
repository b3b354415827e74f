"""What speculation costs and what it gains."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from adaptive_gamma.roofline.acceptance import AcceptanceCurve
from adaptive_gamma.roofline.arrays import FloatArray, Numbers, as_floats, scalar_if_zero_dim
from adaptive_gamma.roofline.capture import largest_captured_gamma
from adaptive_gamma.roofline.drafter import Drafter
from adaptive_gamma.roofline.step_time import StepTime

__all__ = ["SpeculationCost", "ZeroGammaTax", "compute_bound_batch"]


@dataclass(frozen=True, slots=True)
class ZeroGammaTax:
    """Extra share of a step that a speculative engine pays at gamma 0, by batch.

    The drafter still runs its prefill and holds KV cache, and full graphs are lost: measured 6.6 % at concurrency 2 and
    21.6 % at 189 (vLLM issue #49548). Linear between the points, flat beyond them.
    """

    points: tuple[tuple[float, float], ...] = ((1.0, 0.0),)
    """(batch, tax) with rising batch; one point makes it the same for all."""

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("a zero-gamma tax needs at least one point")
        for batch, tax in self.points:
            if not (batch > 0 and tax >= 0):
                raise ValueError(f"a zero-gamma tax needs batch > 0 and tax >= 0, not ({batch!r}, {tax!r})")
        batches = [b for b, _ in self.points]
        if any(b <= a for a, b in pairwise(batches)):
            raise ValueError(f"batches of the zero-gamma tax must rise, not {batches}")

    @classmethod
    def of(cls, value: float | Iterable[tuple[float, float]]) -> ZeroGammaTax:
        """From one number for all batches, or from (batch, tax) points."""
        if isinstance(value, int | float):
            return cls(((1.0, float(value)),))
        return cls(tuple((float(b), float(t)) for b, t in value))

    def at(self, batch: Numbers) -> FloatArray:
        """The extra share at a batch."""
        batches, taxes = zip(*self.points, strict=True)
        return scalar_if_zero_dim(np.asarray(np.interp(as_floats(batch), batches, taxes)))


@dataclass(frozen=True, slots=True)
class SpeculationCost:
    """Step times with and without a drafter. Arguments broadcast; context and prefill are in tokens."""

    step: StepTime
    drafter: Drafter
    zero_gamma_tax: ZeroGammaTax = ZeroGammaTax()
    capture_limit_tokens: int | None = None
    """Most tokens in a captured step. It bounds ``allowed``; the times are those of captured steps everywhere."""

    def plain_seconds(self, batch: Numbers, context_tokens: Numbers, prefill_tokens: Numbers = 0) -> FloatArray:
        """A decode step of an engine without a drafter."""
        return self.step.seconds(batch, 1, context_tokens, prefill_tokens)

    def speculative_seconds(
        self, batch: Numbers, gamma: Numbers, context_tokens: Numbers, prefill_tokens: Numbers = 0
    ) -> FloatArray:
        """A step of an engine with a drafter: drafting and verifying; gamma 0 pays the zero-gamma tax."""
        drafted = as_floats(gamma)
        verify = self.step.seconds(batch, drafted + 1.0, context_tokens, prefill_tokens)
        taxed = verify * np.where(drafted > 0, 1.0, 1.0 + self.zero_gamma_tax.at(batch))
        return scalar_if_zero_dim(np.asarray(taxed + self.drafter.seconds(self.step, batch, drafted, context_tokens)))

    def speedup(
        self,
        batch: Numbers,
        gamma: Numbers,
        context_tokens: Numbers,
        curve: AcceptanceCurve,
        prefill_tokens: Numbers = 0,
    ) -> FloatArray:
        """Tokens per second over those of a plain engine at the same batch: E(gamma) t_plain / t_spec.

        >>> from adaptive_gamma.roofline import AcceptanceCurve, AutoregressiveDrafter, LinearStep, PassFraction
        >>> cost = SpeculationCost(LinearStep(0.020, 0.0001), AutoregressiveDrafter(PassFraction(0.1)))
        >>> curve = AcceptanceCurve.independent(0.8)
        >>> [round(float(cost.speedup(batch, 4, 0, curve)), 2) for batch in (1, 64, 512)]
        [2.37, 1.42, 0.79]
        """
        expected = np.asarray(curve.expected_tokens(np.asarray(gamma, dtype=np.float64)))
        plain = self.plain_seconds(batch, context_tokens, prefill_tokens)
        return scalar_if_zero_dim(
            np.asarray(expected * plain / self.speculative_seconds(batch, gamma, context_tokens, prefill_tokens))
        )

    def largest_gamma(self, batch: int) -> int | None:
        """The largest gamma the capture limit allows at a batch; None where there is no limit."""
        return largest_captured_gamma(batch, self.capture_limit_tokens)

    def allowed(self, batch: Numbers, gamma: Numbers) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Whether batch x (gamma + 1) tokens stay within the capture limit; gamma 0 always may run."""
        tokens = as_floats(batch) * (as_floats(gamma) + 1.0)
        if self.capture_limit_tokens is None:
            return np.ones(tokens.shape, dtype=np.bool_)
        return np.asarray((tokens <= self.capture_limit_tokens) | (as_floats(gamma) + 0.0 * tokens == 0))


def compute_bound_batch(
    weight_seconds: float, token_seconds: float, kv_seconds_per_sequence: float, gamma: int
) -> float | None:
    """B*(gamma) = t_w / ((gamma + 1) c - k): the batch at which verifying turns from memory- to compute-bound.

    None where (gamma + 1) c <= k: reading a sequence's KV cache then takes longer than computing its tokens, and the
    step stays memory-bound at every batch.

    >>> round(compute_bound_batch(20.149e-3, 0.10920e-3, 0.20032e-3, gamma=7), 1)
    29.9
    >>> compute_bound_batch(20.149e-3, 0.10920e-3, 0.30000e-3, gamma=1) is None
    True
    """
    slope = (gamma + 1) * token_seconds - kv_seconds_per_sequence
    return weight_seconds / slope if slope > 0 else None
