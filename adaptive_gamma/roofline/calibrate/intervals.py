"""How far the parameters would move had the repeats come out otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import lsq_linear

from adaptive_gamma.roofline.arrays import FloatArray
from adaptive_gamma.roofline.calibrate.fit import Fit, sensitivity
from adaptive_gamma.roofline.calibrate.observation import Points

__all__ = ["Units", "bootstrap_intervals", "resampling_units"]

Units: TypeAlias = Literal["runs", "observations"]

_FEWEST_RUNS = 5
_LEVEL = 95.0
_STEPS = 6
_SETTLED = 1e-4
_MARGIN = 1e-12
"""Keeps the bounds of a step apart where a parameter stands at one of its own."""


def resampling_units(fit: Fit) -> tuple[Units, npt.NDArray[np.int64]]:
    """What is drawn again, and the unit of each point: the repeats, or single observations where repeats are few."""
    runs = [o.run for o in fit.problem.points.observations]
    names, of = np.unique(np.asarray(runs), return_inverse=True)
    if names.size >= _FEWEST_RUNS:
        return "runs", np.asarray(of, dtype=np.int64)
    return "observations", np.arange(len(runs), dtype=np.int64)


def bootstrap_intervals(fit: Fit, draws: int, seed: int) -> tuple[FloatArray, FloatArray] | None:
    """Lower and upper ends of the 95 % interval of every parameter; None where the points leave no freedom.

    Bayesian bootstrap: each unit counts as often as an exponential draw says, so that no draw loses a load
    altogether. Deviations are widened by sqrt(n / (n - p)), for a fit of p numbers to n points follows them too well.
    """
    points = fit.problem.points
    rows = fit.bound.fitted
    count, free = int(rows.sum()), fit.free
    if draws < 1 or not free or count <= len(free):
        return None
    _, units = resampling_units(fit)
    generator = np.random.default_rng(seed)
    used = points.where(rows)
    slopes = sensitivity(fit, used, free)
    found = np.tile(fit.values, (draws, 1))
    for row in range(draws):
        drawn = generator.exponential(1.0, int(units.max()) + 1)
        weights = points.weight * (drawn / drawn.mean())[units]
        again = replace(fit, bound=fit.problem.family.bind(points, weights))
        found[row] = _moved(again, used, slopes, np.sqrt(weights[rows]))
    wide = np.sqrt(count / (count - len(free)))
    ends = np.percentile(found - fit.values, [(100 - _LEVEL) / 2, (100 + _LEVEL) / 2], axis=0) * wide + fit.values
    low = np.maximum(ends[0], [p.low for p in fit.parameters])
    high = np.minimum(ends[1], [p.high for p in fit.parameters])
    return low, high


def _moved(fit: Fit, points: Points, slopes: FloatArray, root: FloatArray) -> FloatArray:
    """Where the optimum goes when points are weighed anew: Gauss-Newton with the slopes of the old one, in bounds."""
    free = fit.free
    parameters = [fit.parameters[i] for i in free]
    scale = np.asarray([p.scale for p in parameters])
    low, high = np.asarray([p.low for p in parameters]), np.asarray([p.high for p in parameters])
    weighted = root[:, None] * slopes
    values = fit.values
    off = root * fit.residuals(points, values)
    for _ in range(_STEPS):
        at = values[free]
        step = np.linalg.lstsq(weighted, -off, rcond=None)[0] * scale
        if np.any(at + step < low) or np.any(at + step > high):
            room = ((low - at) / scale - _MARGIN, (high - at) / scale + _MARGIN)
            step = lsq_linear(weighted, -off, bounds=room).x * scale
        for shrink in (1.0, 0.5, 0.25):
            tried = values.copy()
            tried[free] = np.clip(at + shrink * step, low, high)
            off_there = root * fit.residuals(points, tried)
            if off_there @ off_there < off @ off:
                break
        else:
            return values
        settled = np.all(np.abs(tried - values)[free] <= _SETTLED * scale)
        values, off = tried, off_there
        if settled:
            break
    return values
