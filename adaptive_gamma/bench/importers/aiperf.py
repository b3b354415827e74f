"""aiperf ``profile_export_aiperf.json``, schema 1.x: one run.

Traps, by name:

* A run may be cancelled or incomplete and still leave a file: refused.
* Each metric names its unit; seconds are made of that unit, not of the one expected.
* The acceptance histogram has accepted counts as keys, and counts nobody reached are left out of it.
* gamma is nowhere unless a sweep varied it (``run_info.variation_values``); where the server's own metrics were
  exported beside the run, its draft counters come from there.
* ``profile_export.jsonl`` (requests) and the sweep's aggregate repeat what the runs hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adaptive_gamma.bench.fields import Fields
from adaptive_gamma.bench.importers.counters import speculation_from_histogram
from adaptive_gamma.bench.importers.documents import Document
from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.importers.prompts import made_up_by_name
from adaptive_gamma.bench.importers.raw import RawRow
from adaptive_gamma.bench.importers.stated import flat_settings, stated_speculation, stated_text
from adaptive_gamma.bench.row import SpeculationSeen, SweepRow

__all__ = ["FORMAT", "aiperf_rows", "is_aiperf", "is_aiperf_aggregate", "is_aiperf_request"]

FORMAT = "aiperf"
UNITS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "ns": 1e-9}
MOST_ACCEPTED = 64


def is_aiperf(value: Any) -> bool:
    """Whether a document is the export of a run."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("request_latency", value.get("request_throughput")), dict)
        and ("input_config" in value or "aiperf_version" in value or "schema_version" in value)
    )


def is_aiperf_aggregate(value: Any) -> bool:
    """Whether a document is the aggregate of a sweep's runs."""
    return isinstance(value, dict) and value.keys() >= {"aggregation_type", "num_profile_runs"}


def is_aiperf_request(value: Any) -> bool:
    """Whether a document is the record of one request."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("metadata"), dict)
        and isinstance(value.get("metrics"), dict)
        and "request_start_ns" in value["metadata"]
    )


def aiperf_rows(document: Document, findings: Findings) -> Iterator[RawRow]:
    """The run's row. Raises SweepError for a run that cannot be used."""
    fields = Fields(document.value, document.source)
    version = fields.text("schema_version")
    if version is not None and version.split(".")[0] != "1":
        raise fields.error("schema_version", f"is {version}; only 1.x is read")
    if fields.flag("was_cancelled"):
        raise fields.error("was_cancelled", "the run was cancelled")
    if fields.flag("is_complete") is False:
        raise fields.error(
            "is_complete", f"the run is incomplete: {fields.text('incomplete_reason') or 'no reason given'}"
        )
    completed, failed = _total(fields, "request_count"), _total(fields, "error_request_count") or 0
    if completed is None:
        raise fields.error("request_count", "is missing")
    if completed == 0:
        raise fields.error("request_count", f"no request completed ({failed} failed)")
    config = fields.object("input_config") or Fields({}, document.source)
    info = fields.object("run_info") or Fields({}, document.source)
    variation = info.object("variation_values") or Fields({}, document.source)
    latency, rate = _seconds(fields, "request_latency", "avg"), _value(fields, "request_throughput", "avg")
    dataset = stated_text(config, "dataset")
    row = SweepRow(
        source=document.source,
        format=FORMAT,
        model=_model(config),
        drafter=stated_text(variation, "drafter"),
        dataset=dataset,
        request_class=stated_text(variation, "request_class"),
        arm=info.text("variation_label"),
        concurrency_asked=_concurrency_asked(config, variation),
        concurrency=None if latency is None or rate is None else latency * rate,
        input_tokens=_length(fields, "input_sequence_length"),
        output_tokens=_length(fields, "output_sequence_length"),
        output_tokens_per_s=_throughput(fields, "output_token_throughput"),
        tpot_p50_s=_seconds(fields, "inter_token_latency", "p50"),
        tpot_p99_s=_seconds(fields, "inter_token_latency", "p99"),
        tpot_mean_s=_seconds(fields, "inter_token_latency", "avg"),
        ttft_p50_s=_seconds(fields, "time_to_first_token", "p50"),
        acceptance=_acceptance(fields, findings),
        completed=completed,
        failed=failed,
        duration_s=_seconds(fields, "benchmark_duration", "avg"),
        run=fields.text("benchmark_id") or info.text("benchmark_id") or "",
    )
    yield RawRow(row, stated_speculation(variation), made_up_by_name((dataset, row.arm)))


def _value(fields: Fields, tag: str, statistic: str) -> float | None:
    metric = fields.object(tag)
    return None if metric is None else metric.number(statistic)


def _length(fields: Fields, tag: str) -> float | None:
    metric = fields.object(tag)
    return None if metric is None else metric.length("avg")


def _throughput(fields: Fields, tag: str) -> float | None:
    metric = fields.object(tag)
    return None if metric is None else metric.tokens_per_second("avg")


def _total(fields: Fields, tag: str) -> int | None:
    metric = fields.object(tag)
    return None if metric is None else metric.count("avg")


def _seconds(fields: Fields, tag: str, statistic: str) -> float | None:
    metric = fields.object(tag)
    if metric is None:
        return None
    unit = metric.text("unit")
    if unit is None or unit.lower() not in UNITS:
        raise metric.error("unit", f"expected a unit of time, got {unit!r}")
    scale = UNITS[unit.lower()]
    if tag == "inter_token_latency":
        return metric.seconds_per_token(statistic, scale=scale)
    return metric.seconds(statistic, scale=scale)


def _model(config: Fields) -> str | None:
    for last, _, value in flat_settings(config.values):
        if last == "items" and isinstance(value, list) and value and isinstance(value[0], dict | str):
            name = value[0] if isinstance(value[0], str) else value[0].get("name")
            return name if isinstance(name, str) else None
        if last == "model_names" and isinstance(value, list) and value and isinstance(value[0], str):
            return Fields({last: value[0]}, config.source).text(last)
    return None


def _concurrency_asked(config: Fields, variation: Fields) -> int | None:
    """What was asked of the profiling phase; the value a sweep set there comes first."""
    for last, dotted, value in flat_settings(variation.values):
        if last == "concurrency" and not isinstance(value, dict):
            return Fields({dotted: value}, variation.source, variation.inside).concurrency(dotted)
    phases = [phase for phase in config.objects("phases") if phase.text("name") != "warmup"]
    asked = [value for phase in phases if (value := phase.concurrency("concurrency")) is not None]
    if asked:
        return asked[-1]
    load = config.object("loadgen")
    return load.concurrency("concurrency") if load is not None else None


def _acceptance(fields: Fields, findings: Findings) -> SpeculationSeen | None:
    key = "pooled_spec_decode_acceptance_histogram"
    drafted = _total(fields, "total_draft_tokens")
    pooled = fields.object(key)
    if pooled is not None:
        for name in pooled.values:
            if not (name.isascii() and name.isdigit() and len(name) <= 3 and int(name) <= MOST_ACCEPTED):
                raise pooled.error(name, f"expected an accepted count in 0..{MOST_ACCEPTED}")
        counts = {int(name): pooled.required_count(name) for name in pooled.values}
        histogram = tuple(counts.get(count, 0) for count in range(max(counts, default=0) + 1))
        return speculation_from_histogram(fields, key, histogram, drafted, findings)
    length = _value(fields, "spec_decode_token_weighted_acceptance_length", "avg")
    if length is None:
        return None
    metric = fields.object("spec_decode_token_weighted_acceptance_length")
    return SpeculationSeen(
        drafts=_total(fields, "total_spec_decode_steps"),
        mean_length=metric.number("avg", least=1.0) if metric is not None else None,
        draft_tokens=drafted,
    )
