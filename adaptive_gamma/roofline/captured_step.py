"""A step as an engine with CUDA graphs runs it: padded up to a captured size, and dearer beyond the largest one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adaptive_gamma.roofline.arrays import FloatArray, Numbers, as_floats, scalar_if_zero_dim
from adaptive_gamma.roofline.capture import CaptureSizes
from adaptive_gamma.roofline.step_time import WHOLE_MODEL, ModelShare, StepTerms, StepTime

__all__ = ["CapturedStep"]


@dataclass(frozen=True, slots=True)
class CapturedStep:
    """Wraps the smooth time of a step.

    Decode tokens (batch x tokens per sequence) are padded up to the next captured size; the padding is computed like
    any token and reads no KV cache. Beyond the limit a step runs without graphs and takes ``uncaptured_seconds`` more:
    launching its kernels from the CPU. Measured on B300 at a limit of 1024 tokens: 20.6 ms inside, 104 ms at 1537
    tokens, 235 ms at 16384 (vLLM blog 2026-08-14). Prompt tokens do not count towards the limit: mixed steps are few,
    and a mean over steps says nothing of any one of them.

    Raises ValueError for a negative extra time, a limit below 1, or one below the largest captured size.
    """

    step: StepTime
    sizes: CaptureSizes | None = None
    """None pads nothing."""
    limit_tokens: int | None = None
    """None is the largest captured size, where sizes are given, and no limit otherwise."""
    uncaptured_seconds: float = 0.0
    """Extra time of a pass beyond the limit."""

    def __post_init__(self) -> None:
        if not 0 <= self.uncaptured_seconds < np.inf:
            raise ValueError(f"uncaptured_seconds must be >= 0, not {self.uncaptured_seconds!r}")
        if self.limit_tokens is not None:
            least = 1 if self.sizes is None else self.sizes.limit
            if self.limit_tokens < least:
                raise ValueError(f"limit_tokens must be at least {least}, not {self.limit_tokens}")

    @property
    def limit(self) -> int | None:
        """Most tokens that still run captured; None where nothing is known of a limit."""
        if self.limit_tokens is not None:
            return self.limit_tokens
        return None if self.sizes is None else self.sizes.limit

    def terms(self, context_tokens: float) -> StepTerms:
        return self.step.terms(context_tokens)

    def seconds(
        self,
        batch: Numbers,
        tokens_per_sequence: Numbers,
        context_tokens: Numbers,
        prefill_tokens: Numbers = 0,
        share: ModelShare = WHOLE_MODEL,
    ) -> FloatArray:
        tokens = as_floats(batch) * as_floats(tokens_per_sequence)
        computed = as_floats(prefill_tokens)
        if self.sizes is not None:
            computed = computed + (self.sizes.padded(tokens) - tokens)
        seconds = self.step.seconds(batch, tokens_per_sequence, context_tokens, computed, share)
        if self.limit is None or self.uncaptured_seconds == 0:
            return scalar_if_zero_dim(np.asarray(seconds))
        extra = np.where(tokens > self.limit, share.weight * self.uncaptured_seconds, 0.0)
        return scalar_if_zero_dim(np.asarray(seconds + extra))
