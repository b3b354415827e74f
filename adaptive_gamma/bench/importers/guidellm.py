"""guidellm ``benchmarks.json``, version 2: one benchmark a load.

Traps, by name:

* ``time_per_output_token_ms`` contains the time to the first token; ``inter_token_latency_ms`` (last less first, over
  tokens - 1) is what the field calls TPOT.
* Requests in flight when the time is up are ``incomplete``: that is how a timed run ends, and no failure. More of
  them than the load has streams is noted.
* There is no summary of acceptance. vLLM's per-request counters are pooled where the server sent them; else the tokens
  per streamed chunk stand in for the tokens per step, with a note.
* Data sets that guidellm makes up (``prompt_tokens=...``) are no real prompts.
* Version 1 of the file (guidellm 0.4 and older) has other fields and is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from adaptive_gamma.bench.fields import Fields
from adaptive_gamma.bench.importers.counters import speculation_from_histogram
from adaptive_gamma.bench.importers.documents import Document
from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.importers.prompts import made_up_by_name
from adaptive_gamma.bench.importers.raw import RawRow, Stated
from adaptive_gamma.bench.importers.stated import flat_settings
from adaptive_gamma.bench.row import SpeculationSeen, SweepRow
from adaptive_gamma.errors import SweepError

__all__ = ["FORMAT", "guidellm_rows", "is_guidellm"]

FORMAT = "guidellm"
VERSION = 2
_MADE_UP = re.compile(r"prompt_tokens['\"]?\s*[=:]")


def is_guidellm(value: Any) -> bool:
    """Whether a document is a guidellm report, of any version."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("benchmarks"), list)
        and (
            isinstance(value.get("metadata"), dict)
            or any(isinstance(b, dict) and "metrics" in b for b in value["benchmarks"])
        )
    )


def guidellm_rows(document: Document, findings: Findings) -> Iterator[RawRow]:
    """One row a benchmark; a bad benchmark does not take the others with it."""
    fields = Fields(document.value, document.source)
    metadata = fields.object("metadata")
    version = metadata.count("version") if metadata is not None else None
    if version != VERSION:
        raise fields.error("metadata.version", f"is {version or 'not given'}; only version {VERSION} is read")
    for index, item in enumerate(fields.values["benchmarks"]):
        if not isinstance(item, dict):
            findings.refused(document.source, "is no object", f"benchmarks[{index}]")
            continue
        try:
            yield _benchmark(Fields(item, document.source, f"benchmarks[{index}]."), fields, findings)
        except SweepError as error:
            findings.error(document.source, error)


def _benchmark(fields: Fields, report: Fields, findings: Findings) -> RawRow:
    metrics, scheduler = _object(fields, "metrics"), _object(fields, "scheduler_metrics")
    config = fields.object("config") or Fields({}, fields.source)
    strategy = config.object("strategy") or Fields({}, fields.source)
    made = _object(scheduler, "requests_made")
    completed, failed = made.required_count("successful"), made.count("errored") or 0
    if completed == 0:
        raise made.error("successful", f"no request completed ({failed} failed)")
    streams = strategy.concurrency("streams")
    if streams is None:
        streams = 1 if strategy.text("type_") == "synchronous" else strategy.concurrency("max_concurrency")
    incomplete = made.count("incomplete") or 0
    if incomplete > (streams or completed):
        findings.note(
            fields.source, f"{incomplete} requests were cut off when the time was up", made.inside + "incomplete"
        )
    gap = _Breakdown(metrics, "inter_token_latency_ms")
    seen, stated = _acceptance(fields, metrics, findings)
    row = SweepRow(
        source=fields.source,
        format=FORMAT,
        engine="vllm" if seen is not None and seen.drafts else None,
        model=_setting(("model",), config, report),
        dataset=_setting(("dataset", "dataset_name"), config, report),
        concurrency_asked=streams,
        concurrency=_Breakdown(metrics, "request_concurrency").load(),
        input_tokens=_Breakdown(metrics, "prompt_token_count").length(),
        output_tokens=_Breakdown(metrics, "output_token_count").length(),
        output_tokens_per_s=_Breakdown(metrics, "output_tokens_per_second").throughput(),
        tpot_p50_s=gap.per_token("median"),
        tpot_p99_s=gap.percentile("p99"),
        tpot_mean_s=gap.per_token("mean"),
        ttft_p50_s=_Breakdown(metrics, "time_to_first_token_ms").milliseconds("median"),
        acceptance=seen,
        completed=completed,
        failed=failed,
        duration_s=_duration(scheduler),
        run=fields.inside.rstrip("."),
    )
    return RawRow(row, stated, _made_up(config, report) or made_up_by_name((row.dataset,)))


class _Breakdown:
    """A metric's figures for the requests that succeeded."""

    def __init__(self, metrics: Fields, key: str) -> None:
        metric = metrics.object(key)
        self.fields = metric.object("successful") if metric is not None else None

    def number(self, key: str) -> float | None:
        return None if self.fields is None else self.fields.number(key)

    def load(self) -> float | None:
        return None if self.fields is None else self.fields.load("mean")

    def length(self) -> float | None:
        return None if self.fields is None else self.fields.length("mean")

    def throughput(self) -> float | None:
        return None if self.fields is None else self.fields.tokens_per_second("mean")

    def per_token(self, key: str) -> float | None:
        return None if self.fields is None else self.fields.seconds_per_token(key, scale=1e-3)

    def milliseconds(self, key: str) -> float | None:
        return None if self.fields is None else self.fields.seconds(key, scale=1e-3)

    def percentile(self, key: str) -> float | None:
        inner = None if self.fields is None else self.fields.object("percentiles")
        return None if inner is None else inner.seconds_per_token(key, scale=1e-3)


def _object(fields: Fields, key: str) -> Fields:
    found = fields.object(key)
    if found is None:
        raise fields.error(key, "is missing")
    return found


def _duration(scheduler: Fields) -> float | None:
    start, end = scheduler.number("measure_start_time"), scheduler.number("measure_end_time")
    if start is None or end is None:
        return None
    if end <= start:
        raise scheduler.error("measure_end_time", "is not after measure_start_time")
    return end - start


def _setting(keys: tuple[str, ...], *places: Fields) -> str | None:
    for place in places:
        for last, _, value in flat_settings({k: v for k, v in place.values.items() if k != "benchmarks"}):
            if last in keys and isinstance(value, str) and value:
                return Fields({last: value}, place.source).text(last)
    return None


def _made_up(*places: Fields) -> str | None:
    for place in places:
        for last, _, value in flat_settings({k: v for k, v in place.values.items() if k != "benchmarks"}):
            if last in {"data", "requests"} and _MADE_UP.search(str(value)):
                return "its data set is made up (prompt_tokens=...)"
    return None


def _acceptance(fields: Fields, metrics: Fields, findings: Findings) -> tuple[SpeculationSeen | None, Stated | None]:
    pooled: Counter[int] = Counter()
    drafted = 0
    gammas: set[int] = set()
    requests = fields.object("requests") or Fields({}, fields.source)
    for request in requests.objects("successful"):
        answer = request.object("response_metrics")
        outer = answer.object("metrics") if answer is not None and "metrics" in answer else answer
        speculation = outer.object("speculative_decoding") if outer is not None else None
        if speculation is None:
            continue
        histogram = speculation.counts("acceptance_histogram") or ()
        pooled.update({count: steps for count, steps in enumerate(histogram) if steps})
        drafted += speculation.count("num_draft_tokens") or 0
        if (gamma := speculation.count("num_spec_tokens")) is not None:
            gammas.add(gamma)
    if len(gammas) > 1:
        raise requests.error("successful", f"requests of different gamma: {', '.join(map(str, sorted(gammas)))}")
    stated = Stated(next(iter(gammas)), True, "num_spec_tokens of the requests") if gammas else None
    if pooled:
        histogram = tuple(pooled[count] for count in range(max(max(pooled), *gammas, 0) + 1))
        key = requests.inside + "successful"
        return speculation_from_histogram(fields, key, histogram, drafted or None, findings), stated
    length = _Breakdown(metrics, "iter_tokens_per_iteration").number("mean")
    if length is None:
        length = _Breakdown(metrics, "output_tokens_per_iteration").number("mean")
    if length is None or length <= 1.01:
        return None, stated
    findings.note(
        fields.source,
        f"{length:.2f} tokens per streamed chunk stand in for the tokens per step",
        fields.inside + "metrics.iter_tokens_per_iteration",
    )
    return SpeculationSeen(mean_length=length), stated
