"""How far the parameters would move had the repeats come out otherwise."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from adaptive_gamma.roofline.arrays import FloatArray
from adaptive_gamma.roofline.calibrate.fit import Fit

__all__ = ["Units", "bootstrap_intervals", "resampling_units"]

Units: TypeAlias = Literal["runs", "observations"]

_FEWEST_RUNS = 5
_LEVEL = 95.0


def resampling_units(fit: Fit) -> tuple[Units, FloatArray]:
    """What is drawn again, and the unit of each point: the repeats, or single observations where repeats are few."""
    runs = [o.run for o in fit.problem.points.observations]
    names, of = np.unique(np.asarray(runs), return_inverse=True)
    if names.size >= _FEWEST_RUNS:
        return "runs", of.astype(np.float64)
    return "observations", np.arange(len(runs), dtype=np.float64)


def bootstrap_intervals(fit: Fit, weights: FloatArray, draws: int, seed: int) -> tuple[FloatArray, FloatArray] | None:
    """Lower and upper ends of the 95 % interval of every parameter; None where the points leave no freedom.

    Bayesian bootstrap: each unit counts as often as an exponential draw says, so that no draw loses a load
    altogether. Deviations are widened by sqrt(n / (n - p)), for a fit of p numbers to n points follows them too well.
    """
    free = sum(p.name not in fit.held for p in fit.parameters)
    points = int(fit.bound.fitted.sum())
    if draws < 1 or points <= free:
        return None
    _, units = resampling_units(fit)
    of = units.astype(np.int64)
    generator = np.random.default_rng(seed)
    found = np.empty((draws, fit.values.size))
    for row in range(draws):
        drawn = generator.exponential(1.0, int(of.max()) + 1)
        counted = weights * drawn[of] / drawn.mean()
        found[row] = Fit.of(fit.problem, counted, [fit.values], fit.held, check=False).values
    wide = np.sqrt(points / (points - free))
    ends = np.percentile(found - fit.values, [(100 - _LEVEL) / 2, (100 + _LEVEL) / 2], axis=0) * wide + fit.values
    low = np.maximum(ends[0], [p.low for p in fit.parameters])
    high = np.minimum(ends[1], [p.high for p in fit.parameters])
    return low, high
