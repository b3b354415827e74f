"""The table of the data path: contestants side by side, medians of the repetitions, ratios to nginx, goals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from .contestants import DIRECT, NGINX, Contestant
from .data_path import ADDED, GROUPS, FigureKind, Sample

__all__ = ["Samples", "data_path_table"]

Samples = Mapping[tuple[str, str], Sequence[Sequence[Sample]]]
"""By group and contestant: of each repetition the samples, in the order of the group's kinds."""


def _number(value: float) -> str:
    if math.isinf(value):
        return "never"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def data_path_table(samples: Samples, entrants: Sequence[Contestant], title: str) -> Table:
    """All groups that were measured.

    Ratios are taken within each repetition, and their median is shown. A missed goal is marked with ``MISSED``, one
    that the machine was too busy to judge with ``UNDECIDED``.
    """
    table = Table(title=title, caption="median (least-most) x ratio to nginx of the same run")
    table.add_column("figure")
    for entrant in entrants:
        table.add_column(entrant.label, justify="right")
    table.add_column("goal", justify="right")
    with_nginx = any(entrant.label == NGINX for entrant in entrants)
    for name, group in GROUPS.items():
        if not any(key[0] == name for key in samples):
            continue
        for index, kind in enumerate(group.kinds):
            cells = [_cell(samples, name, index, kind, entrant) for entrant in entrants]
            table.add_row(kind.name, *cells, _goal(kind, with_nginx))
        table.add_section()
    return table


def _goal(kind: FigureKind, with_nginx: bool) -> str:
    if kind.goal_ratio is not None and with_nginx:
        return f"<= x{kind.goal_ratio:g} (about {kind.goal:g})"
    return "" if kind.goal is None else f"<= {kind.goal:g}"


def _column(samples: Samples, group: str, index: int, label: str) -> list[Sample]:
    return [repetition[index] for repetition in samples.get((group, label), ())]


def _cell(samples: Samples, group: str, index: int, kind: FigureKind, entrant: Contestant) -> str:
    own = _column(samples, group, index, entrant.label)
    if not own:
        return "-"
    values = [sample.value for sample in own]
    if group == ADDED and entrant.label != DIRECT:
        alone = _column(samples, group, index, DIRECT)
        values = [value - base.value for value, base in zip(values, alone, strict=True)]
    there = [value for value in values if not math.isnan(value)]
    text = "-" if not there else _number(_median(there))
    if len(there) > 1:
        text += f" ({_number(min(there))}-{_number(max(there))})"
    if group == ADDED and entrant.label == DIRECT:
        text = f"itself {text}"
    ratio = math.nan
    if kind.relative:
        pairs = zip(values, _column(samples, group, index, NGINX), strict=False)
        ratio = _median([value / base.value for value, base in pairs if value == value and base.value > 0])
        if not math.isnan(ratio):
            text += f" x{ratio:.2f}"
    flaws = sorted({sample.flaw for sample in own if sample.flaw})
    if flaws:
        text += f" [{'; '.join(flaws)}]"
    if group == ADDED and entrant.judged and kind.goal is not None and _alone(samples, index) > kind.goal:
        return escape(text) + " UNDECIDED"
    missed = entrant.judged and kind.goal is not None and (bool(flaws) or _misses(kind, _median(there), ratio))
    if missed and len(there) < 2:
        return escape(text) + " over the goal, but one repetition decides nothing"
    return escape(text) + (" [bold red]MISSED[/bold red]" if missed else "")


def _alone(samples: Samples, index: int) -> float:
    """The engine's own latency: where it alone is above a goal for what is added, the machine is too busy to tell."""
    return _median([sample.value for sample in _column(samples, ADDED, index, DIRECT)])


def _misses(kind: FigureKind, value: float, ratio: float) -> bool:
    if kind.goal_ratio is not None and not math.isnan(ratio):
        return ratio > kind.goal_ratio
    return kind.goal is not None and value > kind.goal
