"""aiperf ``server_metrics_export.json``: the server's own counters over the run beside it.

Counters lose their ``_total`` there, and ``stats.total`` is the growth over the run. Series of several servers or
ranks are added up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adaptive_gamma.bench.fields import Fields
from adaptive_gamma.bench.importers.counters import CounterKeys, speculation_from_counters
from adaptive_gamma.bench.importers.documents import Document
from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.importers.raw import ServerFacts
from adaptive_gamma.bench.row import SpeculationSeen, SweepRow

__all__ = ["is_server_metrics", "server_metrics_facts"]

MOST_POSITIONS = 64


def is_server_metrics(value: Any) -> bool:
    """Whether a document is the export of a server's metrics."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("metrics"), dict)
        and bool(value["metrics"])
        and all(isinstance(metric, dict) and "series" in metric for metric in value["metrics"].values())
    )


def server_metrics_facts(document: Document, findings: Findings) -> ServerFacts:
    """The draft counters of the run. Raises SweepError where they make no sense."""
    metrics = Fields(document.value["metrics"], document.source, "metrics.")
    names = {name.rpartition(":")[2]: name for name in metrics.values}
    engines = {name.partition(":")[0] for name in metrics.values if ":" in name}
    row = SweepRow(
        source=document.source,
        format="aiperf-server-metrics",
        engine=next((engine for engine in ("vllm", "sglang") if engine in engines), None),
        acceptance=_acceptance(metrics, names, findings),
    )
    return ServerFacts(document, row, None, below=False)


def _acceptance(metrics: Fields, names: dict[str, str], findings: Findings) -> SpeculationSeen | None:
    drafts_name = names.get("spec_decode_num_drafts")
    if drafts_name is None:
        return None
    drafts = _whole(metrics, drafts_name)
    draft_tokens = _whole(metrics, names.get("spec_decode_num_draft_tokens"))
    accepted = _whole(metrics, names.get("spec_decode_num_accepted_tokens"))
    if drafts is None:
        return None
    by_position: dict[int, float] = {}
    for labels, total in _totals(metrics, names.get("spec_decode_num_accepted_tokens_per_pos")):
        position = str(labels.get("position", ""))
        if not (position.isascii() and position.isdigit() and len(position) <= 2 and int(position) < MOST_POSITIONS):
            raise metrics.error("spec_decode_num_accepted_tokens_per_pos", f"has a series of position {position!r}")
        by_position[int(position)] = by_position.get(int(position), 0.0) + total
    rates = None
    if by_position and drafts and sorted(by_position) == list(range(len(by_position))):
        rates = [by_position[position] / drafts for position in range(len(by_position))]
    return speculation_from_counters(
        metrics,
        CounterKeys(
            drafts=drafts_name,
            accepted=names.get("spec_decode_num_accepted_tokens", drafts_name),
            per_position=names.get("spec_decode_num_accepted_tokens_per_pos", drafts_name),
            mean_length=drafts_name,
        ),
        findings,
        drafts=drafts,
        draft_tokens=draft_tokens,
        accepted=accepted,
        per_position=rates,
        mean_length=None,
    )


def _totals(metrics: Fields, name: str | None) -> Iterator[tuple[dict[str, Any], float]]:
    metric = metrics.object(name) if name is not None else None
    for series in metric.objects("series") if metric is not None else ():
        stats = series.object("stats")
        total = stats.number("total") if stats is not None else None
        if total is not None:
            labels = series.object("labels")
            yield dict(labels.values) if labels is not None else {}, total


def _whole(metrics: Fields, name: str | None) -> int | None:
    totals = [total for _, total in _totals(metrics, name)]
    return round(sum(totals)) if totals else None
