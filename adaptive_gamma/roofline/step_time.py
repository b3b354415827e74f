"""Seconds of one forward pass of the target model, by batch, tokens per sequence and context."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np

from adaptive_gamma.roofline.arrays import FloatArray, Numbers, as_floats, scalar_if_zero_dim
from adaptive_gamma.roofline.capture import CaptureSizes

__all__ = [
    "WHOLE_MODEL",
    "Combine",
    "LinearStep",
    "ModelShare",
    "PlainPoolStep",
    "RooflineStep",
    "StepTerms",
    "StepTime",
    "joined",
]

Combine: TypeAlias = Literal["max"] | float
"""How memory and compute time join: the larger of the two, or their p-norm (p = 1 adds, p -> inf is the larger)."""


@dataclass(frozen=True, slots=True)
class ModelShare:
    """What share of the target's work a pass does: 1 for the target itself, a few per cent for a drafter."""

    weight: float = 1.0
    """Share of the weights read (and of the launch time, which goes with the layers)."""
    compute: float = 1.0
    """Share of the FLOPs per token."""
    kv: float = 1.0
    """Share of the KV cache read."""


WHOLE_MODEL = ModelShare()


@dataclass(frozen=True, slots=True)
class StepTerms:
    """The three numbers of the closed form, in seconds.

    For a roofline: t_w = weight bytes / achieved bandwidth, k = KV bytes of a sequence / achieved bandwidth,
    c = FLOPs of a token / achieved FLOP/s. For a linear step their equivalents: t0, KV cost x context, cost per token.
    """

    weight_seconds: float
    """t_w: per step."""
    kv_seconds_per_sequence: float
    """k: per sequence and step, at the context asked for."""
    token_seconds: float
    """c: per token computed."""


class StepTime(Protocol):
    """Prices forward passes. All arguments broadcast."""

    def seconds(
        self,
        batch: Numbers,
        tokens_per_sequence: Numbers,
        context_tokens: Numbers,
        prefill_tokens: Numbers = 0,
        share: ModelShare = WHOLE_MODEL,
    ) -> FloatArray:
        """Seconds of a pass.

        Args:
            batch: sequences B in the step.
            tokens_per_sequence: tokens computed for each: 1 to decode, gamma + 1 to verify.
            context_tokens: mean context length of the sequences.
            prefill_tokens: prompt tokens computed in the same step.
            share: the part of the target's work done; a drafter's pass is a share of the target.
        """

    def terms(self, context_tokens: float) -> StepTerms:
        """The numbers of the closed form at a context length."""


@dataclass(frozen=True, slots=True)
class RooflineStep:
    """Memory time against compute time, from what the hardware can do and what the model needs.

        memory  = (weights + B x context x KV per token) / (bandwidth x memory efficiency)
        compute = FLOPs per token x tokens / (peak x compute efficiency)
        t       = launch + max(memory, compute),  or  launch + (memory^p + compute^p)^(1/p)

    With ``combine="max"`` it is the textbook roofline; p = 2 fits measured dense kernels and steps best (mean error
    7-12 % over GPUs, against 25 % for the maximum; H100 bf16 efficiencies .80 and .80).

    Raises ValueError for efficiencies outside (0, 1], p below 1, or sizes and rates that are not positive.
    """

    weight_bytes: float
    """Bytes of weights read in a pass."""
    flops_per_token: float
    """FLOP per token computed, 2 x parameters for a dense model."""
    kv_bytes_per_token: float
    """KV cache bytes per token of context, over all layers (0 leaves the KV cache out)."""
    bandwidth: float
    """Peak memory bandwidth, bytes/s."""
    compute: float
    """Peak dense compute at the weights' number format, FLOP/s."""
    memory_efficiency: float = 0.8
    compute_efficiency: float = 0.8
    combine: Combine = 2.0
    launch_seconds: float = 0.0
    """Fixed time per pass: launches, scheduling, sampling."""
    capture: CaptureSizes | None = None
    """Captured token counts; compute time is taken at the padded count."""

    def __post_init__(self) -> None:
        for name in ("weight_bytes", "flops_per_token", "bandwidth", "compute"):
            _require(getattr(self, name) > 0, name, "> 0", getattr(self, name))
        for name in ("kv_bytes_per_token", "launch_seconds"):
            _require(getattr(self, name) >= 0, name, ">= 0", getattr(self, name))
        for name in ("memory_efficiency", "compute_efficiency"):
            _require(0 < getattr(self, name) <= 1, name, "in (0, 1]", getattr(self, name))
        if self.combine != "max":
            _require(self.combine >= 1, "combine", "'max' or a power >= 1", self.combine)

    def terms(self, context_tokens: float) -> StepTerms:
        achieved = self.bandwidth * self.memory_efficiency
        return StepTerms(
            weight_seconds=self.weight_bytes / achieved,
            kv_seconds_per_sequence=self.kv_bytes_per_token * context_tokens / achieved,
            token_seconds=self.flops_per_token / (self.compute * self.compute_efficiency),
        )

    def seconds(
        self,
        batch: Numbers,
        tokens_per_sequence: Numbers,
        context_tokens: Numbers,
        prefill_tokens: Numbers = 0,
        share: ModelShare = WHOLE_MODEL,
    ) -> FloatArray:
        sequences, context = as_floats(batch), as_floats(context_tokens)
        tokens = sequences * as_floats(tokens_per_sequence) + as_floats(prefill_tokens)
        if self.capture is not None:
            tokens = self.capture.padded(tokens)
        read = share.weight * self.weight_bytes + share.kv * self.kv_bytes_per_token * sequences * context
        memory = read / (self.bandwidth * self.memory_efficiency)
        compute = share.compute * self.flops_per_token * tokens / (self.compute * self.compute_efficiency)
        return scalar_if_zero_dim(share.weight * self.launch_seconds + joined(memory, compute, self.combine))


@dataclass(frozen=True, slots=True)
class LinearStep:
    """t = t0 + c x tokens + k x KV tokens: three numbers that fit measured dense serving within 1.4-7.5 %.

    Raises ValueError for a negative number or t0 = c = 0.
    """

    fixed_seconds: float
    """t0: per pass (weights, launches)."""
    token_seconds: float
    """c: per token computed, decode and prompt tokens alike."""
    kv_token_seconds: float = 0.0
    """k: per token of context of every sequence."""

    def __post_init__(self) -> None:
        for name in ("fixed_seconds", "token_seconds", "kv_token_seconds"):
            _require(getattr(self, name) >= 0, name, ">= 0", getattr(self, name))
        _require(self.fixed_seconds + self.token_seconds > 0, "fixed_seconds + token_seconds", "> 0", 0.0)

    def terms(self, context_tokens: float) -> StepTerms:
        return StepTerms(self.fixed_seconds, self.kv_token_seconds * context_tokens, self.token_seconds)

    def seconds(
        self,
        batch: Numbers,
        tokens_per_sequence: Numbers,
        context_tokens: Numbers,
        prefill_tokens: Numbers = 0,
        share: ModelShare = WHOLE_MODEL,
    ) -> FloatArray:
        sequences = as_floats(batch)
        tokens = sequences * as_floats(tokens_per_sequence) + as_floats(prefill_tokens)
        return scalar_if_zero_dim(
            share.weight * self.fixed_seconds
            + share.compute * self.token_seconds * tokens
            + share.kv * self.kv_token_seconds * sequences * as_floats(context_tokens)
        )


@dataclass(frozen=True, slots=True)
class PlainPoolStep:
    """Prices verification from plain decoding: t_spec(B, g) = t_plain(B (g + 1)).

    A plain replica that decodes T sequences computes T tokens in a step, as many as a verify step of B (g + 1) = T.
    Against measured MoE serving, held-out error was 2-6 %. A plain step of T sequences also reads T contexts where a
    verify step reads B of them; ``kv_read_once`` takes that out by pricing the plain step at context / (g + 1), which
    needs a plain model that knows its context. Leave it off for a curve measured at one context.
    """

    plain: StepTime
    kv_read_once: bool = False

    def terms(self, context_tokens: float) -> StepTerms:
        return self.plain.terms(context_tokens)

    def seconds(
        self,
        batch: Numbers,
        tokens_per_sequence: Numbers,
        context_tokens: Numbers,
        prefill_tokens: Numbers = 0,
        share: ModelShare = WHOLE_MODEL,
    ) -> FloatArray:
        each, context = as_floats(tokens_per_sequence), as_floats(context_tokens)
        if self.kv_read_once:
            context = context / np.maximum(each, 1.0)
        return self.plain.seconds(as_floats(batch) * each, 1, context, prefill_tokens, share)


def joined(memory: FloatArray, compute: FloatArray, combine: Combine) -> FloatArray:
    """Memory and compute time together."""
    if combine == 1:
        return np.asarray(memory + compute)
    larger: FloatArray = np.maximum(memory, compute)
    if combine == "max" or math.isinf(combine):
        return larger
    # Factored by the larger term, so that no power under- or overflows.
    ratio = np.divide(np.minimum(memory, compute), larger, out=np.zeros_like(larger + 0.0), where=larger > 0)
    joined: FloatArray = larger * (1.0 + ratio**combine) ** (1.0 / combine)
    return joined


def _require(holds: bool, name: str, expected: str, found: object) -> None:
    if not holds:
        raise ValueError(f"{name} must be {expected}, not {found!r}")
