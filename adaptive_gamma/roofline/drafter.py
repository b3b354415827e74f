"""What drafting costs in a step, apart from verifying what was drafted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from adaptive_gamma.roofline.arrays import FloatArray, Numbers, as_floats, scalar_if_zero_dim
from adaptive_gamma.roofline.step_time import ModelShare, StepTime

__all__ = [
    "AutoregressiveDrafter",
    "DraftPass",
    "Drafter",
    "NgramDrafter",
    "ParallelDrafter",
    "PassFraction",
    "PassSeconds",
]


class Drafter(Protocol):
    """Prices the drafting of gamma tokens for each sequence. Arguments broadcast; gamma 0 costs nothing."""

    def seconds(self, step: StepTime, batch: Numbers, gamma: Numbers, context_tokens: Numbers) -> FloatArray:
        """Seconds of drafting in one step, ``step`` being the target's step time."""


@dataclass(frozen=True, slots=True)
class PassFraction:
    """A drafter pass as a fraction of the target's plain step at the same batch and context."""

    fraction: float

    def __post_init__(self) -> None:
        _at_least_zero(fraction=self.fraction)


@dataclass(frozen=True, slots=True)
class PassSeconds:
    """A drafter pass of fixed length."""

    seconds: float

    def __post_init__(self) -> None:
        _at_least_zero(seconds=self.seconds)


DraftPass: TypeAlias = PassFraction | PassSeconds | ModelShare
"""One pass over one token per sequence; a ``ModelShare`` prices it as a small target model."""


@dataclass(frozen=True, slots=True)
class AutoregressiveDrafter:
    """One pass for each draft token: t = t_d0 + gamma x pass (EAGLE, MTP, a draft model).

    Measured on Llama-3.1-8B at batch 1 a pass takes 10-14 % of a target step (vLLM issue #20780, SpecDecode-Bench).
    """

    draft_pass: DraftPass
    fixed_fraction: float = 0.0
    """t_d0 as a fraction of the target's plain step; added to ``fixed_seconds``."""
    fixed_seconds: float = 0.0
    """t_d0 in seconds."""

    def __post_init__(self) -> None:
        _at_least_zero(fixed_fraction=self.fixed_fraction, fixed_seconds=self.fixed_seconds)

    def seconds(self, step: StepTime, batch: Numbers, gamma: Numbers, context_tokens: Numbers) -> FloatArray:
        drafted = as_floats(gamma)
        plain = step.seconds(batch, 1, context_tokens)
        one_pass: FloatArray | float
        if isinstance(self.draft_pass, PassFraction):
            one_pass = self.draft_pass.fraction * plain
        elif isinstance(self.draft_pass, PassSeconds):
            one_pass = self.draft_pass.seconds
        else:
            one_pass = step.seconds(batch, 1, context_tokens, share=self.draft_pass)
        fixed = self.fixed_seconds + self.fixed_fraction * plain
        return scalar_if_zero_dim(np.where(drafted > 0, fixed + drafted * one_pass, 0.0))


@dataclass(frozen=True, slots=True)
class ParallelDrafter:
    """One pass that drafts all gamma tokens at once (P-EAGLE, DFlash, DSpark), priced as a share of the target.

    Measured on B300, such a pass takes 17-26 % of the verify pass (vLLM blog 2026-08-14).
    """

    share: ModelShare

    def __post_init__(self) -> None:
        _at_least_zero(weight=self.share.weight, compute=self.share.compute, kv=self.share.kv)

    def seconds(self, step: StepTime, batch: Numbers, gamma: Numbers, context_tokens: Numbers) -> FloatArray:
        drafted = as_floats(gamma)
        one_pass = step.seconds(batch, np.maximum(drafted, 1.0), context_tokens, share=self.share)
        return scalar_if_zero_dim(np.where(drafted > 0, one_pass, 0.0))


@dataclass(frozen=True, slots=True)
class NgramDrafter:
    """A look-up on the CPU, priced as a fraction of the target's plain step whatever gamma is (about 0.6 %)."""

    fraction: float = 0.006

    def __post_init__(self) -> None:
        _at_least_zero(fraction=self.fraction)

    def seconds(self, step: StepTime, batch: Numbers, gamma: Numbers, context_tokens: Numbers) -> FloatArray:
        drafted = as_floats(gamma)
        return scalar_if_zero_dim(np.where(drafted > 0, self.fraction * step.seconds(batch, 1, context_tokens), 0.0))


def _at_least_zero(**values: float) -> None:
    for name, value in values.items():
        if not value >= 0:
            raise ValueError(f"{name} must be >= 0, not {value!r}")
