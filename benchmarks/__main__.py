"""``make bench``: print every figure with its goal and its ratio to the yardstick of the same run."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .brain import brain_figures
from .contestants import RESERVED_LABELS, contestants, find_nginx
from .data_path import FILES_NEEDED, GROUPS, Windows
from .load_tools import build_load_tools
from .measure import Figure, yardstick
from .processes import BenchmarkError, end_on_sigterm, raise_file_limit
from .replay import replay_figures
from .run import run_groups
from .start_up import start_figures
from .table import data_path_table

_IN_PROCESS = ("brain", "replay", "start")
_WIDTH = 190


def _checkout(text: str) -> tuple[str, Path]:
    label, _, folder = text.partition("=")
    path = Path(folder).resolve()
    if not label or not (path / "adaptive_gamma").is_dir():
        raise argparse.ArgumentTypeError(f"{text!r}: expected LABEL=FOLDER with a checkout of adaptive-gamma in FOLDER")
    return label, path


def _configuration(text: str) -> tuple[str, str]:
    label, _, lines = text.partition("=")
    if not label or ":" not in lines:
        raise argparse.ArgumentTypeError(f"{text!r}: expected LABEL=YAML")
    return label, lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [*_IN_PROCESS, *GROUPS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="one of " + ", ".join(names))
    parser.add_argument("--quick", action="store_true", help="short windows and one repetition: a look, no measurement")
    parser.add_argument(
        "--also",
        action="append",
        type=_checkout,
        default=[],
        metavar="LABEL=FOLDER",
        help="measure the build in another checkout beside this one",
    )
    parser.add_argument(
        "--with",
        dest="more",
        action="append",
        type=_configuration,
        default=[],
        metavar="LABEL=YAML",
        help="measure this build once more with a line of configuration, such as access_log: {format: json, path: F}",
    )
    asked = parser.parse_args()
    also, more = dict(asked.also), dict(asked.more)
    labels = [label for label, _ in (*asked.also, *asked.more)]
    if len(set(labels)) < len(labels) or set(labels) & RESERVED_LABELS:
        parser.error("--also, --with: each label once, and none of " + ", ".join(sorted(RESERVED_LABELS)))
    chosen = asked.only or names
    console = Console(width=_WIDTH)
    end_on_sigterm()
    if any(name in chosen for name in _IN_PROCESS):
        console.print(_in_process_table(chosen))
    groups = [name for name in GROUPS if name in chosen]
    if not groups:
        return 0
    try:
        _data_path(console, groups, also, more, quick=asked.quick)
    except BenchmarkError as error:
        console.print(f"[red]data path not measured:[/red] {escape(str(error))}")
        return 1
    return 0


def _in_process_table(chosen: list[str]) -> Table:
    measure = yardstick()
    figures = [
        Figure(
            "yardstick: json.loads of a 4 kB chat request", measure.median_us, "us", ratio=1.0, least=measure.least_us
        )
    ]
    if "brain" in chosen:
        figures += brain_figures(measure)
    if "replay" in chosen:
        figures += replay_figures()
    if "start" in chosen:
        figures += start_figures()
    table = Table(title="CPU time is the median of nine repeats; ratio is to the yardstick of this run")
    for column in ("figure", "value", "least", "goal", "ratio", "note"):
        table.add_column(column, justify="left" if column in ("figure", "note") else "right")
    for f in figures:
        goal = "" if f.goal is None else f"< {f.goal:g} {f.unit}"
        ratio = "" if f.ratio is None else f"{f.ratio:.2f}"
        least = "" if f.least is None else f"{f.least:.3g} {f.unit}"
        missed = f.goal is not None and f.value > f.goal
        table.add_row(f.name, f"{f.value:.3g} {f.unit}{' MISSED' if missed else ''}", least, goal, ratio, f.note)
    return table


def _data_path(
    console: Console, groups: list[str], also: dict[str, Path], more: dict[str, str], *, quick: bool
) -> None:
    files = raise_file_limit()
    if files < FILES_NEEDED:
        raise BenchmarkError(f"{FILES_NEEDED} open files are needed and {files} allowed: raise the limit (ulimit -n)")
    if find_nginx() is None:
        console.print("nginx is not installed: no ratios to it, plain goals instead (on Debian: apt-get install nginx)")
    entrants = contestants(also, more)
    windows, repetitions = (Windows.quick(), 1) if quick else (Windows(), 3)
    began, load_before = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="adaptive-gamma-bench-") as folder:
        tools = build_load_tools(Path(folder))
        samples = run_groups(tools, entrants, groups, windows, repetitions, lambda text: print(text, file=sys.stderr))
    title = (
        f"data path, repetitions in turns: {repetitions}; {time.monotonic() - began:.0f} s; "
        f"{os.cpu_count()} cores, load average {load_before:.1f} before and {os.getloadavg()[0]:.1f} after"
    )
    console.print(data_path_table(samples, entrants, title))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
