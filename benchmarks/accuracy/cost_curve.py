"""The start-up profile of DeepSeek-V4-Flash on B300: step time by tokens, up to the capture limit and beyond."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from adaptive_gamma.roofline.calibrate import Observation, Residual, TableFamily, calibrate, compare_models

from .report import Goal, Study, Table, errors_row, parameters_table, percent, ranking_table
from .sources import read_measured

__all__ = ["cost_curve_study"]

_LIMIT = 1025
"""1024 as the vector figure gives it."""
_TABLE_POINTS = (8, 16, 32, 48)


def cost_curve_study() -> Study:
    """Fitted to the verify times; draft times stand beside them."""
    source, rows = read_measured("cost_curve_deepseek_v4_flash_b300.csv")
    seen = [
        Observation(float(row["tokens_or_requests"]), 0, False, 0.0, 0.0, float(row["seconds"]), label=row["what"])
        for row in rows
    ]
    verify = [o for o in seen if o.label == "verify"]
    draft = [o for o in seen if o.label == "draft"]
    ranked = compare_models(
        verify,
        models=["linear", "moe", *(TableFamily(points) for points in _TABLE_POINTS)],
        capture_limit_tokens=_LIMIT,
    )
    best = ranked[0]
    found = calibrate(verify, model=best.family, capture_limit_tokens=_LIMIT, bootstrap=0)
    mixture = calibrate(verify, model="moe", capture_limit_tokens=_LIMIT)
    inside = [r.relative_error for r in found.residuals if r.observation.decode_tokens <= _LIMIT]
    of_mixture = [r.relative_error for r in mixture.residuals if r.observation.decode_tokens <= _LIMIT]
    return Study(
        title="Cost curve, DeepSeek-V4-Flash on B300",
        question="Does a model follow the measured step time below the capture limit of 1024 tokens?",
        source=source,
        goals=(
            Goal("below the capture limit, mean error", float(np.abs(inside).mean()), 0.03),
            Goal("below the capture limit, worst error", float(np.abs(inside).max()), 0.03),
        ),
        words=(
            "The profile itself falls in places (17.758 ms at 672 tokens, 15.991 ms at 688). A step time that never "
            "falls as work grows, which every model here is, misses one of two such points by "
            f"{percent(_least_worst(verify))} at least, so no such model is within 3 % at every point; within 3 % it "
            "is in the mean. The left-out column is the error for token counts that took no part in the fit.",
            f"Beyond the limit a step takes {1e3 * (found.uncaptured_seconds or 0):.0f} ms more (the median of five "
            "points; how rough that is, the table of points beyond it shows).",
        ),
        tables=(
            ranking_table("Models by the error of token counts left out", ranked),
            Table(
                "Below the limit",
                ("", "points", "mean error", "worst error"),
                (errors_row(f"chosen: {found.family}", inside), errors_row("moe", of_mixture)),
            ),
            parameters_table(mixture),
            _beyond(found.residuals),
            _drafting(verify, draft),
        ),
    )


def _least_worst(verify: list[Observation]) -> float:
    """The least worst error that a curve which never falls can have: (a - b) / (a + b) for a before b, a > b."""
    inside = sorted((o.batch, o.seconds_per_token) for o in verify if o.batch <= _LIMIT)
    return max((a - b) / (a + b) for (_, a), (_, b) in combinations(inside, 2) if a > b)


def _beyond(residuals: Sequence[Residual]) -> Table:
    rows = []
    for residual in residuals:
        seen = residual.observation
        if seen.decode_tokens > _LIMIT:
            rows.append(
                (
                    f"{seen.batch:g}",
                    f"{1e3 * seen.seconds_per_token:.1f} ms",
                    f"{1e3 * residual.predicted_seconds:.1f} ms",
                    f"{100 * residual.relative_error:+.1f} %",
                )
            )
    return Table("Beyond the limit", ("tokens", "measured", "predicted", "error"), tuple(rows))


def _drafting(verify: list[Observation], draft: list[Observation]) -> Table:
    """The drafter's pass against the target's, by requests: what share of which pass it is."""
    tokens = np.asarray([o.batch for o in verify])
    seconds = np.asarray([o.seconds_per_token for o in verify])
    rows = []
    for load in (1, 16, 64, 128):
        drafting = next(o.seconds_per_token for o in draft if o.batch == load)
        plain, block = (float(np.interp(load * width, tokens, seconds)) for width in (1, 7))
        rows.append((str(load), f"{1e3 * drafting:.2f} ms", percent(drafting / plain), percent(drafting / block)))
    return Table(
        "The drafter's pass (7 tokens a sequence): a steady share of the target's pass over the drafted tokens, not "
        "over the sequences",
        ("requests", "draft", "of the target at as many tokens", "of the target at 7 x as many"),
        tuple(rows),
    )
