"""What a sweep measured, as a policy file keeps it: the points that its table rests on."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from adaptive_gamma.bench.cells import Cell, Cells
from adaptive_gamma.bench.curves import CURVE_CLASS, ClassCurve
from adaptive_gamma.bench.observations import SweepObservations, decoding_batch
from adaptive_gamma.bench.row import SweepRow
from adaptive_gamma.policy import CLASS_ALIASES

__all__ = ["MIXED_CLASS", "evidence_of", "policy_class"]

MIXED_CLASS = "unsure"
"""The class of requests of which nothing is known: all that was measured, mixed."""
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
MOST_FILES = 40


def policy_class(name: str | None) -> str:
    """A policy's class for a class as rows name it: ``code`` and ``math`` are structured, ``prose`` is chat."""
    if name is None:
        return CURVE_CLASS
    cleaned = _NO_NAME.sub("-", name).strip("-._")[:63] or CURVE_CLASS
    return CLASS_ALIASES.get(cleaned, cleaned)


def evidence_of(
    cells: Cells, seen: SweepObservations, curves: Mapping[str, ClassCurve], fitted_tokens: float
) -> dict[str, Any]:
    """The ``evidence`` of a policy, without its cells, which follow from it.

    Only cells with a run that the calibration took are points: what was refused must not count as measured.
    """
    telling = {row.source for row in seen.rows}
    points: dict[str, dict[str | int, list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells.cells:
        rows = [row for row in cell.rows if row.source in telling]
        if rows:
            points[policy_class(cell.key.request_class)][_arm(cell.key.speculative, cell.key.gamma)].append(
                _point(cell, rows)
            )
    steps: dict[str | int, list[list[float]]] = defaultdict(list)
    for row in cells.steps:
        if row.source in telling and row.step is not None:
            step = row.step
            steps[_arm(bool(row.speculative), row.gamma or 0)].append(
                [float(step.sequences), _short(step.context_tokens or 0.0), _short(step.seconds), float(row.completed)]
            )
    files = list(dict.fromkeys(row.source.file for row in seen.rows))
    shown = files if len(files) <= MOST_FILES else [*files[:MOST_FILES], f"and {len(files) - MOST_FILES} more"]
    return {
        "files": shown,
        "points": {
            name: {arm: sorted(arms[arm]) for arm in sorted(arms, key=str)} for name, arms in sorted(points.items())
        },
        "steps": dict(steps),
        "counted_positions": {name: curve.positions for name, curve in curves.items()},
        "fitted_tokens": _short(fitted_tokens),
    }


def _arm(speculative: bool, gamma: int) -> str | int:
    return gamma if speculative else "plain"


def _point(cell: Cell, rows: Sequence[SweepRow]) -> list[float]:
    batches = [batch for row in rows if (batch := decoding_batch(row)) is not None]
    contexts = [(row.input_tokens or 0.0) + 0.5 * (row.output_tokens or 0.0) for row in rows]
    times = [time for row in rows if (time := row.tpot_p50_s or row.tpot_mean_s)]
    low, middle, high = (_short(value) for value in (min(times), median(times), max(times)))
    return [
        float(cell.key.concurrency),
        _short(median(batches)),
        _short(median(contexts)),
        middle,
        low,
        high,
        len(rows),
    ]


def _short(value: float) -> float:
    """Six digits: more than any benchmark has."""
    return float(f"{value:.6g}")
