"""EAGLE on Llama-3.1-8B, batch 1, gamma 2 to 7."""

from __future__ import annotations

import numpy as np

from adaptive_gamma.policy.library import hardware_named, model_named
from adaptive_gamma.roofline.calibrate import Calibration, Machine, ModelNumbers, Observation, calibrate

from .report import Goal, Study, Table, errors_row, parameters_table, percent
from .sources import read_measured

__all__ = ["gamma_sweep_study"]


def gamma_sweep_study() -> Study:
    """A fit for each of the two drafters, and each gamma predicted from the others."""
    source, rows = read_measured("eagle_llama_3_1_8b_h100.csv")
    found = {drafter: _fitted(drafter, rows) for drafter in ("eagle1", "eagle3")}
    fits = {name: [r.relative_error for r in c.residuals] for name, c in found.items()}
    together = [error for errors in fits.values() for error in errors]
    gammas = sorted({int(row["gamma"]) for row in rows if row["drafter"] != "none"})
    return Study(
        title="EAGLE-1 and EAGLE-3, Llama-3.1-8B on H100 at batch 1",
        question="Do the shipped H100 and Llama-3.1-8B with an autoregressive drafter (a fixed part and a pass per "
        "draft token) follow the time per token over gamma? Tokens per step are as measured.",
        source=source,
        goals=(
            Goal("gamma sweep, mean error", float(np.abs(together).mean()), 0.03),
            Goal("gamma sweep, worst error", float(np.abs(together).max()), 0.03),
        ),
        words=(
            "At batch 1 a step waits for memory, so nothing tells what a token costs to compute: that efficiency is "
            "held at its default, and says so in the notes of the fit.",
        ),
        tables=(
            Table(
                "Fits",
                ("drafter", "points", "mean error", "worst error"),
                tuple(errors_row(name, errors) for name, errors in fits.items()),
            ),
            Table(
                "Each gamma predicted from the others (plain decoding from the speculative ones in the last column)",
                ("drafter", *(f"gamma {g}" for g in gammas), "plain"),
                tuple((name, *_left_out(c, gammas)) for name, c in found.items()),
            ),
            *(parameters_table(c) for c in found.values()),
        ),
    )


def _fitted(drafter: str, rows: list[dict[str, str]]) -> Calibration:
    hardware, shape = hardware_named("H100"), model_named("Llama-3.1-8B")
    if hardware is None or shape is None:
        raise LookupError("the library lacks H100 or Llama-3.1-8B")
    seen = [
        Observation(
            batch=1.0,
            gamma=int(row["gamma"]),
            speculative=row["drafter"] != "none",
            context_tokens=0.0,
            prefill_tokens=0.0,
            seconds_per_token=float(row["seconds_per_token"]),
            tokens_per_step=float(row["tokens_per_step"]),
            load=int(row["gamma"]) + 1,
        )
        for row in rows
        if row["drafter"] in ("none", drafter)
    ]
    return calibrate(
        seen,
        model="roofline",
        drafter="autoregressive",
        hardware=Machine.of(hardware, "bf16"),
        numbers=ModelNumbers.of(shape, 2.0),
    )


def _left_out(found: Calibration, gammas: list[int]) -> tuple[str, ...]:
    if found.left_out is None:
        return tuple("-" for _ in (*gammas, 0))
    errors = dict(found.left_out.by_load)
    return tuple(percent(errors[gamma + 1.0]) for gamma in (*gammas, 0))
