"""Figures of a replay that only a plot shows: distributions, open requests over time, and other sizes of the pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_gamma.simulation.replay.fleet_file import ReplicaPlan, default_fleet
from adaptive_gamma.simulation.replay.pricing import ReplayPolicy
from adaptive_gamma.simulation.replay.run import PolicyRun
from adaptive_gamma.simulation.replay.timeline import Timeline
from adaptive_gamma.simulation.replay.workload import Workload

__all__ = ["PERCENTILES", "distributions", "open_requests", "pool_sizes", "timeline_figures"]

PERCENTILES = (0, 1, 2, 5, *range(10, 90, 5), 90, 92, 94, 95, 96, 97, 98, 99, 99.5, 99.9, 100)
MOST_SIZES = 9
"""Other sizes of the pools that are tried."""


def distributions(run: PolicyRun, workload: Workload) -> dict[str, list[float] | None]:
    """``latency_s``, ``ttft_s`` and ``tpot_s`` at each of ``PERCENTILES``; the last is None where no request has two
    tokens."""
    arrival, finished = np.asarray(workload.arrival_s), np.asarray(run.log.finished_s)
    first, tokens = np.asarray(run.log.first_token_s), np.asarray(workload.output_tokens)
    several = tokens > 1
    tpot = (finished[several] - first[several]) / (tokens[several] - 1)
    return {
        "latency_s": _percentiles(finished - arrival),
        "ttft_s": _percentiles(first - arrival),
        "tpot_s": _percentiles(tpot) if len(tpot) else None,
    }


def open_requests(run: PolicyRun, workload: Workload, timeline: Timeline) -> list[float]:
    """Mean number of requests that had come and were not finished, in each bin of a timeline; exact."""
    edges = timeline.start_s + timeline.bin_s * np.arange(len(timeline.times_s) + 1, dtype=np.float64)
    waited = _passed(np.asarray(workload.arrival_s), edges) - _passed(np.asarray(run.log.finished_s), edges)
    means: list[float] = (np.diff(waited) / timeline.bin_s).tolist()
    return means


def timeline_figures(run: PolicyRun, workload: Workload, timeline: Timeline) -> dict[str, Any]:
    """Load and gamma over time, of the fleet and of each replica (at most 32 of them by themselves)."""
    gammas = {name: _rounded(timeline.mean_gamma([name])) for name in timeline.names[:32]}
    return {
        "time_s": _rounded(timeline.times_s),
        "open": _rounded(open_requests(run, workload, timeline)),
        "decoding": _rounded(timeline.decoding()),
        "busy": _rounded(timeline.busy_share()),
        "gamma": _rounded(timeline.mean_gamma()),
        "gamma_by_replica": gammas,
        "decoding_by_replica": {name: _rounded(timeline.decoding([name])) for name in timeline.names[:32]},
    }


def pool_sizes(plans: Sequence[ReplicaPlan], policy: ReplayPolicy) -> list[tuple[int, list[ReplicaPlan]]]:
    """Fleets of as many replicas, with other numbers of speculative ones among them, that of ``plans`` included.

    Those added speculate with the gamma that most of the speculative replicas given have, or with that of the default
    fleet where there is none. Of large fleets not every number is tried.
    """
    count, given = len(plans), sum(plan.speculative for plan in plans)
    settings = [plan.gamma for plan in plans if plan.speculative] or [default_fleet(policy)[0].gamma]
    gamma = max(settings, key=settings.count)
    sizes = sorted({given, *(round(i * count / (MOST_SIZES - 1)) for i in range(MOST_SIZES))})
    return [(size, list(plans) if size == given else _sized(plans, size, gamma)) for size in sizes]


def _sized(plans: Sequence[ReplicaPlan], size: int, gamma: Any) -> list[ReplicaPlan]:
    """As many replicas; those that need not change stay as they are."""
    keep = min(size, sum(plan.speculative for plan in plans))
    fleet: list[ReplicaPlan] = []
    left = size
    for plan in plans:
        if plan.speculative and keep:
            fleet.append(plan)
            keep, left = keep - 1, left - 1
        else:
            fleet.append(ReplicaPlan(plan.name, False, 0, plan.max_num_seqs))
    for i, plan in enumerate(fleet):
        if left and not plan.speculative:
            fleet[i] = ReplicaPlan(plan.name, True, gamma, plan.max_num_seqs)
            left -= 1
    return fleet


def _passed(moments: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds that have passed since each of ``moments`` at each edge, summed over those that lie before it."""
    ordered = np.sort(moments)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    before = np.searchsorted(ordered, edges, side="right")
    passed: NDArray[np.float64] = before * edges - sums[before]
    return passed


def _percentiles(values: NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.5g}") for value in np.percentile(values, PERCENTILES)]


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.5g}") for value in values]
