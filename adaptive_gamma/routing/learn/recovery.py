"""Bounded least squares for a handful of unknowns."""

from __future__ import annotations

import numpy as np

from adaptive_gamma.roofline import FloatArray

__all__ = ["recover"]

_SWEEPS = 500
_CLOSE = 1e-10


def recover(precision: FloatArray, wanted: FloatArray, upper: FloatArray) -> FloatArray:
    """The x in 0 .. ``upper`` that makes x' P x / 2 - w' x least.

    With P = X' X and w = X' y that is the least-squares solution of X x = y within the bounds. Coordinate after
    coordinate is set to its best value within its bounds until none moves any more; as P is positive definite, that
    ends at the one solution.

    Args:
        precision: P, symmetric and positive definite.
        wanted: w.
        upper: bounds from above, >= 0.
    """
    unknowns = wanted.size
    rows, target, bound = precision.tolist(), wanted.tolist(), upper.tolist()
    x = np.clip(np.linalg.solve(precision, wanted), 0.0, upper).tolist()
    for _ in range(_SWEEPS):
        moved = 0.0
        for k in range(unknowns):
            row = rows[k]
            pull = target[k] - sum(row[j] * x[j] for j in range(unknowns)) + row[k] * x[k]
            best = min(max(pull / row[k], 0.0), bound[k])
            moved = max(moved, abs(best - x[k]))
            x[k] = best
        if moved < _CLOSE:
            break
    return np.asarray(x, dtype=np.float64)
