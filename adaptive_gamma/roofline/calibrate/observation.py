"""What a server was seen to do at one load, and many of it as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adaptive_gamma.roofline.arrays import FloatArray
from adaptive_gamma.roofline.capture import CaptureSizes

__all__ = ["ALL_CLASSES", "Observation", "Points"]

ALL_CLASSES = "all"
"""Name of the acceptance curve of observations that name no class."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The time per output token of a server at one load.

    Raises ValueError that names the field for values no server can show.
    """

    batch: float
    """Sequences decoding together, as measured (a mean)."""
    gamma: int
    """Draft tokens per step; 0 drafts nothing."""
    speculative: bool
    """Whether the engine has a drafter. Gamma 0 on such an engine is not plain: it tells the zero-gamma tax."""
    context_tokens: float
    """Mean context of the sequences."""
    prefill_tokens: float
    """Prompt tokens computed in a step beside the decoding, as a mean over steps."""
    seconds_per_token: float
    """Time per output token of one sequence."""
    tokens_per_step: float | None = None
    """Mean tokens a step yields per sequence, the target's own included; None where it is not known."""
    request_class: str | None = None
    run: str = ""
    """Which repeat of the measurement it belongs to; intervals are drawn over repeats."""
    failed_share: float = 0.0
    """Share of the requests that failed or timed out; the observation weighs that much less."""
    label: str = ""
    """Where it comes from, for residuals: a file and line."""
    includes_drafter: bool = True
    """False for the time of the target's pass alone (a profile without the drafter)."""
    load: float | None = None
    """The load asked for (concurrency), which leave-one-load-out groups by; None: ``batch`` itself."""

    def __post_init__(self) -> None:
        _check("batch", self.batch, 0 < self.batch < math.inf, "> 0")
        _check("gamma", self.gamma, self.gamma >= 0 and self.gamma == int(self.gamma), "a whole number >= 0")
        _check("speculative", self.speculative, self.speculative or self.gamma == 0, f"True at gamma {self.gamma}")
        _check("context_tokens", self.context_tokens, 0 <= self.context_tokens < math.inf, ">= 0")
        _check("prefill_tokens", self.prefill_tokens, 0 <= self.prefill_tokens < math.inf, ">= 0")
        _check("seconds_per_token", self.seconds_per_token, 0 < self.seconds_per_token < math.inf, "seconds > 0")
        if self.tokens_per_step is not None:
            most = self.gamma + 1.0
            holds = 1.0 <= self.tokens_per_step <= most * (1 + 1e-6)
            _check("tokens_per_step", self.tokens_per_step, holds, f"in 1..{most:g} at gamma {self.gamma}")
        _check("load", self.load, self.load is None or 0 < self.load < math.inf, "> 0")
        _check("failed_share", self.failed_share, 0 <= self.failed_share <= 1, "in 0..1")

    @property
    def tokens(self) -> float:
        """Tokens computed in a step."""
        return self.decode_tokens + self.prefill_tokens

    @property
    def decode_tokens(self) -> float:
        """Of these, the ones that count towards the capture limit: batch x (gamma + 1)."""
        return self.batch * (self.gamma + 1)


def _check(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {expected}, not {value!r}")


@dataclass(frozen=True, slots=True)
class Points:
    """Observations as columns of equal length."""

    observations: tuple[Observation, ...]
    classes: tuple[str, ...]
    """Names that ``class_index`` counts in."""
    batch: FloatArray
    gamma: npt.NDArray[np.int64]
    speculative: npt.NDArray[np.bool_]
    context: FloatArray
    prefill: FloatArray
    seconds: FloatArray
    """Time per output token."""
    yield_known: FloatArray
    """Tokens per step where they are known, NaN elsewhere; 1 at gamma 0."""
    class_index: npt.NDArray[np.int64]
    drafted: npt.NDArray[np.bool_]
    """Whether the time holds a drafter's."""
    weight: FloatArray
    """1 less the share of failed requests."""
    load: FloatArray
    capture: CaptureSizes | None
    """Token counts that steps are padded up to."""

    @classmethod
    def of(cls, observations: Sequence[Observation], capture: CaptureSizes | None = None) -> Points:
        """As columns; with captured sizes, a step computes the tokens it is padded up to."""
        classes = tuple(dict.fromkeys(o.request_class or ALL_CLASSES for o in observations))
        gamma = np.asarray([o.gamma for o in observations], dtype=np.int64)
        known = np.asarray(
            [math.nan if o.tokens_per_step is None else o.tokens_per_step for o in observations], dtype=np.float64
        )
        return cls(
            observations=tuple(observations),
            classes=classes,
            batch=np.asarray([o.batch for o in observations], dtype=np.float64),
            gamma=gamma,
            speculative=np.asarray([o.speculative for o in observations], dtype=np.bool_),
            context=np.asarray([o.context_tokens for o in observations], dtype=np.float64),
            prefill=np.asarray([o.prefill_tokens for o in observations], dtype=np.float64),
            seconds=np.asarray([o.seconds_per_token for o in observations], dtype=np.float64),
            yield_known=np.where(gamma == 0, 1.0, known),
            class_index=np.asarray(
                [classes.index(o.request_class or ALL_CLASSES) for o in observations], dtype=np.int64
            ),
            drafted=np.asarray([o.includes_drafter and o.gamma > 0 for o in observations], dtype=np.bool_),
            weight=np.asarray([1.0 - o.failed_share for o in observations], dtype=np.float64),
            load=np.asarray([o.batch if o.load is None else o.load for o in observations], dtype=np.float64),
            capture=capture,
        )

    @property
    def tokens(self) -> FloatArray:
        """Tokens computed in a step, padding included."""
        decoding = self.batch * (self.gamma + 1)
        return np.asarray((decoding if self.capture is None else self.capture.padded(decoding)) + self.prefill)

    @property
    def plain(self) -> npt.NDArray[np.bool_]:
        """Steps of an engine without a drafter, or of the target alone at one token per sequence."""
        return np.asarray(~self.speculative)

    @property
    def taxed(self) -> npt.NDArray[np.bool_]:
        """Gamma 0 on an engine with a drafter."""
        return np.asarray(self.speculative & (self.gamma == 0))

    def __len__(self) -> int:
        return len(self.observations)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Points:
        """The chosen rows, with the same class names."""
        kept = tuple(o for o, keep in zip(self.observations, chosen, strict=True) if keep)
        return Points(
            kept, self.classes, self.batch[chosen], self.gamma[chosen], self.speculative[chosen], self.context[chosen],
            self.prefill[chosen], self.seconds[chosen], self.yield_known[chosen], self.class_index[chosen],
            self.drafted[chosen], self.weight[chosen], self.load[chosen], self.capture,
        )  # fmt: skip
