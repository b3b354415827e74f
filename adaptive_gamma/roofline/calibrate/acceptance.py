"""What a step yields in a fit: known from the observation, from a curve given, or from two numbers that are fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import least_squares

from adaptive_gamma.roofline.acceptance import AcceptanceCurve
from adaptive_gamma.roofline.arrays import FloatArray
from adaptive_gamma.roofline.calibrate.observation import ALL_CLASSES, Points
from adaptive_gamma.roofline.calibrate.parameter import Parameter

__all__ = ["GivenCurves", "YieldModel", "curve_through"]

GivenCurves = AcceptanceCurve | Mapping[str, AcceptanceCurve] | None

_TOLD_BY = "the mean tokens per step of its observations, or its curve, or speculative steps at more gammas and loads"
_NEARLY_ONE = 1e-9


@dataclass(frozen=True, slots=True)
class YieldModel:
    """Tokens per step of each class."""

    given: Mapping[str, AcceptanceCurve]
    free: tuple[str, ...]
    """Classes whose curve (acceptance of the first position, plateau of the others) is fitted with the rest."""

    @classmethod
    def of(cls, points: Points, curve: GivenCurves) -> YieldModel:
        """For these points: free where neither the yield nor a curve is known."""
        if isinstance(curve, AcceptanceCurve):
            return cls(dict.fromkeys(points.classes, curve), ())
        given = dict(curve or {})
        unknown = np.isnan(points.yield_known)
        free = tuple(
            name
            for index, name in enumerate(points.classes)
            if name not in given and np.any(unknown & (points.class_index == index))
        )
        return cls(given, free)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Two for each free class."""
        found: list[Parameter] = []
        for name in self.free:
            of = "" if name == ALL_CLASSES else f"[{name}]"
            found.append(Parameter(f"acceptance_first{of}", 0.0, 1.0, 0.74, "", _TOLD_BY))
            found.append(Parameter(f"acceptance_plateau{of}", 0.0, 1.0, 0.7, "", _TOLD_BY))
        return tuple(found)

    def curves(self, values: FloatArray) -> dict[str, AcceptanceCurve]:
        """All curves at these values of the parameters."""
        numbers = values.tolist()
        fitted = {
            name: AcceptanceCurve.two_parameter(numbers[2 * i], numbers[2 * i + 1]) for i, name in enumerate(self.free)
        }
        return {**self.given, **fitted}

    def tokens_per_step(self, points: Points, values: FloatArray) -> FloatArray:
        """What each point's step yields."""
        known = points.yield_known
        missing = np.isnan(known)
        if not missing.any():
            return known
        depth = int(points.gamma.max())
        numbers = values.tolist()
        rows: list[Sequence[float]] = []
        for name in points.classes:
            if name in self.free:
                at = 2 * self.free.index(name)
                rows.append(_two_number_yields(numbers[at], numbers[at + 1], depth))
            elif name in self.given:
                rows.append(_yields(self.given[name], depth))
            else:
                rows.append([1.0] * (depth + 1))
        return np.where(missing, np.asarray(rows)[points.class_index, points.gamma], known)


def _two_number_yields(first: float, plateau: float, depth: int) -> list[float]:
    """E(0) .. E(depth)."""
    found, reached = [1.0], first
    for _ in range(depth):
        found.append(found[-1] + reached)
        reached *= plateau
    return found


@lru_cache(maxsize=256)
def _yields(curve: AcceptanceCurve, depth: int) -> tuple[float, ...]:
    return tuple(curve.expected_tokens(np.arange(depth + 1, dtype=np.float64)).tolist())


def curve_through(gammas: FloatArray, yields: FloatArray, weights: FloatArray) -> AcceptanceCurve | None:
    """The two-number curve nearest to known yields; None where no step drafted anything.

    From one gamma alone only an independent acceptance can be told.
    """
    drafted = gammas > 0
    if not drafted.any():
        return None
    deep, seen, root = gammas[drafted], yields[drafted], np.sqrt(weights[drafted])
    single = np.unique(deep).size == 1

    def off(values: FloatArray) -> FloatArray:
        first, plateau = (values[0], values[0]) if single else (values[0], values[1])
        total = np.where(
            np.abs(1.0 - plateau) < _NEARLY_ONE, deep, (1.0 - plateau**deep) / max(1.0 - plateau, _NEARLY_ONE)
        )
        return np.asarray(root * (1.0 + first * total - seen) / seen)

    start = np.asarray([0.7] if single else [0.7, 0.7])
    found = least_squares(off, start, bounds=(0.0, 1.0)).x
    return AcceptanceCurve.two_parameter(float(found[0]), float(found[-1]))
