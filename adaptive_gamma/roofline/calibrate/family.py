"""What a form of step time must offer to be fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from adaptive_gamma.roofline.arrays import FloatArray
from adaptive_gamma.roofline.calibrate.observation import Points
from adaptive_gamma.roofline.calibrate.parameter import Parameter
from adaptive_gamma.roofline.step_time import StepTime

__all__ = ["TWO_CONTEXTS", "TWO_LOADS", "Bound", "BoundFamily", "Scales", "StepFamily"]

TWO_LOADS = "two batches or gammas, so that the tokens in a step differ"
TWO_CONTEXTS = "two context lengths, or plain and speculative steps at one"


class BoundFamily(Protocol):
    """A family ready to be fitted to given points."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The free numbers of the step time."""

    @property
    def fitted(self) -> npt.NDArray[np.bool_]:
        """Which of the points it was bound to take part in the least squares."""

    def step(self, values: FloatArray) -> StepTime:
        """The step time at these values of the parameters."""


class StepFamily(Protocol):
    """A form of step time with free numbers."""

    @property
    def name(self) -> str:
        """How results call it."""

    def bind(self, points: Points, weights: FloatArray) -> BoundFamily:
        """Make it ready for points, each counted ``weights`` times.

        Raises UnderDetermined where it cannot be made from them.
        """


@dataclass(frozen=True, slots=True)
class Bound:
    """Free numbers that go straight into a step time."""

    parameters: tuple[Parameter, ...]
    fitted: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Scales:
    """Typical sizes of points, from which a fit starts."""

    step_seconds: float
    """Of the shortest step, about."""
    tokens: float
    kv_tokens: float

    @classmethod
    def of(cls, points: Points) -> Scales:
        known = np.where(np.isnan(points.yield_known), 1.0 + 0.6 * points.gamma, points.yield_known)
        return cls(
            float((points.seconds * known).min()),
            float(np.median(points.tokens)),
            max(float(np.median(points.batch * points.context)), 1.0),
        )
