"""Every check, in the order in which findings are told: what costs most first. Pure: no input, no output, no clock."""

from __future__ import annotations

from adaptive_gamma.doctor.checks.benches import BENCH_LOSING, BENCH_PROMPTS
from adaptive_gamma.doctor.checks.capture_limit import CAPTURE_LIMIT
from adaptive_gamma.doctor.checks.check import Check, Said
from adaptive_gamma.doctor.checks.configuration import DEAD_OPTIONS, EFFECTIVE, PIPELINE, SCHEDULED_TOKENS
from adaptive_gamma.doctor.checks.counters import COUNTED_AS_DRAFTED, DIED, READING, RESTARTS, STATISTICS
from adaptive_gamma.doctor.checks.gamma_length import GAMMA_LENGTH
from adaptive_gamma.doctor.checks.graphs import DRAFTER_EAGER, NO_GRAPHS, PARTIAL_GRAPHS, RUNTIME_MODES
from adaptive_gamma.doctor.checks.pace import LOSING, NEVER_DRAFTS, STEP_TIME
from adaptive_gamma.doctor.checks.side_by_side import BACKENDS, CONTEXT, KV_CACHE, SIDE_BY_SIDE_GRAPHS
from adaptive_gamma.doctor.checks.table import DATA_PARALLEL, TABLE

__all__ = ["CHECKS", "Check", "Said"]

CHECKS: tuple[Check, ...] = (
    DIED,
    NO_GRAPHS,
    PARTIAL_GRAPHS,
    SIDE_BY_SIDE_GRAPHS,
    STEP_TIME,
    LOSING,
    CAPTURE_LIMIT,
    RUNTIME_MODES,
    DRAFTER_EAGER,
    EFFECTIVE,
    TABLE,
    DATA_PARALLEL,
    DEAD_OPTIONS,
    GAMMA_LENGTH,
    NEVER_DRAFTS,
    PIPELINE,
    STATISTICS,
    COUNTED_AS_DRAFTED,
    BENCH_PROMPTS,
    BENCH_LOSING,
    KV_CACHE,
    CONTEXT,
    BACKENDS,
    RESTARTS,
    SCHEDULED_TOKENS,
    READING,
)
