"""The assumptions of the article "Speculative Decoding at High Batch Size", as objects."""

from __future__ import annotations

import numpy as np

from adaptive_gamma.roofline import (
    AcceptanceCurve,
    Drafter,
    FloatArray,
    ModelShare,
    ParallelDrafter,
    RooflineStep,
    SpeculationCost,
)

CONTEXT = 2048
DECAYING = AcceptanceCurve.line(0.94, 0.07, 8)
BATCHES = np.asarray([1 << i for i in range(10)])


def article_step(compute_efficiency: float = 0.5) -> RooflineStep:
    return RooflineStep(
        weight_bytes=54e9,
        flops_per_token=54e9,
        kv_bytes_per_token=262_144,
        bandwidth=3.35e12,
        compute=989e12,
        memory_efficiency=0.8,
        compute_efficiency=compute_efficiency,
        combine="max",
    )


def article_cost(drafter: Drafter | None = None, compute_efficiency: float = 0.5) -> SpeculationCost:
    return SpeculationCost(
        step=article_step(compute_efficiency),
        drafter=ParallelDrafter(ModelShare(weight=0.04, compute=0.04, kv=1.0)) if drafter is None else drafter,
    )


def best_gammas(cost: SpeculationCost, curve: AcceptanceCurve = DECAYING, largest: int = 8) -> list[int]:
    gammas = np.arange(1, largest + 1)
    speedup: FloatArray = cost.speedup(BATCHES[:, None], gammas, CONTEXT, curve)
    return [int(gammas[i]) for i in np.argmax(speedup, axis=1)]


def first_batch_below_one(
    cost: SpeculationCost, gamma: int, curve: AcceptanceCurve = DECAYING, up_to: int = 20_000
) -> int | None:
    below = np.flatnonzero(cost.speedup(np.arange(1, up_to + 1), gamma, CONTEXT, curve) < 1.0)
    return int(below[0]) + 1 if below.size else None
