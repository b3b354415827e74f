"""Building a policy, and the dry run of an hour of conversations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from adaptive_gamma.policy import build_policy, load_policy
from adaptive_gamma.routing import DecisionLimits
from adaptive_gamma.simulation.replay import (
    ClassedTrace,
    ScrapeRule,
    World,
    default_fleet,
    merge,
    read_trace,
    replay,
    routing_policies,
    synthetic_trace,
)

from .measure import Figure, per_call

__all__ = ["replay_figures"]

_ROOT = Path(__file__).resolve().parents[1]
_AZURE = _ROOT.parent / "shared" / "data" / "traces" / "AzureLLMInferenceTrace_conv.csv"
_REQUESTS = 19_366


def _build_figure() -> Figure:
    """3 classes x 3 contexts x 512 batches x 16 gammas."""
    inputs = load_policy(_ROOT / "policies" / "h100-llama3-8b-eagle3.yaml").inputs
    wide = inputs.model_copy(update={"limits": inputs.limits.model_copy(update={"max_gamma": 16, "max_batch": 512})})
    cells = len(wide.classes) * len(wide.limits.context_buckets) * 512 * 16
    seconds = per_call(lambda: build_policy(wide)).median_us / 1e6
    return Figure("policy build, 3 classes x 3 contexts x 512 x 16", seconds, "s", 1.0, note=f"{cells} cells")


def _dry_run_figure() -> Figure:
    policy = load_policy(_ROOT / "policies" / "h100-llama3-8b-eagle3.yaml")
    if _AZURE.exists():
        trace, note = read_trace(_AZURE), "the Azure conversation trace"
    else:
        trace, note = synthetic_trace("conversation", 0, _REQUESTS), "synthetic: the Azure trace is not here"
    workload = merge([ClassedTrace(trace, "chat")], policy.classes)
    start = time.process_time()
    world = World(workload, policy, default_fleet(policy), 0, {}, True, ScrapeRule(), DecisionLimits())
    replay(world, routing_policies(policy.max_gamma)["adaptive"])
    seconds = time.process_time() - start
    return Figure(f"dry run, adaptive, {len(workload)} requests", seconds, "s CPU", 60.0, note=note)


def replay_figures() -> Iterator[Figure]:
    yield _build_figure()
    yield _dry_run_figure()
