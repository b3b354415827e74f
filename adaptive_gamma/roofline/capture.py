"""CUDA-graph capture: steps run at captured token counts, and beyond the largest one they fall off a cliff."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from adaptive_gamma.roofline.arrays import FloatArray, Numbers, as_floats, scalar_if_zero_dim

__all__ = ["CaptureSizes", "largest_captured_gamma"]


@dataclass(frozen=True, slots=True)
class CaptureSizes:
    """The token counts an engine has captured; a step is padded up to the next of them.

    Raises ValueError unless the sizes are positive and rise.
    """

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.sizes or self.sizes[0] < 1:
            raise ValueError("capture sizes must be a non-empty list of numbers >= 1")
        for smaller, larger in pairwise(self.sizes):
            if larger <= smaller:
                raise ValueError(f"capture sizes must rise, but {larger} follows {smaller}")

    @property
    def limit(self) -> int:
        """Most tokens a captured step can hold."""
        return self.sizes[-1]

    def padded(self, tokens: Numbers) -> FloatArray:
        """Tokens a step really computes; beyond the limit nothing is padded (and no graph is used)."""
        wanted = as_floats(tokens)
        ladder = np.asarray(self.sizes, dtype=np.float64)
        index = np.searchsorted(ladder, wanted, side="left")
        return scalar_if_zero_dim(np.where(wanted <= ladder[-1], ladder[np.minimum(index, ladder.size - 1)], wanted))


def largest_captured_gamma(batch: int, limit_tokens: int | None) -> int | None:
    """The largest gamma whose batch x (gamma + 1) tokens stay within the limit; 0 where none does, None unlimited.

    Leaving the captured range costs up to 5x (20.6 -> 104.5 ms on B300, vLLM blog 2026-08-14), more than any gamma
    gains.

    >>> [largest_captured_gamma(batch, 512) for batch in (64, 128, 512)]
    [7, 3, 0]
    """
    if limit_tokens is None:
        return None
    return max(limit_tokens // batch - 1, 0)
