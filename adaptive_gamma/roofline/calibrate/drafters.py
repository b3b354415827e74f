"""Which numbers of a drafter are free, and the drafter they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from adaptive_gamma.roofline.arrays import FloatArray
from adaptive_gamma.roofline.calibrate.parameter import Parameter
from adaptive_gamma.roofline.drafter import (
    AutoregressiveDrafter,
    Drafter,
    NgramDrafter,
    ParallelDrafter,
    PassFraction,
)
from adaptive_gamma.roofline.step_time import ModelShare

__all__ = ["DRAFTER_KINDS", "DrafterKind", "DrafterModel", "drafter_model"]

DrafterKind: TypeAlias = Literal["autoregressive", "parallel", "ngram"]
DRAFTER_KINDS: tuple[DrafterKind, ...] = ("autoregressive", "parallel", "ngram")


@dataclass(frozen=True, slots=True)
class DrafterModel:
    """A kind of drafter with free numbers, all of them shares of the target's step.

    autoregressive: gamma passes and a fixed part, of the plain step. parallel: one pass over batch x gamma tokens.
    ngram: a fixed part of the plain step whatever gamma is, which is also what a parallel drafter costs whose pass does
    not grow with gamma.
    """

    kind: DrafterKind

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The free numbers."""
        speculative = "speculative steps with a drafter, beside plain ones or at two gammas or more"
        if self.kind == "autoregressive":
            passes = "speculative steps at two gammas or more, of known yield or beside plain ones"
            return (
                Parameter("drafter_pass_fraction", 0.0, 2.0, 0.12, "of a plain step", passes),
                Parameter("drafter_fixed_fraction", 0.0, 2.0, 0.08, "of a plain step", passes, held_at=0.0),
            )
        if self.kind == "parallel":
            return (Parameter("drafter_share", 0.0, 2.0, 0.2, "of the target's pass", speculative),)
        return (Parameter("drafter_fraction", 0.0, 2.0, 0.05, "of a plain step", speculative),)

    def drafter(self, values: FloatArray) -> Drafter:
        """The drafter at these values."""
        numbers = values.tolist()
        if self.kind == "autoregressive":
            return AutoregressiveDrafter(PassFraction(numbers[0]), fixed_fraction=numbers[1])
        if self.kind == "parallel":
            return ParallelDrafter(ModelShare(numbers[0], numbers[0], numbers[0]))
        return NgramDrafter(numbers[0])


def drafter_model(kind: str) -> DrafterModel:
    """The model of that kind. Raises ValueError for a kind there is not."""
    for known in DRAFTER_KINDS:
        if kind == known:
            return DrafterModel(known)
    raise ValueError(f"drafter must be one of {', '.join(DRAFTER_KINDS)}, not {kind!r}")
