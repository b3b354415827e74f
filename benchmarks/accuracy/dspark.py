"""DSpark on B300: the plain pool's curve and low loads of the speculative one predict its high loads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adaptive_gamma.roofline.calibrate import Calibration, Observation, RankedModel, calibrate, compare_models

from .report import Goal, Study, Table, errors_row, notes_of, parameters_table, percent, ranking_table
from .sources import read_measured

__all__ = ["dspark_study"]

_FITTED_UP_TO = 16
_MODELS = ("plain_pool/log", "plain_pool/linear")


def dspark_study() -> Study:
    """Fitted on concurrency up to 16 (and the plain curve), judged on 32 to 256."""
    source, rows = read_measured("dspark_deepseek_v4_pro_b300.csv")
    seen = [
        Observation(
            batch=float(row["concurrency"]),
            gamma=int(row["gamma"]),
            speculative=int(row["gamma"]) > 0,
            context_tokens=0.0,
            prefill_tokens=0.0,
            seconds_per_token=1.0 / float(row["tokens_per_s_of_one_user"]),
            label=f"gamma {row['gamma']} at {row['concurrency']}",
        )
        for row in rows
    ]
    plain = [o for o in seen if not o.speculative]
    fitted = plain + [o for o in seen if o.speculative and o.batch <= _FITTED_UP_TO]
    held_out = [o for o in seen if o.speculative and o.batch > _FITTED_UP_TO]
    reach = max(o.batch for o in plain)
    ranked = compare_models(fitted, models=_MODELS)
    best = ranked[0]
    found = calibrate(fitted, model=best.family, drafter=best.drafter)
    errors = {o.label: predicted(found, o) / o.seconds_per_token - 1.0 for o in held_out}
    inside = [errors[o.label] for o in held_out if o.decode_tokens <= reach]
    beyond = [errors[o.label] for o in held_out if o.decode_tokens > reach]
    return Study(
        title="DSpark, DeepSeek-V4-Pro on 8 x B300",
        question="A plain replica was measured at six loads, a speculative one at concurrency 1 and 16 with gamma 1, "
        "3, 5, 6 and 7. What will the speculative one do at 32, 64, 128 and 256? Its acceptance is not given; it is "
        "fitted too (two numbers).",
        source=source,
        goals=(
            Goal("held-out loads within the plain curve, mean error", float(np.abs(inside).mean()), 0.05),
            Goal("held-out loads within the plain curve, worst error", float(np.abs(inside).max()), 0.10),
        ),
        words=(
            f"The plain curve ends at {reach:g} tokens in a step, so that only {len(inside)} of the {len(held_out)} "
            f"held-out points (batch x (gamma + 1) <= {reach:g}) are priced by something measured. The other "
            f"{len(beyond)} are extrapolated from the curve's last piece and up to "
            f"{percent(float(np.abs(beyond).max()))} off: a plain pool must be measured up to B (gamma + 1) for the "
            "gammas it is to price. The goal is claimed for the first kind only.",
            "With two fitted loads the choice rests on little (each is predicted from the other alone). So the "
            "held-out errors of every candidate are listed too, though they took no part in the choice.",
            notes_of(found),
        ),
        tables=(
            ranking_table("Choice on the fitted part", ranked),
            _candidates(ranked, [o for o in held_out if o.decode_tokens <= reach]),
            parameters_table(found),
            Table(
                "Held-out points",
                ("", "points", "mean error", "worst error"),
                (
                    errors_row("within the plain curve", inside),
                    errors_row("beyond it (extrapolated)", beyond),
                    errors_row("all", [*inside, *beyond]),
                ),
            ),
            _by_point(seen, errors, reach),
            _choice(found, held_out),
        ),
    )


def predicted(found: Calibration, seen: Observation) -> float:
    """Time per output token."""
    (curve,) = found.curves.values()
    step = found.cost().speculative_seconds(seen.batch, seen.gamma, seen.context_tokens, seen.prefill_tokens)
    return float(step / curve.expected_tokens(seen.gamma))


def _candidates(ranked: Sequence[RankedModel], judged: list[Observation]) -> Table:
    rows = []
    for model in ranked:
        found = model.calibration
        if found is not None:
            errors = [predicted(found, o) / o.seconds_per_token - 1.0 for o in judged]
            name = f"{model.family.name}, {model.drafter} drafter"
            rows.append(errors_row(name, errors))
    return Table(
        "Every candidate on the held-out loads within the plain curve",
        ("candidate", "points", "mean error", "worst error"),
        tuple(rows),
    )


def _by_point(seen: list[Observation], errors: dict[str, float], reach: float) -> Table:
    loads = sorted({o.batch for o in seen if o.label in errors})
    rows = []
    for gamma in sorted({o.gamma for o in seen if o.label in errors}):
        cells = []
        for load in loads:
            value = f"{100 * errors[f'gamma {gamma} at {load:g}']:+.1f} %"
            cells.append(value if load * (gamma + 1) <= reach else f"({value})")
        rows.append((str(gamma), *cells))
    return Table(
        "Error of each held-out point, in brackets where extrapolated",
        ("gamma", *(f"concurrency {load:g}" for load in loads)),
        tuple(rows),
    )


def _choice(found: Calibration, held_out: list[Observation]) -> Table:
    rows = []
    for load in sorted({o.batch for o in held_out}):
        arms = [o for o in held_out if o.batch == load]
        chosen = min(arms, key=lambda o: predicted(found, o))
        best = min(arms, key=lambda o: o.seconds_per_token)
        loss = 1.0 - best.seconds_per_token / chosen.seconds_per_token
        rows.append((f"{load:g}", str(chosen.gamma), str(best.gamma), percent(loss)))
    return Table("What the choice of gamma costs", ("concurrency", "chosen", "best", "tokens/s lost"), tuple(rows))
