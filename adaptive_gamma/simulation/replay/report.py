"""Figures of a replay, as a JSON document and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from adaptive_gamma.simulation.replay.run import PolicyRun
from adaptive_gamma.simulation.replay.workload import Workload

__all__ = ["FIGURES", "SCHEMA", "policy_figures", "policy_table", "reason_table", "with_regret"]

SCHEMA = "adaptive-gamma/dry-run/v1"

FIGURES = {
    "tokens_per_second": "output tokens of all requests over the time from the first arrival to the last token",
    "mean_latency_s": "mean seconds from a request's arrival to its last token",
    "p50_latency_s": "the median of the same",
    "p99_latency_s": "its 99th percentile",
    "mean_ttft_s": "mean seconds from arrival to the first token",
    "p50_ttft_s": "the median of the same",
    "p99_ttft_s": "its 99th percentile",
    "mean_tpot_ms": "mean over requests of at least two tokens of (last token - first token) / (tokens - 1), in ms",
    "mean_gamma": "draft tokens proposed per decode step of a sequence, plain steps counted as 0; null without any",
    "gpu_busy_share": "seconds in which a replica ran a step, over replicas times the whole time",
    "mean_batch": "decoding sequences in a step, mean over steps",
    "share_per_pool": "share of the requests that went to speculative and to plain replicas",
    "share_per_replica": "share of the requests that went to each replica",
    "decisions_by_reason": "requests by the reason of the decision",
    "regret_vs_oracle": "mean latency over the oracle's, less 1 (below 0: better than the oracle); null without it",
    "tokens_per_second_regret": "1 less tokens per second over the oracle's; null without it",
}
"""What each figure of a policy means."""

_ORACLE = "oracle"


def policy_figures(run: PolicyRun, workload: Workload) -> dict[str, Any]:
    """The figures of one policy, without those that compare it; see ``FIGURES``."""
    arrival = np.asarray(workload.arrival_s)
    finished = np.asarray(run.log.finished_s)
    first = np.asarray(run.log.first_token_s)
    tokens = np.asarray(workload.output_tokens)
    latency = finished - arrival
    ttft = first - arrival
    several = tokens > 1
    tpot = (finished[several] - first[several]) / (tokens[several] - 1)
    span = float(finished.max() - arrival.min())
    totals = run.replicas.values()
    requests = len(workload)
    sequence_steps = sum(t.sequence_steps for t in totals)
    steps = sum(t.steps for t in totals)
    return {
        "tokens_per_second": int(tokens.sum()) / span if span > 0 else None,
        "mean_latency_s": float(latency.mean()),
        "p50_latency_s": float(np.percentile(latency, 50)),
        "p99_latency_s": float(np.percentile(latency, 99)),
        "mean_ttft_s": float(ttft.mean()),
        "p50_ttft_s": float(np.percentile(ttft, 50)),
        "p99_ttft_s": float(np.percentile(ttft, 99)),
        "mean_tpot_ms": float(tpot.mean()) * 1e3 if len(tpot) else None,
        "mean_gamma": sum(t.drafted for t in totals) / sequence_steps if sequence_steps else None,
        "gpu_busy_share": sum(t.busy_s for t in totals) / (len(totals) * span) if span > 0 else None,
        "mean_batch": sequence_steps / steps if steps else None,
        "share_per_pool": {pool: run.pools[pool] / requests for pool in ("speculative", "plain")},
        "share_per_replica": {name: t.requests / requests for name, t in run.replicas.items()},
        "decisions_by_reason": dict(sorted(run.reasons.items())),
    }


def with_regret(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Add each policy's distance from the oracle; None where the oracle was not run."""
    oracle = figures.get(_ORACLE)
    compared: dict[str, dict[str, Any]] = {}
    for name, values in figures.items():
        latency = tokens = None
        if oracle is not None:
            latency = _ratio(values["mean_latency_s"], oracle["mean_latency_s"])
            tokens = _ratio(values["tokens_per_second"], oracle["tokens_per_second"])
        compared[name] = {
            **values,
            "regret_vs_oracle": None if latency is None else latency - 1.0,
            "tokens_per_second_regret": None if tokens is None else 1.0 - tokens,
        }
    return compared


def _ratio(value: float | None, reference: float | None) -> float | None:
    return value / reference if value is not None and reference else None


def policy_table(figures: Mapping[str, Mapping[str, Any]]) -> Table:
    """One line a policy."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("policy", no_wrap=True)
    for heading in (
        "tokens/s", "latency\nmean s", "latency\np99 s", "TPOT\nms", "TTFT\nmean s", "TTFT\np99 s",
        "gamma", "busy", "spec. :\nplain", "latency\nvs oracle",
    ):  # fmt: skip
        table.add_column(heading, justify="right", no_wrap=True)
    for name, f in figures.items():
        shares = f["share_per_pool"]
        table.add_row(
            name,
            _number(f["tokens_per_second"], 1),
            _number(f["mean_latency_s"], 3),
            _number(f["p99_latency_s"], 3),
            _number(f["mean_tpot_ms"], 2),
            _number(f["mean_ttft_s"], 3),
            _number(f["p99_ttft_s"], 3),
            _number(f["mean_gamma"], 2),
            _percent(f["gpu_busy_share"]),
            f"{100 * shares['speculative']:.0f} : {100 * shares['plain']:.0f}",
            _percent(f["regret_vs_oracle"], signed=True),
            style="bold" if name == "adaptive" else None,
        )
    return table


def reason_table(figures: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> Table:
    """Decisions by reason of the policies named."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("policy", no_wrap=True)
    table.add_column("reason", no_wrap=True)
    table.add_column("requests", justify="right")
    table.add_column("share", justify="right")
    for name in names:
        reasons = figures[name]["decisions_by_reason"]
        total = sum(reasons.values())
        for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
            table.add_row(name, reason, f"{count:,}", _percent(count / total))
    return table


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _percent(value: float | None, signed: bool = False) -> str:
    if value is None:
        return "-"
    return f"{100 * value:+.1f} %" if signed else f"{100 * value:.1f} %"
