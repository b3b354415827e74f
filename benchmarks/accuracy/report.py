"""What an accuracy study found: goals, tables and words, and how they look on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from adaptive_gamma.roofline.calibrate import Calibration, RankedModel

__all__ = [
    "Goal",
    "Study",
    "Table",
    "errors_row",
    "notes_of",
    "page",
    "parameters_table",
    "percent",
    "ranking_table",
]

Errors: TypeAlias = Sequence[float]


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that was promised."""

    what: str
    value: float
    """A share: 0.03 is 3 %."""
    limit: float

    @property
    def met(self) -> bool:
        return self.value <= self.limit

    def __str__(self) -> str:
        return f"{self.what}: {percent(self.value)} (goal {percent(self.limit)}), {'met' if self.met else 'MISSED'}"


@dataclass(frozen=True, slots=True)
class Table:
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Study:
    """One section of the page."""

    title: str
    question: str
    source: str
    goals: tuple[Goal, ...]
    words: tuple[str, ...] = ()
    tables: tuple[Table, ...] = field(default=())


def percent(share: float) -> str:
    """0.0123 as ``1.23 %``."""
    return f"{100 * share:.2f} %"


def errors_row(name: str, errors: Errors) -> tuple[str, str, str, str]:
    """Name, count, mean and worst absolute error."""
    sizes = np.abs(np.asarray(errors))
    return name, str(sizes.size), percent(float(sizes.mean())), percent(float(sizes.max()))


def ranking_table(caption: str, ranked: Sequence[RankedModel]) -> Table:
    """Models by their error on loads that were left out."""
    rows = []
    for model in ranked:
        left = model.left_out
        rows.append(
            (
                model.family.name,
                model.drafter or "none",
                "-" if left is None else percent(left.mean),
                "-" if left is None else percent(left.worst),
                "-" if model.calibration is None else percent(model.calibration.mean_error),
                (model.refusal or "").split(":")[0],
            )
        )
    header = ("step time", "drafter", "left-out mean", "left-out worst", "fit mean", "not judged because")
    return Table(caption, header, tuple(rows))


def parameters_table(found: Calibration) -> Table:
    """Fitted numbers with their intervals."""
    rows = tuple(
        (
            p.name,
            f"{p.value:.4g}",
            "held" if p.held else "-" if p.low is None or p.high is None else f"{p.low:.3g} to {p.high:.3g}",
            p.unit,
        )
        for p in found.parameters
    )
    over = {"runs": "repeats", "observations": "observations", None: "nothing"}[found.intervals_over]
    return Table(
        f"{found.family}: numbers found, 95 % intervals over {over}", ("number", "value", "interval", "unit"), rows
    )


def notes_of(found: Calibration) -> str:
    """What a fit says of itself."""
    return f"Notes of the fit: {'; '.join(found.notes)}." if found.notes else "The fit has no notes."


_HEAD = """# Accuracy

How well the step-time models predict measurements that others published. Nothing here was measured by this project.
Written by `make accuracy`; the data is in `benchmarks/accuracy/measured`, each file with its source in the first line.

Every model is fitted by `adaptive_gamma.roofline.calibrate`; what a study tells it beforehand (a model's experts, a
kind of drafter, sizes of a table to try) is said there. Where several models could serve, the one with the least
leave-one-load-out error *on the fitted part* is taken: what is held out takes no part in the choice. The rules of the
fit itself (when a number is held, which families are tried) were settled with these data sets at hand, so for the rules
they are no blind test. Errors are of the time per output token (of the step time for the cost curve), relative to what
was measured.
"""


def page(studies: Sequence[Study]) -> str:
    """All studies as Markdown."""
    goals = Table(
        "",
        ("study", "figure", "value", "goal", ""),
        tuple(
            (s.title, g.what, percent(g.value), percent(g.limit), "met" if g.met else "**missed**")
            for s in studies
            for g in s.goals
        ),
    )
    parts = [_HEAD, _markdown(goals)]
    for study in studies:
        parts.append(f"## {study.title}\n\n{study.question}\n\nSource: {study.source}\n")
        parts += [f"{text}\n" for text in study.words]
        parts += [_markdown(table) for table in study.tables]
    return "\n".join(parts)


def _markdown(table: Table) -> str:
    lines = [f"{table.caption}:\n"] if table.caption else []
    lines.append("| " + " | ".join(table.header) + " |")
    lines.append("|" + "---|" * len(table.header))
    lines += ["| " + " | ".join(row) + " |" for row in table.rows]
    return "\n".join(lines) + "\n"
