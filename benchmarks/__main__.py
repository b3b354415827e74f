"""``make bench``: print every figure with its goal and its ratio to the yardstick."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from .brain import brain_figures
from .measure import Figure, yardstick
from .replay import replay_figures
from .streams import memory_figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=["brain", "replay", "memory"], help="one group only")
    chosen = parser.parse_args().only
    measure = yardstick()
    figures = [
        Figure(
            "yardstick: json.loads of a 4 kB chat request",
            measure.median_us,
            "us",
            ratio=1.0,
            least=measure.least_us,
        )
    ]
    if chosen in (None, "brain"):
        figures += brain_figures(measure)
    if chosen in (None, "memory"):
        figures += memory_figures()
    if chosen in (None, "replay"):
        figures += replay_figures()

    table = Table(title="CPU time is the median of nine repeats; ratio is to the yardstick of this run")
    for column in ("figure", "value", "least", "goal", "ratio", "note"):
        table.add_column(column, justify="left" if column in ("figure", "note") else "right")
    for f in figures:
        goal = "" if f.goal is None else f"< {f.goal:g} {f.unit}"
        ratio = "" if f.ratio is None else f"{f.ratio:.2f}"
        least = "" if f.least is None else f"{f.least:.3g} {f.unit}"
        table.add_row(f.name, f"{f.value:.3g} {f.unit}", least, goal, ratio, f.note)
    Console(width=130).print(table)


main()
