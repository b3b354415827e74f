"""Acceptance by class, from the counters of all rows that may tell it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.row import SpeculationSeen, SweepRow
from adaptive_gamma.roofline import AcceptanceCurve, draft_length_varies
from adaptive_gamma.roofline.calibrate.acceptance import curve_through

__all__ = ["CURVE_CLASS", "ClassCurve", "class_curves"]

CURVE_CLASS = "all"
"""Name of the class of rows that name none."""
LEAST_REACHED = 100
"""Drafts that reach a position, below which its own rate is noise and the plateau speaks for it."""


@dataclass(frozen=True, slots=True)
class ClassCurve:
    """Acceptance of one class as measured.

    positions: draft positions that were counted; drafts: steps counted; by_position: False where only mean lengths are
    known, so that two numbers were fitted to them.
    """

    curve: AcceptanceCurve
    positions: int
    drafts: int
    by_position: bool
    rows: tuple[SweepRow, ...]


def class_curves(rows: Iterable[SweepRow], findings: Findings) -> dict[str, ClassCurve]:
    """The curve of each class with anything to tell it.

    Rates by position are pooled as ratios of counts (accepted at i over accepted at i - 1), so that rows of different
    gamma add to each position they have. Rows measured on made-up prompts, and server totals that are not of one run,
    tell no curve; neither do rates by position of drafts that differed in length.
    """
    by_class: dict[str, list[SweepRow]] = defaultdict(list)
    for row in rows:
        seen = row.acceptance
        if seen is not None and row.gamma and not seen.made_up_prompts:
            by_class[row.request_class or CURVE_CLASS].append(row)
    found = {}
    for name, members in sorted(by_class.items()):
        curve = _pooled(members) or _through_lengths(members)
        if curve is not None:
            found[name] = curve
            if not curve.by_position:
                findings.note(
                    members[0].source,
                    f"no rates by position for class {name!r}: two numbers are fitted to mean lengths",
                    "acceptance",
                )
    return found


def _pooled(rows: Sequence[SweepRow]) -> ClassCurve | None:
    reached: dict[int, float] = defaultdict(float)
    accepted: dict[int, float] = defaultdict(float)
    used: list[SweepRow] = []
    drafts = 0.0
    for row in rows:
        counts = _accepted_counts(row.acceptance, row.gamma or 0)
        if counts is None:
            continue
        used.append(row)
        drafts += counts[0]
        for position, (before, at) in enumerate(pairwise(counts), 1):
            reached[position] += before
            accepted[position] += at
    if not used:
        return None
    positions = max(reached)
    rates = [accepted[i] / reached[i] for i in range(1, positions + 1) if reached[i] >= LEAST_REACHED or i == 1]
    later = sum(reached[i] for i in range(2, positions + 1))
    plateau = sum(accepted[i] for i in range(2, positions + 1)) / later if later else rates[0]
    rates = [min(rate, 1.0) for rate in rates]
    return ClassCurve(
        AcceptanceCurve.from_conditional(rates, min(plateau, 1.0)), positions, round(drafts), True, tuple(used)
    )


def _accepted_counts(seen: SpeculationSeen | None, gamma: int) -> list[float] | None:
    """[drafts, accepted to 1, accepted to 2, ...]; None where the row has none, or none that is unbiased."""
    if seen is None or not seen.drafts or seen.cumulative:
        return None
    if draft_length_varies(seen.drafts, seen.draft_tokens, gamma):
        return None
    if seen.histogram is not None:
        counts = np.cumsum(np.asarray(seen.histogram[::-1], dtype=np.float64))[::-1].tolist()
        return [*counts, *[0.0] * (gamma + 1 - len(counts))] if len(counts) <= gamma + 1 else None
    if seen.per_position is not None:
        return [float(seen.drafts), *(rate * seen.drafts for rate in seen.per_position)]
    return None


def _through_lengths(rows: Sequence[SweepRow]) -> ClassCurve | None:
    known = [
        (row, row.acceptance.mean_length)
        for row in rows
        if row.acceptance is not None and row.acceptance.mean_length is not None and row.gamma is not None
        if row.acceptance.mean_length <= row.gamma + 1
    ]
    if not known:
        return None
    gammas = np.asarray([float(row.gamma or 0) for row, _ in known])
    curve = curve_through(gammas, np.asarray([length for _, length in known]), np.ones(len(known)))
    drafts = sum(row.acceptance.drafts or 0 for row, _ in known if row.acceptance is not None)
    if curve is None:
        return None
    return ClassCurve(curve, int(gammas.max()), drafts, False, tuple(row for row, _ in known))
