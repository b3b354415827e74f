"""Step time as it was measured: a table by tokens in the step, and by context where that was varied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from adaptive_gamma.roofline.arrays import FloatArray, Numbers, as_floats, scalar_if_zero_dim
from adaptive_gamma.roofline.step_time import WHOLE_MODEL, ModelShare, StepTerms

__all__ = ["Interpolation", "MeasuredTableStep"]

Interpolation: TypeAlias = Literal["linear", "log"]
"""Straight lines between the points: in tokens and seconds, or in their logarithms (a power law in each piece)."""
_Index: TypeAlias = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class MeasuredTableStep:
    """Seconds of a step by the tokens computed in it, read off a table that never falls.

    Below the first point the time is that of the first. Beyond the last point the last piece goes on: a prediction that
    nothing measured supports. With several contexts a row for each; between them the time is a straight line in the
    context, outside them that of the nearest row. The context of a row is that of sequences that compute one token
    each; a step of several tokens per sequence reads every context once and is priced at context / tokens per sequence.

    A drafter's share of a table: its ``weight`` of the first point, its ``compute`` of the rise above it.

    Raises ValueError for fewer than two points, tokens or contexts that do not rise, times that are not positive or
    that fall as tokens rise.
    """

    tokens: tuple[float, ...]
    rows: tuple[tuple[float, ...], ...]
    """Seconds by token count, one row for each context."""
    contexts: tuple[float, ...] = (0.0,)
    interpolation: Interpolation = "linear"
    _x: FloatArray = field(init=False, repr=False, compare=False)
    _y: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.tokens) < 2:
            raise ValueError("a measured table needs at least two token counts")
        if not self.tokens[0] > 0 or any(not b > a for a, b in pairwise(self.tokens)):
            raise ValueError("token counts of a measured table must be > 0 and rise")
        if not self.contexts or self.contexts[0] < 0 or any(not b > a for a, b in pairwise(self.contexts)):
            raise ValueError("contexts of a measured table must be >= 0 and rise")
        if len(self.rows) != len(self.contexts):
            raise ValueError(f"a measured table needs a row for each of {len(self.contexts)} contexts")
        for row in self.rows:
            if len(row) != len(self.tokens):
                raise ValueError(f"each row of a measured table needs {len(self.tokens)} times")
            if not all(0 < seconds < np.inf for seconds in row):
                raise ValueError("times of a measured table must be > 0")
            if any(b < a for a, b in pairwise(row)):
                raise ValueError("times of a measured table must not fall as tokens rise")
        if self.interpolation not in ("linear", "log"):
            raise ValueError(f"interpolation must be 'linear' or 'log', not {self.interpolation!r}")
        x, y = np.asarray(self.tokens, dtype=np.float64), np.asarray(self.rows, dtype=np.float64)
        object.__setattr__(self, "_x", np.log(x) if self.interpolation == "log" else x)
        object.__setattr__(self, "_y", np.log(y) if self.interpolation == "log" else y)

    @classmethod
    def from_points(
        cls, points: Iterable[tuple[float, float]], interpolation: Interpolation = "linear"
    ) -> MeasuredTableStep:
        """From (tokens, seconds) at one context, in any order."""
        ordered = sorted((float(t), float(s)) for t, s in points)
        return cls(tuple(t for t, _ in ordered), (tuple(s for _, s in ordered),), interpolation=interpolation)

    @property
    def last_tokens(self) -> float:
        """The largest token count that was measured; what is asked beyond it is extrapolated."""
        return self.tokens[-1]

    def terms(self, context_tokens: float) -> StepTerms:
        """The first point as the fixed time, the slope of the last piece as the cost of a token."""
        first, before, last = (
            float(self._at(as_floats(t), as_floats(context_tokens))) for t in (self.tokens[0], *self.tokens[-2:])
        )
        return StepTerms(first, 0.0, (last - before) / (self.tokens[-1] - self.tokens[-2]))

    def seconds(
        self,
        batch: Numbers,
        tokens_per_sequence: Numbers,
        context_tokens: Numbers,
        prefill_tokens: Numbers = 0,
        share: ModelShare = WHOLE_MODEL,
    ) -> FloatArray:
        each = as_floats(tokens_per_sequence)
        tokens = as_floats(batch) * each + as_floats(prefill_tokens)
        context = as_floats(context_tokens) / np.maximum(each, 1.0)
        whole = self._at(tokens, context)
        if share == WHOLE_MODEL:
            return scalar_if_zero_dim(whole)
        first = self._at(np.full_like(tokens, self.tokens[0]), context)
        return scalar_if_zero_dim(np.asarray(share.weight * first + share.compute * (whole - first)))

    def _at(self, tokens: FloatArray, context: FloatArray) -> FloatArray:
        tokens = np.maximum(tokens, self.tokens[0])
        x = np.log(tokens) if self.interpolation == "log" else tokens
        piece = np.clip(np.searchsorted(self._x, x, side="right") - 1, 0, self._x.size - 2)
        along = (x - self._x[piece]) / (self._x[piece + 1] - self._x[piece])
        if len(self.contexts) == 1:
            return self._in_row(np.zeros_like(piece), piece, along) + 0.0 * context
        clipped = np.clip(context, self.contexts[0], self.contexts[-1])
        axis = np.asarray(self.contexts)
        lower = np.clip(np.searchsorted(axis, clipped, side="right") - 1, 0, axis.size - 2)
        part = (clipped - axis[lower]) / (axis[lower + 1] - axis[lower])
        below, above = self._in_row(lower, piece, along), self._in_row(lower + 1, piece, along)
        return np.asarray(below + part * (above - below))

    def _in_row(self, row: _Index, piece: _Index, along: FloatArray) -> FloatArray:
        left, right = self._y[row, piece], self._y[row, piece + 1]
        value = left + along * (right - left)
        return np.asarray(np.exp(value) if self.interpolation == "log" else value)
