"""How well a model predicts a load it has not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adaptive_gamma.roofline.calibrate.fit import Fit, Problem
from adaptive_gamma.roofline.calibrate.refusal import UnderDetermined

__all__ = ["LeftOut", "leave_one_load_out"]

_MOST_PARTS = 16


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Relative errors of the predicted time per token, each load predicted by a fit to the others."""

    mean: float
    """Mean of the absolute errors over all observations left out."""
    worst: float
    by_load: tuple[tuple[float, float], ...]
    """(load, mean absolute error)."""


def leave_one_load_out(fit: Fit) -> LeftOut:
    """Leave out each load in turn. Gamma 0 of a speculative engine, which tells the tax alone, is not judged.

    More than 16 loads are left out in 16 parts, each spread over all of the range.

    No part begins its search where the fit to all loads ended: where the rest tells a number badly, the search would
    stay there and know what it should not.

    Raises UnderDetermined where without some load the rest does not tell the parameters, or there is one load only.
    """
    problem, points = fit.problem, fit.problem.points
    judged = ~points.taxed
    loads = np.unique(points.load[judged])
    if loads.size < 2:
        raise UnderDetermined(problem.name, "leave-one-load-out needs two loads or more")
    errors, by_load = [], []
    for first in range(min(loads.size, _MOST_PARTS)):
        left_loads = loads[first::_MOST_PARTS]
        out = np.isin(points.load, left_loads)
        rest, left = points.where(~out), points.where(out & judged)
        part = Problem(problem.family, problem.drafter, problem.yields, rest)
        try:
            apart = Fit.of(part, rest.weight, more_starts=1)
        except UnderDetermined as refusal:
            named = ", ".join(f"{load:g}" for load in left_loads)
            raise UnderDetermined(problem.name, f"without load {named}, {refusal.problem}") from refusal
        error = np.abs(apart.seconds_per_token(left) / left.seconds - 1.0)
        errors.append(error)
        by_load += [(float(load), float(error[left.load == load].mean())) for load in left_loads]
    together = np.concatenate(errors)
    return LeftOut(float(together.mean()), float(together.max()), tuple(sorted(by_load)))
