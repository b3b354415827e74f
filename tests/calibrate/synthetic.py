"""Observations of a server whose numbers are known."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from adaptive_gamma.roofline import AcceptanceCurve, SpeculationCost
from adaptive_gamma.roofline.calibrate import Observation

LOADS = (1, 2, 4, 8, 16, 32, 64, 128)


def observed(
    cost: SpeculationCost,
    curve: AcceptanceCurve,
    *,
    loads: Iterable[int] = LOADS,
    gammas: Iterable[int | None] = (None, 1, 3, 5),
    contexts: Iterable[float] = (500.0, 4000.0),
    runs: int = 1,
    noise: float = 0.0,
    yields_known: bool = True,
    prefill: float = 0.0,
    seed: int = 0,
) -> list[Observation]:
    """What a sweep would show; gamma None is a plain server, gamma 0 one with an idle drafter."""
    generator = np.random.default_rng(seed)
    found = []
    for run in range(runs):
        for load in loads:
            for gamma in gammas:
                for context in contexts:
                    speculative = gamma is not None
                    drafted = gamma or 0
                    seconds = (
                        cost.speculative_seconds(load, drafted, context, prefill)
                        if speculative
                        else cost.plain_seconds(load, context, prefill)
                    )
                    tokens = curve.expected_tokens(drafted)
                    found.append(
                        Observation(
                            batch=load,
                            gamma=drafted,
                            speculative=speculative,
                            context_tokens=context,
                            prefill_tokens=prefill,
                            seconds_per_token=float(seconds / tokens * np.exp(generator.normal(0.0, noise))),
                            tokens_per_step=tokens if yields_known else None,
                            run=str(run),
                            label=f"load {load} gamma {gamma} context {context:g} run {run}",
                        )
                    )
    return found
