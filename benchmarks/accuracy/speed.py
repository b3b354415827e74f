"""How long a calibration takes. It goes to the terminal only: a page that is written anew should not change with it."""

from __future__ import annotations

import time

import numpy as np

from adaptive_gamma.roofline import (
    AcceptanceCurve,
    AutoregressiveDrafter,
    LinearStep,
    PassFraction,
    SpeculationCost,
)
from adaptive_gamma.roofline.calibrate import Observation, calibrate, compare_models

__all__ = ["speed_lines"]

_POINTS = 200


def speed_lines() -> list[str]:
    """CPU seconds of a calibration with 200 bootstrap draws, and of a comparison of all models."""
    seen = _observations()
    began = time.process_time()
    calibrate(seen, model="linear", drafter="autoregressive")
    fitted = time.process_time()
    calibrate(seen, model="moe", drafter="autoregressive")
    mixed = time.process_time()
    compare_models(seen)
    compared = time.process_time()
    return [
        f"{_POINTS} points, linear, 200 draws and leave-one-load-out: {fitted - began:.1f} s of CPU (goal 5 s)",
        f"the same, mixture of experts with an unknown share of active experts: {mixed - fitted:.1f} s (goal 5 s)",
        f"comparison of every model with every drafter: {compared - mixed:.1f} s",
    ]


def _observations() -> list[Observation]:
    generator = np.random.default_rng(1)
    cost = SpeculationCost(LinearStep(0.02, 1e-4, 5e-8), AutoregressiveDrafter(PassFraction(0.1), fixed_fraction=0.05))
    curve = AcceptanceCurve.two_parameter(0.8, 0.7)
    found = []
    for index in range(_POINTS):
        batch, gamma = float(generator.choice([1, 2, 4, 8, 16, 32, 64, 128])), int(generator.integers(0, 8))
        context = float(generator.choice([500, 2000, 8000]))
        step = cost.speculative_seconds(batch, gamma, context) if gamma else cost.plain_seconds(batch, context)
        tokens = curve.expected_tokens(gamma)
        noise = float(np.exp(generator.normal(0.0, 0.03)))
        found.append(
            Observation(
                batch, gamma, gamma > 0, context, 0.0, float(step) / tokens * noise, tokens, run=str(index % 10)
            )
        )
    return found
