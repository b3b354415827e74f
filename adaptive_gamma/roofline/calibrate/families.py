"""Which numbers of a step time are free, and the step time they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression

from adaptive_gamma.roofline.arrays import FloatArray
from adaptive_gamma.roofline.calibrate.observation import Points
from adaptive_gamma.roofline.calibrate.parameter import Parameter
from adaptive_gamma.roofline.calibrate.refusal import UnderDetermined
from adaptive_gamma.roofline.step_time import LinearStep, PlainPoolStep, StepTime
from adaptive_gamma.roofline.table_step import Interpolation, MeasuredTableStep

__all__ = ["BoundFamily", "LinearFamily", "PlainPoolFamily", "StepFamily", "monotone_table"]

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
class _Bound:
    """Free numbers that go straight into a step time."""

    parameters: tuple[Parameter, ...]
    fitted: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _BoundLinear(_Bound):
    def step(self, values: FloatArray) -> StepTime:
        fixed, token, kv = values.tolist()
        return LinearStep(fixed, token, kv)


@dataclass(frozen=True, slots=True)
class LinearFamily:
    """t = t0 + c x tokens + k x KV tokens."""

    name: str = "linear"

    def bind(self, points: Points, weights: FloatArray) -> BoundFamily:
        least, tokens, kv = _scales(points)
        return _BoundLinear(
            (
                Parameter("fixed_seconds", least * 1e-6, 5.0, 0.7 * least, "s", TWO_LOADS),
                Parameter("token_seconds", 0.0, 0.05, 0.3 * least / tokens, "s/token", TWO_LOADS),
                Parameter("kv_token_seconds", 0.0, 1e-4, 0.1 * least / kv, "s/KV token", TWO_CONTEXTS, held_at=0.0),
            ),
            ~points.taxed,
        )


@dataclass(frozen=True, slots=True)
class _BoundPlainPool(_Bound):
    pool: PlainPoolStep

    def step(self, values: FloatArray) -> StepTime:
        return self.pool


@dataclass(frozen=True, slots=True)
class PlainPoolFamily:
    """t_spec(B, g) = t_plain(B (g + 1)), the plain curve being what a plain replica was measured to take.

    The curve is taken as measured (where it falls, it is levelled), so only the drafter and the acceptance are fitted,
    and only where the plain curve reaches: speculative points of more tokens are predicted, not fitted.
    """

    interpolation: Interpolation = "log"

    @property
    def name(self) -> str:
        return f"plain_pool/{self.interpolation}"

    def bind(self, points: Points, weights: FloatArray) -> BoundFamily:
        plain = points.plain
        if np.unique(points.tokens[plain]).size < 2:
            raise UnderDetermined(self.name, "needs plain steps (a replica without a drafter) at two loads or more")
        table = monotone_table(points.tokens[plain], points.seconds[plain], weights[plain], self.interpolation)
        reached = points.tokens <= table.last_tokens * (1.0 + 1e-9)
        return _BoundPlainPool((), ~points.plain & ~points.taxed & reached, PlainPoolStep(table))


def monotone_table(
    tokens: FloatArray, seconds: FloatArray, weights: FloatArray, interpolation: Interpolation = "linear"
) -> MeasuredTableStep:
    """The table that never falls and is nearest to the points in squared relative error (isotonic regression).

    Args:
        tokens: tokens in the step, at two different counts or more.
        seconds: what the step took; repeats of a count are averaged (geometric mean).
        weights: how much each point counts, > 0.
    """
    counts, of = np.unique(tokens, return_inverse=True)
    total = np.bincount(of, weights)
    mean = np.bincount(of, weights * np.log(seconds)) / total
    levelled = np.exp(isotonic_regression(mean, weights=total).x)
    # A pooled block comes back equal up to rounding; a table may not fall by even that.
    rising = np.maximum.accumulate(levelled)
    return MeasuredTableStep(tuple(counts.tolist()), (tuple(rising.tolist()),), interpolation=interpolation)


def _scales(points: Points) -> tuple[float, float, float]:
    """Typical step seconds at the least load, tokens, and KV tokens."""
    known = np.where(np.isnan(points.yield_known), 1.0 + 0.6 * points.gamma, points.yield_known)
    least = float((points.seconds * known).min())
    kv = float(np.median(points.batch * points.context))
    return least, float(np.median(points.tokens)), max(kv, 1.0)
