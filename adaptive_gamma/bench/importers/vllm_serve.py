"""``vllm bench serve``: one object a run; plain, with ``--save-detailed``, or a line a run with ``--append-result``.

Traps, by name:

* ``spec_decode_acceptance_rate`` is in percent, 0..100. The counts beside it are what is read.
* ``spec_decode_*`` is absent on a plain server and also on a speculative one that drafted nothing: absent is unknown.
* ``max_concurrent_requests`` counts requests that touch the same second, not the load: it is not read. The load is the
  sum of the requests' latencies over the duration (Little's law); ``max_concurrency`` is what was asked for.
* gamma, engine version and data set are not recorded: they come from ``--metadata``, from a sweep's overrides, from
  ``server_info`` beside the file, from names, or from the user.
* ``backend`` is the client's dialect; a server is vLLM for sure only where its draft counters were read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adaptive_gamma.bench.fields import MOST_LENGTH, MOST_REQUESTS_AT_ONCE, Fields
from adaptive_gamma.bench.importers.counters import CounterKeys, speculation_from_counters
from adaptive_gamma.bench.importers.documents import Document
from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.importers.prompts import made_up_by_lengths, made_up_by_name
from adaptive_gamma.bench.importers.raw import RawRow
from adaptive_gamma.bench.importers.stated import stated_speculation, stated_text
from adaptive_gamma.bench.row import SpeculationSeen, SweepRow

__all__ = ["FORMAT", "is_bench_serve", "mean_length", "serve_rows"]

FORMAT = "vllm-bench-serve"
MARKS = {"endpoint_type", "model_id", "request_throughput", "total_input_tokens", "duration"}
OWN_KEYS = {
    "date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate",
    "burstiness", "max_concurrency", "duration", "completed", "failed", "latencies", "queue_times", "generated_texts",
    "errors",    "input_lens", "output_lens", "start_times", "ttfts", "itls", "server_queue_times", "server_ttfts",
}  # fmt: skip
INCOMPLETE_SHARE = 0.9
MOST_RATE_GAP = 2.0
"""Percentage points between the acceptance rate and the counts it is made of."""
COUNTER_KEYS = CounterKeys(
    drafts="spec_decode_num_drafts",
    accepted="spec_decode_accepted_tokens",
    per_position="spec_decode_per_position_acceptance_rates",
    mean_length="spec_decode_acceptance_length",
)


def is_bench_serve(value: Any) -> bool:
    """Whether a document is a run of ``vllm bench serve``; one mark may be missing, and is then named."""
    return isinstance(value, dict) and len(value.keys() & MARKS) >= len(MARKS) - 1


def serve_rows(document: Document, findings: Findings) -> Iterator[RawRow]:
    """The run's row. Raises SweepError for a run that cannot be used."""
    fields = Fields(document.value, document.source)
    for key in sorted(MARKS - document.value.keys()):
        raise fields.error(key, "is missing")
    completed = fields.required_count("completed")
    if completed == 0:
        raise fields.error("completed", f"no request completed ({fields.count('failed') or 'unknown'} failed)")
    failed = _failed(fields, completed, findings)
    duration = fields.seconds("duration")
    if not duration:
        raise fields.error("duration", "is missing" if duration is None else "is zero")
    settings = Fields({k: v for k, v in document.value.items() if k not in OWN_KEYS}, document.source)
    seen = _acceptance(fields, findings)
    label = fields.text("label")
    dataset = stated_text(settings, "dataset")
    lengths = fields.numbers("input_lens")
    output_lengths = fields.numbers("output_lens")
    run = fields.count("run_number", least=-1)
    row = SweepRow(
        source=document.source,
        format=FORMAT,
        engine=_engine(fields, seen),
        engine_version=stated_text(settings, "engine_version"),
        model=fields.text("model_id"),
        drafter=stated_text(settings, "drafter"),
        dataset=dataset,
        request_class=stated_text(settings, "request_class"),
        arm=label or stated_text(settings, "arm"),
        concurrency_asked=fields.concurrency("max_concurrency"),
        concurrency=_concurrency(fields, completed, duration),
        input_tokens=mean_length(fields, "total_input_tokens", completed),
        output_tokens=mean_length(fields, "total_output_tokens", completed),
        output_tokens_per_s=fields.tokens_per_second("output_throughput"),
        tpot_p50_s=fields.seconds_per_token("median_tpot_ms", scale=1e-3),
        tpot_p99_s=fields.seconds_per_token("p99_tpot_ms", scale=1e-3),
        tpot_mean_s=fields.seconds_per_token("mean_tpot_ms", scale=1e-3),
        ttft_p50_s=fields.seconds("median_ttft_ms", scale=1e-3),
        acceptance=seen,
        completed=completed,
        failed=failed,
        duration_s=duration,
        run=f"run {run}" if run is not None else fields.text("date") or "",
    )
    made_up = made_up_by_name((dataset, label))
    if made_up is None and output_lengths is not None and len(set(output_lengths)) <= 1:
        made_up = made_up_by_lengths(lengths)
    yield RawRow(row, stated_speculation(settings), made_up)


def _failed(fields: Fields, completed: int, findings: Findings) -> int:
    """Requests that failed; a run that did not send all its requests is noted, one cut short is refused."""
    asked, failed = fields.count("num_prompts"), fields.count("failed")
    if failed is None:
        if asked is None:
            findings.note(fields.source, "is not in the file; taken as none", "failed")
            return 0
        return max(asked - completed, 0)
    if asked is not None and completed + failed < asked:
        problem = f"only {completed + failed} of {asked} requests were made"
        if completed + failed < INCOMPLETE_SHARE * asked:
            raise fields.error("num_prompts", f"{problem}: the run is incomplete")
        findings.note(fields.source, problem, "num_prompts")
    return failed


def _engine(fields: Fields, seen: SpeculationSeen | None) -> str | None:
    backend = fields.text("backend") or fields.text("endpoint_type")
    if seen is not None or any(key.startswith("spec_decode_") for key in fields.values):
        return "vllm"
    return backend if backend in {"vllm", "sglang", "tgi"} else None


def _concurrency(fields: Fields, completed: int, duration: float) -> float | None:
    latencies = fields.numbers("latencies")
    if latencies:
        return _sound_load(fields, "latencies", sum(latencies) / duration)
    latency = fields.seconds("mean_e2el_ms", scale=1e-3)
    if latency is None:
        first = fields.seconds("mean_ttft_ms", scale=1e-3)
        token = fields.seconds_per_token("mean_tpot_ms", scale=1e-3)
        tokens = mean_length(fields, "total_output_tokens", completed)
        if first is None or token is None or tokens is None:
            return None
        latency = first + token * max(tokens - 1.0, 0.0)
    return _sound_load(fields, "duration", completed * latency / duration)


def _sound_load(fields: Fields, key: str, load: float) -> float:
    if load > MOST_REQUESTS_AT_ONCE:
        raise fields.error(key, f"the requests' times over the duration give {load:g} requests at once")
    return load


def mean_length(fields: Fields, key: str, completed: int) -> float | None:
    """The tokens of a request: a total of the run over its completed requests."""
    total = fields.count(key)
    if total is not None and total / completed > MOST_LENGTH:
        raise fields.error(key, f"{total} tokens in {completed} requests: {total / completed:g} tokens each")
    return None if total is None else total / completed


def _acceptance(fields: Fields, findings: Findings) -> SpeculationSeen | None:
    drafts = fields.count("spec_decode_num_drafts")
    if drafts is None:
        length = fields.number("spec_decode_acceptance_length")
        if length is None:
            return None
        return SpeculationSeen(mean_length=fields.number("spec_decode_acceptance_length", least=1.0))
    percent = fields.number("spec_decode_acceptance_rate")
    if percent is not None and percent > 100.0:
        raise fields.error("spec_decode_acceptance_rate", f"is a percentage, but above 100: {percent:g}")
    draft_tokens, accepted = fields.count("spec_decode_draft_tokens"), fields.count("spec_decode_accepted_tokens")
    seen = speculation_from_counters(
        fields,
        COUNTER_KEYS,
        findings,
        drafts=drafts,
        draft_tokens=draft_tokens,
        accepted=accepted,
        per_position=fields.numbers("spec_decode_per_position_acceptance_rates"),
        mean_length=fields.number("spec_decode_acceptance_length"),
    )
    if percent is not None and draft_tokens and accepted is not None:
        counted = 100.0 * accepted / draft_tokens
        if abs(percent - counted) > MOST_RATE_GAP:
            why = ": it is written as a fraction" if abs(100.0 * percent - counted) <= MOST_RATE_GAP else ""
            raise fields.error(
                "spec_decode_acceptance_rate",
                f"is {percent:g} percent, but {accepted} of {draft_tokens} drafted tokens were accepted, "
                f"{counted:.1f} percent{why}",
            )
    return seen
