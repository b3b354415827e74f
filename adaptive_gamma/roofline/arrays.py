"""The two array types of this package."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["FloatArray", "Numbers", "as_floats", "scalar_if_zero_dim"]

Numbers: TypeAlias = npt.ArrayLike
"""A number or an array of numbers; arguments of one call are broadcast against each other."""
FloatArray: TypeAlias = npt.NDArray[np.float64]
"""float64 values in the broadcast shape; for scalar arguments a ``numpy.float64``, which is a ``float``."""


def as_floats(values: Numbers) -> FloatArray:
    return np.asarray(values, dtype=np.float64)


def scalar_if_zero_dim(values: FloatArray) -> FloatArray:
    """A ``numpy.float64`` for a 0-d array, everything else unchanged."""
    scalar: FloatArray = values[()]
    return scalar
