"""Step times taken from measurements as they are: a table, and the plain pool's own curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from adaptive_gamma.roofline.arrays import FloatArray
from adaptive_gamma.roofline.calibrate.family import Bound, BoundFamily, Scales
from adaptive_gamma.roofline.calibrate.observation import Points
from adaptive_gamma.roofline.calibrate.parameter import Parameter
from adaptive_gamma.roofline.calibrate.refusal import UnderDetermined
from adaptive_gamma.roofline.step_time import PlainPoolStep, StepTime
from adaptive_gamma.roofline.table_step import Interpolation, MeasuredTableStep

__all__ = ["PlainPoolFamily", "TableFamily", "monotone_table"]


@dataclass(frozen=True, slots=True)
class _BoundTable(Bound):
    knots: tuple[float, ...]
    interpolation: Interpolation

    def step(self, values: FloatArray) -> StepTime:
        rising = tuple(np.cumsum(values).tolist())
        return MeasuredTableStep(self.knots, (rising,), interpolation=self.interpolation)


@dataclass(frozen=True, slots=True)
class TableFamily:
    """A table by tokens in the step that never falls, its points fitted together with the drafter and the acceptance.

    It knows no context: observations at several contexts are fitted by one that takes their mean.
    """

    points: int = 8
    """Most points of the table; they stand on token counts that were observed, spread by ratio."""
    interpolation: Interpolation = "linear"

    @property
    def name(self) -> str:
        return f"table/{self.points}"

    def bind(self, points: Points, weights: FloatArray) -> BoundFamily:
        fitted = ~points.taxed
        counts = np.unique(points.tokens[fitted])
        if counts.size < 2:
            raise UnderDetermined(self.name, "needs steps of two token counts or more")
        knots = _spread(counts, self.points)
        least = Scales.of(points)
        told_by = "steps of about as many tokens, with known yields or beside plain ones"
        parameters = [Parameter(f"seconds[{knots[0]:g}]", 1e-9, 5.0, least.step_seconds, "s", told_by)]
        parameters += [
            Parameter(f"rise_to[{count:g}]", 0.0, 5.0, 0.2 * least.step_seconds, "s", told_by) for count in knots[1:]
        ]
        return _BoundTable(tuple(parameters), fitted, knots, self.interpolation)


def _spread(counts: FloatArray, most: int) -> tuple[float, ...]:
    """At most so many of the counts, the first and the last among them, spread by ratio."""
    if counts.size <= most:
        return tuple(counts.tolist())
    wanted = np.geomspace(counts[0], counts[-1], most)
    nearest = np.abs(np.log(counts)[None, :] - np.log(wanted)[:, None]).argmin(axis=1)
    return tuple(counts[np.unique(nearest)].tolist())


@dataclass(frozen=True, slots=True)
class _BoundPlainPool(Bound):
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
        interpolation: between the points.
    """
    counts, of = np.unique(tokens, return_inverse=True)
    total = np.bincount(of, weights)
    mean = np.bincount(of, weights * np.log(seconds)) / total
    levelled = np.exp(isotonic_regression(mean, weights=total).x)
    # A pooled block comes back equal up to rounding; a table may not fall by even that.
    rising = np.maximum.accumulate(levelled)
    return MeasuredTableStep(tuple(counts.tolist()), (tuple(rising.tolist()),), interpolation=interpolation)
