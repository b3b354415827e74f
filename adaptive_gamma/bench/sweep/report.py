"""A sweep's summary as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

__all__ = ["summary_lines", "summary_tables"]

_UNKNOWN = "-"


def summary_tables(summary: Mapping[str, Any]) -> list[Table]:
    """The figures of each cell, and the speed-ups where there is more than one arm."""
    tables = [_cells(summary)]
    if summary["speedups"]:
        tables.append(_speedups(summary))
    return tables


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    """What the tables have no place for: what the engines reported, and what the figures do not support."""
    lines = []
    for arm in summary["arms"]:
        reported = arm["reported"]
        facts = [
            f"engine {reported['engine'] or 'unknown'} {reported['engine_version'] or ''}".strip(),
            f"model {reported['model']}",
            f"gamma {_UNKNOWN if reported['gamma'] is None else reported['gamma']}",
            f"drafter {reported['drafter'] or ('none' if reported['speculative'] is False else 'not told')}",
        ]
        if not arm["fixed_length"]:
            facts.append("answers end by themselves")
        lines.append(f"{arm['name']} at {arm['url']} reports: {', '.join(facts)}")
    runs = summary["runs"]
    if runs["finished"] < runs["planned"]:
        lines.append(f"not finished: {runs['finished']} of {runs['planned']} runs")
    reasons: dict[str, list[str]] = {}
    for row in summary["speedups"]:
        for reason in row["against_a_claim"]:
            reasons.setdefault(reason, []).append(f"{row['arm']} {row['class']} {row['concurrency']}")
    for reason, cells in reasons.items():
        lines.append(f"no claim for {_shortened(cells)}: {reason}")
    varying = sorted(
        {cell["arm"] for cell in summary["cells"] if (cell["acceptance"] or {}).get("draft_length_varies")}
    )
    if varying:
        lines.append(
            f"{', '.join(varying)}: drafts vary in length, so acceptance by position would read low and is left out"
        )
    return lines


def _shortened(cells: list[str]) -> str:
    return ", ".join(cells) if len(cells) <= 4 else f"{', '.join(cells[:3])} and {len(cells) - 3} more"


def _cells(summary: Mapping[str, Any]) -> Table:
    table = Table(title="medians over runs (quartiles in brackets)", title_justify="left")
    for name in ("class", "asked", "arm"):
        table.add_column(name, no_wrap=True)
    for name in ("load", "runs", "tok/s", "TPOT ms", "p99", "TTFT ms", "ITL ms", "accepted", "failed"):
        table.add_column(name, justify="right", no_wrap=True)
    before = None
    for cell in summary["cells"]:
        here = (cell["class"], cell["concurrency"])
        if before not in (None, here):
            table.add_section()
        before = here
        measured = cell["measured"]
        acceptance = cell["acceptance"]
        table.add_row(
            str(cell["class"]),
            str(cell["concurrency"]),
            str(cell["arm"]),
            _median(measured["concurrency"], 1, 1),
            str(cell["runs"]),
            _spread(measured["output_tokens_per_s"], 1, 1),
            _spread(measured["tpot_p50_s"], 1e3, 2),
            _median(measured["tpot_p99_s"], 1e3, 2),
            _median(measured["ttft_p50_s"], 1e3, 1),
            _median(measured["itl_p50_s"], 1e3, 2),
            _UNKNOWN if acceptance is None else _median(acceptance["mean_length"], 1, 2),
            _failed(cell),
        )
    return table


def _failed(cell: Mapping[str, Any]) -> str:
    if not cell["failed"]:
        return "0"
    timeouts = f", {cell['timeouts']} timed out" if cell["timeouts"] else ""
    return f"{cell['failed']} of {cell['failed'] + cell['completed']}{timeouts}"


def _speedups(summary: Mapping[str, Any]) -> Table:
    table = Table(title=f"speed-up over {summary['baseline']}, paired by repeat", title_justify="left")
    for name in ("class", "asked", "arm"):
        table.add_column(name, no_wrap=True)
    for name in ("pairs", "throughput", "95 % of the median", "TPOT"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in summary["speedups"]:
        throughput = row["throughput"]
        interval = None if throughput is None else throughput["interval_95"]
        table.add_row(
            str(row["class"]),
            str(row["concurrency"]),
            str(row["arm"]),
            str(row["pairs"]),
            _factor(throughput),
            _UNKNOWN if interval is None else f"{interval[0]:.3f} .. {interval[1]:.3f}",
            _factor(row["tpot"]),
            row["verdict"],
        )
    return table


def _factor(spread: Mapping[str, float] | None) -> str:
    return _UNKNOWN if spread is None else f"{spread['median']:.3f}x"


def _median(spread: Mapping[str, float] | None, scale: float, digits: int) -> str:
    return _UNKNOWN if spread is None else f"{spread['median'] * scale:.{digits}f}"


def _spread(spread: Mapping[str, float] | None, scale: float, digits: int) -> str:
    if spread is None:
        return _UNKNOWN
    low, high = (f"{spread[name] * scale:.{digits}f}" for name in ("p25", "p75"))
    return f"{spread['median'] * scale:.{digits}f} \\[{low} {high}]"
