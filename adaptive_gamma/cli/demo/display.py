"""The live table and the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from adaptive_gamma.cli.demo.traffic import StepTally

__all__ = ["live_view", "summary"]

_KINDS = ("code", "prose")


def _or_unknown(value: object) -> str:
    return "?" if value is None else str(value)


def _rates(rates: Sequence[float | None] | None) -> str:
    return "" if rates is None else " ".join("?" if rate is None else f"{rate:.2f}" for rate in rates)


def _split(tally: StepTally, kind: str) -> str:
    pools: Mapping[str, int] = tally.pools.get(kind, {})
    return f"{pools.get('speculative', 0)} / {pools.get('plain', 0)}"


def live_view(status: Mapping[str, Any] | None, tally: StepTally | None, note: str) -> RenderableType:
    """One frame: the replicas as ``/status`` tells them and this step's traffic so far."""
    replicas = Table(title="replicas (from the engines' own metrics)", title_justify="left", expand=True)
    for column in ("replica", "pool", "gamma", "running", "waiting", "in flight", "acceptance by position"):
        replicas.add_column(column)
    for row in (status or {}).get("replicas", []):
        replicas.add_row(
            row["name"],
            row["pool"],
            _or_unknown(row["gamma"]),
            _or_unknown(row["running"]),
            _or_unknown(row["waiting"]),
            str(row["in_flight"]),
            _rates(row["acceptance"]) or ("" if row["pool"] == "plain" else "no draft yet"),
        )
    parts: list[RenderableType] = [Text(note), replicas]
    if tally is not None:
        traffic = Table(title=f"traffic at concurrency {tally.concurrency}", title_justify="left", expand=True)
        for column in ("prompts", "class given", "to speculative / plain"):
            traffic.add_column(column)
        for kind in _KINDS:
            classes = ", ".join(f"{name} {n}" for name, n in tally.classes.get(kind, {}).items())
            traffic.add_row(kind, classes, _split(tally, kind))
        parts.append(traffic)
    return Group(*parts)


def summary(
    steps: Sequence[StepTally], status: Mapping[str, Any], started_with: Sequence[float], described: str
) -> RenderableType:
    """What happened at each concurrency, and the acceptance read against the one the engine was started with."""
    table = Table(title="requests sent to the speculative / the plain replica", title_justify="left")
    table.add_column("open at once", justify="right")
    for kind in _KINDS:
        table.add_column(kind, justify="right")
    for column in ("tokens/s", "median latency", "failed"):
        table.add_column(column, justify="right")
    for step in steps:
        table.add_row(
            str(step.concurrency),
            *(_split(step, kind) for kind in _KINDS),
            f"{step.tokens / step.elapsed_s:.0f}" if step.elapsed_s else "",
            f"{median(step.latencies_s) * 1e3:.0f} ms" if step.latencies_s else "",
            str(len(step.failures)),
        )
    conditional = [rate / before for rate, before in zip(started_with, (1.0, *started_with), strict=False)]
    read = next((r["acceptance"] for r in status["replicas"] if r["pool"] == "speculative"), None)
    lines = [f"engines: {described}", "reasons:"]
    lines += [
        f"  {step.concurrency} open: " + ", ".join(f"{why} {count}" for why, count in step.reasons.most_common())
        for step in steps
    ]
    lines += [
        f"conditional acceptance by position, read from the engine: {_rates(read) or 'none'}",
        f"                                 as it was started with: {_rates(conditional)}",
    ]
    lines += [f"failed at concurrency {step.concurrency}: {text}" for step in steps for text in step.failures[:3]]
    return Group(table, Text("\n".join(lines)))
