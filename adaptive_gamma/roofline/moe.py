"""Mixture of experts: a step reads the experts that its tokens were routed to, and few tokens are routed to few."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adaptive_gamma.roofline.arrays import FloatArray, Numbers, as_floats, scalar_if_zero_dim
from adaptive_gamma.roofline.step_time import WHOLE_MODEL, Combine, ModelShare, StepTerms, joined

__all__ = ["MoeStep", "distinct_experts"]


def distinct_experts(tokens: Numbers, experts: float, active: float, exponent: float = 1.0) -> FloatArray:
    """Experts of a layer that at least one of the tokens uses: D(T) = N (1 - (1 - k/N)^(T^s)).

    Args:
        tokens: tokens T in the step.
        experts: N, experts of a layer.
        active: k, experts a token uses.
        exponent: s = 1 draws every token's experts at random. Tokens of real text choose alike, which reads 20-35 %
            fewer experts at 8 to 32 tokens: s below 1.

    >>> float(distinct_experts(1, experts=128, active=8))
    8.0
    >>> round(float(distinct_experts(8, experts=128, active=8)), 2)  # not 64: tokens share experts
    51.62
    """
    reached = -np.expm1(as_floats(tokens) ** exponent * np.log1p(-active / experts))
    return scalar_if_zero_dim(np.asarray(experts * reached))


@dataclass(frozen=True, slots=True)
class MoeStep:
    """A roofline whose weights are shared ones, read by every step, and experts, read as tokens need them.

        memory  = shared + all experts x D(T) / N + k x KV tokens
        compute = c x tokens
        t       = launch + max(memory, compute),  or  launch + (memory^p + compute^p)^(1/p)

    All terms are in seconds, so that it can be fitted to a server whose hardware is not known; ``from_sizes`` makes it
    from bytes and peaks. Attention's KV reads and the shared part are paid once whatever is verified; a drafter's share
    of the weights is taken of what the step would read.

    Raises ValueError for negative times, an active share outside (0, 1), an exponent outside (0, 2] or p below 1.
    """

    shared_seconds: float
    """Reading the weights that every token uses."""
    experts_seconds: float
    """Reading all experts."""
    active_share: float
    """k / N: experts a token uses, of those of a layer."""
    token_seconds: float
    """c: per token computed."""
    exponent: float = 1.0
    """s in D(T) = N (1 - (1 - k/N)^(T^s))."""
    kv_token_seconds: float = 0.0
    """k: per token of context of every sequence."""
    launch_seconds: float = 0.0
    combine: Combine = 1.0

    def __post_init__(self) -> None:
        for name in ("shared_seconds", "experts_seconds", "token_seconds", "kv_token_seconds", "launch_seconds"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be >= 0, not {getattr(self, name)!r}")
        if not self.shared_seconds + self.experts_seconds + self.launch_seconds + self.token_seconds > 0:
            raise ValueError("shared_seconds + experts_seconds + launch_seconds + token_seconds must be > 0")
        if not 0 < self.active_share < 1:
            raise ValueError(f"active_share must be in (0, 1), not {self.active_share!r}")
        if not 0 < self.exponent <= 2:
            raise ValueError(f"exponent must be in (0, 2], not {self.exponent!r}")
        if self.combine != "max" and not self.combine >= 1:
            raise ValueError(f"combine must be 'max' or a power >= 1, not {self.combine!r}")

    @classmethod
    def from_sizes(
        cls,
        *,
        shared_bytes: float,
        expert_bytes: float,
        experts: int,
        active_experts: int,
        flops_per_token: float,
        kv_bytes_per_token: float,
        bandwidth: float,
        compute: float,
        memory_efficiency: float = 0.8,
        compute_efficiency: float = 0.8,
        exponent: float = 1.0,
        launch_seconds: float = 0.0,
        combine: Combine = 2.0,
    ) -> MoeStep:
        """From bytes, FLOP and peaks.

        Args:
            shared_bytes: weights that every token uses, all layers together.
            expert_bytes: all experts of all layers together.
            experts: experts of a layer.
            active_experts: experts a token uses.
            flops_per_token: 2 x the parameters a token uses.
            kv_bytes_per_token: per token of context, over all layers.
            bandwidth: peak, bytes/s.
            compute: peak, FLOP/s.
            memory_efficiency: share of the bandwidth achieved, in (0, 1].
            compute_efficiency: share of the FLOP/s achieved, in (0, 1].
            exponent: s of ``distinct_experts``.
            launch_seconds: fixed time per pass.
            combine: how memory and compute time join.
        """
        for name, value in (("memory_efficiency", memory_efficiency), ("compute_efficiency", compute_efficiency)):
            if not 0 < value <= 1:
                raise ValueError(f"{name} must be in (0, 1], not {value!r}")
        for name, value in (("bandwidth", bandwidth), ("compute", compute)):
            if not value > 0:
                raise ValueError(f"{name} must be > 0, not {value!r}")
        if not 0 < active_experts < experts:
            raise ValueError(f"active_experts must be in 1..experts - 1, not {active_experts} of {experts}")
        achieved = bandwidth * memory_efficiency
        return cls(
            shared_seconds=shared_bytes / achieved,
            experts_seconds=expert_bytes / achieved,
            active_share=active_experts / experts,
            token_seconds=flops_per_token / (compute * compute_efficiency),
            exponent=exponent,
            kv_token_seconds=kv_bytes_per_token / achieved,
            launch_seconds=launch_seconds,
            combine=combine,
        )

    def experts_read(self, tokens: Numbers) -> FloatArray:
        """Share of the experts that a step of this many tokens reads."""
        return distinct_experts(tokens, 1.0, self.active_share, self.exponent)

    def terms(self, context_tokens: float) -> StepTerms:
        """As read by a step of one token."""
        return StepTerms(
            self.launch_seconds + self.shared_seconds + self.experts_seconds * float(self.experts_read(1.0)),
            self.kv_token_seconds * context_tokens,
            self.token_seconds,
        )

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
        read = share.weight * (self.shared_seconds + self.experts_seconds * self.experts_read(tokens))
        memory = read + share.kv * self.kv_token_seconds * sequences * as_floats(context_tokens)
        compute = share.compute * self.token_seconds * tokens
        return scalar_if_zero_dim(share.weight * self.launch_seconds + joined(memory, compute, self.combine))
