"""What a sweep showed: medians and spread of each cell, speed-ups from paired runs, and what they do not support. Pure.

Within a repeat the arms follow one another, so a speed-up is the ratio of two runs of the same repeat; what is told is
the median of these ratios with an interval that holds the true median at 95 % or more, whatever their distribution (by
the ranks of the sorted ratios). A claim is made only when the interval leaves 1 out and nothing speaks against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from statistics import median
from typing import Any

from adaptive_gamma._version import __version__
from adaptive_gamma.bench.row import SweepRow
from adaptive_gamma.bench.sweep.journal import Cell, run_cell
from adaptive_gamma.bench.sweep.measured import quantile
from adaptive_gamma.bench.sweep.settings import CLAIM_REPEATS

__all__ = ["SUMMARY_SCHEMA", "median_interval", "summarize"]

SUMMARY_SCHEMA = "adaptive-gamma/sweep/v1"
_MOST_FAILED = 0.01
_LENGTHS_AGREE = 0.02
_FIGURES = ("output_tokens_per_s", "tpot_p50_s", "tpot_p99_s", "ttft_p50_s", "concurrency", "output_tokens",
            "input_tokens", "duration_s")  # fmt: skip
_DETAIL_FIGURES = ("itl_p50_s", "itl_p99_s", "ttft_p99_s", "tokens_per_arrival", "engine_step_mean_s", "draft_length")


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The narrowest interval between two of the sorted values, equally far from both ends, that holds the median of
    their distribution with a probability of at least 95 %; None for fewer than 6 values, which allow none."""
    count = len(values)
    ordered = sorted(values)
    best, outside = None, 0.0
    for low in range(count // 2):
        outside += comb(count, low) / 2.0**count
        if 2.0 * outside > 0.05:
            break
        best = (ordered[low], ordered[count - 1 - low])
    return best


def summarize(
    plan: Mapping[str, Any],
    rows: Sequence[SweepRow],
    details: Mapping[Cell, Mapping[str, Any]],
    *,
    planned_runs: int,
    finished_runs: int,
) -> dict[str, Any]:
    """The whole as a JSON document."""
    arms = [dict(arm) for arm in plan["arms"]]
    names = [arm["name"] for arm in arms]
    baseline = _baseline(arms)
    by_cell: dict[tuple[str, int, str], list[SweepRow]] = {}
    for row in rows:
        by_cell.setdefault((row.request_class or "", row.concurrency_asked or 0, row.arm or ""), []).append(row)
    cells, speedups = [], []
    for request_class, load in sorted({key[:2] for key in by_cell}):
        base = by_cell.get((request_class, load, baseline), [])
        for name in names:
            group = by_cell.get((request_class, load, name), [])
            if not group:
                continue
            cells.append(_cell(group, [details.get(run_cell(row), {}) for row in group]))
            if name != baseline:
                speedups.append(_speedup(base, group, details))
    return {
        "schema": SUMMARY_SCHEMA,
        "version": __version__,
        "plan": {key: plan[key] for key in ("id", "made_at", "identity")},
        "arms": arms,
        "baseline": baseline,
        "runs": {"planned": planned_runs, "finished": finished_runs},
        "repeats_for_a_claim": CLAIM_REPEATS,
        "cells": cells,
        "speedups": speedups,
    }


def _baseline(arms: Sequence[Mapping[str, Any]]) -> str:
    """The first plain arm, else the first of all."""
    plain = [arm["name"] for arm in arms if arm["reported"]["speculative"] is False]
    name: str = (plain or [arms[0]["name"]])[0]
    return name


def _spread(values: Sequence[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, high = quantile(known, 0.25), quantile(known, 0.75)
    assert low is not None
    assert high is not None
    return {"median": median(known), "p25": low, "p75": high, "least": min(known), "most": max(known)}


def _cell(rows: Sequence[SweepRow], details: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = rows[0]
    failures: dict[str, int] = {}
    for detail in details:
        for reason, count in detail.get("failures", {}).items():
            failures[reason] = failures.get(reason, 0) + count
    seen = [row.acceptance for row in rows if row.acceptance is not None]
    positions = [item.per_position for item in seen if item.per_position]
    return {
        "class": first.request_class,
        "concurrency": first.concurrency_asked,
        "arm": first.arm,
        "gamma": first.gamma,
        "runs": len(rows),
        "completed": sum(row.completed for row in rows),
        "failed": sum(row.failed for row in rows),
        "timeouts": sum(detail.get("timeouts", 0) for detail in details),
        "failures": failures,
        "disturbed_runs": sum(bool(detail.get("disturbed")) for detail in details),
        "measured": {name: _spread([getattr(row, name) for row in rows]) for name in _FIGURES}
        | {name: _spread([detail.get(name) for detail in details]) for name in _DETAIL_FIGURES},
        "acceptance": None
        if not seen
        else {
            "mean_length": _spread([item.mean_length for item in seen]),
            "per_position_unconditional": [median(column) for column in zip(*positions, strict=False)] or None,
            "draft_length_varies": any(detail.get("draft_length_varies") for detail in details),
            "drafts": sum(item.drafts or 0 for item in seen),
        },
    }


def _speedup(
    base: Sequence[SweepRow], rows: Sequence[SweepRow], details: Mapping[Cell, Mapping[str, Any]]
) -> dict[str, Any]:
    first = rows[0]
    by_run = {row.run: row for row in base}
    pairs = [(by_run[row.run], row) for row in rows if row.run in by_run]
    throughput = [
        row.output_tokens_per_s / plain.output_tokens_per_s
        for plain, row in pairs
        if row.output_tokens_per_s and plain.output_tokens_per_s
    ]
    latency = [plain.tpot_p50_s / row.tpot_p50_s for plain, row in pairs if row.tpot_p50_s and plain.tpot_p50_s]
    against = _against(pairs, len(throughput), details)
    interval = median_interval(throughput)
    verdict = "no claim"
    if not against and interval is not None:
        verdict = "faster" if interval[0] > 1.0 else "slower" if interval[1] < 1.0 else "no difference shown"
    return {
        "class": first.request_class,
        "concurrency": first.concurrency_asked,
        "arm": first.arm,
        "gamma": first.gamma,
        "pairs": len(throughput),
        "throughput": _ratio(throughput),
        "tpot": _ratio(latency),
        "verdict": verdict,
        "against_a_claim": against,
    }


def _ratio(values: Sequence[float]) -> dict[str, Any] | None:
    spread = _spread(values)
    if spread is None:
        return None
    interval = median_interval(values)
    return {**spread, "interval_95": None if interval is None else list(interval)}


def _against(
    pairs: Sequence[tuple[SweepRow, SweepRow]], usable: int, details: Mapping[Cell, Mapping[str, Any]]
) -> list[str]:
    """What speaks against a claim."""
    reasons = []
    if usable < CLAIM_REPEATS:
        reasons.append(f"{usable} paired repeats, and a claim needs {CLAIM_REPEATS}")
    sides = [[pair[0] for pair in pairs], [pair[1] for pair in pairs]]
    for side in sides:
        failed, total = sum(row.failed for row in side), sum(row.failed + row.completed for row in side)
        if total and failed > _MOST_FAILED * total:
            reasons.append(f"{failed} of {total} requests to {side[0].arm} failed")
        disturbed = sum(bool(details.get(run_cell(row), {}).get("disturbed")) for row in side)
        if disturbed:
            reasons.append(f"other traffic reached {side[0].arm} in {disturbed} of {len(side)} runs")
    lengths = [[row.output_tokens for row in side if row.output_tokens] for side in sides]
    if all(lengths):
        plain, other = median(lengths[0]), median(lengths[1])
        if abs(other - plain) > _LENGTHS_AGREE * plain:
            reasons.append(f"answers of different lengths: {plain:.0f} and {other:.0f} tokens")
    return reasons
