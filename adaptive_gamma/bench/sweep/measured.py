"""From the outcomes of a run to its row, and to what a row has no place for. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from adaptive_gamma.bench.row import Source, SweepRow
from adaptive_gamma.bench.sweep.arm import ArmReport
from adaptive_gamma.bench.sweep.asking import TIMEOUT
from adaptive_gamma.bench.sweep.counters import CounterGain
from adaptive_gamma.bench.sweep.load import LoadResult

__all__ = ["DETAIL_SCHEMA", "FORMAT", "load_seen", "quantile", "run_detail", "run_row"]

FORMAT = "adaptive-gamma"
DETAIL_SCHEMA = "adaptive-gamma/sweep-run/v1"
_LEAST_LOOKS = 3
_QUEUEING = 0.05
"""Share of the open requests that wait at the engine from which on the engine's own count of its batch is the load."""
_FOREIGN = 0.02
"""Share of an engine's tokens that were not ours from which on the run was not alone."""


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value below which ``share`` of the values lie, between two of them in proportion; None of no values."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def load_seen(result: LoadResult) -> tuple[float | None, str]:
    """The measured mean load of a run and who measured it.

    The client's own open requests; but where part of them waits in the engine's queue, the engine's running ones.
    """
    gauges = result.gauges
    if gauges.looks >= _LEAST_LOOKS and gauges.running and gauges.waiting is not None:
        total = gauges.running + gauges.waiting
        if gauges.waiting > _QUEUEING * total:
            return gauges.running, "engine"
    return result.mean_open, "client"


def run_row(
    result: LoadResult,
    gain: CounterGain | None,
    report: ArmReport,
    *,
    arm: str,
    model: str,
    dataset: str,
    request_class: str,
    concurrency: int,
    run: str,
    source: Source,
) -> SweepRow:
    """The row of a run."""
    whole = result.whole
    tokens = [outcome.output_tokens for outcome in whole if outcome.output_tokens is not None]
    prompts = [outcome.prompt_tokens for outcome in whole if outcome.prompt_tokens is not None]
    tpots = [outcome.tpot_s for outcome in whole if outcome.tpot_s is not None]
    return SweepRow(
        source=source,
        format=FORMAT,
        engine=report.engine,
        engine_version=report.engine_version,
        model=model,
        drafter=report.drafter,
        dataset=dataset,
        request_class=request_class,
        arm=arm,
        gamma=report.gamma,
        speculative=report.speculative,
        concurrency_asked=concurrency,
        concurrency=load_seen(result)[0],
        input_tokens=_mean(prompts),
        output_tokens=_mean(tokens),
        output_tokens_per_s=sum(tokens) / result.duration_s if tokens and result.duration_s > 0 else None,
        tpot_p50_s=quantile(tpots, 0.5),
        tpot_p99_s=quantile(tpots, 0.99),
        tpot_mean_s=_mean(tpots),
        ttft_p50_s=quantile([outcome.ttft_s for outcome in whole if outcome.ttft_s is not None], 0.5),
        acceptance=None if gain is None else gain.acceptance,
        completed=len(whole),
        failed=len(result.outcomes) - len(whole),
        duration_s=result.duration_s,
        run=run,
    )


def run_detail(
    result: LoadResult, gain: CounterGain | None, *, asked_tokens: int, fixed_length: bool, started_at: str
) -> dict[str, Any]:
    """What a row has no place for: failures by reason, latencies in full, what the engine's counters add."""
    whole = result.whole
    failed = [outcome for outcome in result.outcomes if outcome.failure is not None]
    reasons = Counter(outcome.failure for outcome in failed)
    ttfts = [outcome.ttft_s for outcome in whole if outcome.ttft_s is not None]
    gaps = [gap for outcome in whole for gap in outcome.gaps_s]
    tokens = sum(outcome.output_tokens or 0 for outcome in whole)
    arrivals = sum(len(outcome.gaps_s) + 1 for outcome in whole)
    foreign = None
    if gain is not None and gain.generated_tokens is not None and gain.generated_tokens > 0 and not failed:
        foreign = max(0.0, 1.0 - tokens / gain.generated_tokens)
    return {
        "schema": DETAIL_SCHEMA,
        "started_at": started_at,
        "timeouts": reasons[TIMEOUT],
        "failures": dict(sorted((str(reason), count) for reason, count in reasons.items())),
        "failure_examples": {str(outcome.failure): outcome.detail for outcome in failed},
        "fixed_length": fixed_length,
        "came_at_once": sum(outcome.tpot_s is None and (outcome.output_tokens or 0) > 1 for outcome in whole),
        "other_lengths": sum(outcome.output_tokens != asked_tokens for outcome in whole),
        "ttft_mean_s": _mean(ttfts),
        "ttft_p99_s": quantile(ttfts, 0.99),
        "itl_p50_s": quantile(gaps, 0.5),
        "itl_p99_s": quantile(gaps, 0.99),
        "itl_mean_s": _mean(gaps),
        "tokens_per_arrival": tokens / arrivals if arrivals else None,
        "load_measured_by": load_seen(result)[1],
        "open_mean": result.mean_open,
        "engine_looks": result.gauges.looks,
        "engine_running_mean": result.gauges.running,
        "engine_waiting_mean": result.gauges.waiting,
        "draft_length": None if gain is None else gain.draft_length,
        "draft_length_varies": None if gain is None else gain.varies,
        "engine_step_mean_s": None if gain is None else gain.step_s,
        "foreign_tokens": foreign,
        "disturbed": foreign is not None and foreign > _FOREIGN,
    }
