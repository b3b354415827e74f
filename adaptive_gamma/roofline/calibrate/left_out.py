"""How well a model predicts a load it has not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adaptive_gamma.roofline.calibrate.fit import Fit, Problem
from adaptive_gamma.roofline.calibrate.refusal import UnderDetermined

__all__ = ["LeftOut", "leave_one_load_out"]


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

    The search in each part begins at the model's own start and where the whole fit ended, and keeps the better end.

    Raises UnderDetermined where without some load the rest does not tell the parameters, or there is one load only.
    """
    problem, points = fit.problem, fit.problem.points
    judged = ~points.taxed
    loads = np.unique(points.load[judged])
    if loads.size < 2:
        raise UnderDetermined(problem.name, "leave-one-load-out needs two loads or more")
    errors, by_load = [], []
    for load in loads:
        out = judged & (points.load == load)
        rest = points.where(points.load != load)
        part = Problem(problem.family, problem.drafter, problem.yields, rest)
        try:
            apart = Fit.of(part, rest.weight, also_start=fit.by_name)
        except UnderDetermined as refusal:
            raise UnderDetermined(problem.name, f"without load {load:g}, {refusal.problem}") from refusal
        left = points.where(out)
        error = np.abs(apart.seconds_per_token(left) / left.seconds - 1.0)
        errors.append(error)
        by_load.append((float(load), float(error.mean())))
    together = np.concatenate(errors)
    return LeftOut(float(together.mean()), float(together.max()), tuple(by_load))
