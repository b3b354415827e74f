"""Small worlds for tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from adaptive_gamma.simulation.replay import ClassedTrace, ReplicaPlan, Trace, Workload, World, merge
from tests.replay.standin import HandPolicy

CHECKOUT = Path(__file__).resolve().parents[2]


def azure_trace(name: str) -> Path:
    """A public trace beside the checkout, or a folder above where the checkout is a worktree; else the test skips."""
    file = f"AzureLLMInferenceTrace_{name}.csv"
    for folder in list(CHECKOUT.parents)[:2]:
        path = folder / "shared" / "data" / "traces" / file
        if path.exists():
            return path
    pytest.skip(f"the public Azure trace {file} is not here")


def trace_of(rows: Sequence[tuple[float, int, int]], source: str = "rows") -> Trace:
    return Trace(source, [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows])


def workload_of(
    policy: HandPolicy, rows: Sequence[tuple[float, int, int]], request_class: str | None = None
) -> Workload:
    return merge([ClassedTrace(trace_of(rows), request_class or policy.default_class)], policy.classes)


def plain_fleet(count: int, max_num_seqs: int = 256) -> list[ReplicaPlan]:
    return [ReplicaPlan(f"plain-{i}", False, 0, max_num_seqs) for i in range(count)]


def world_of(policy: HandPolicy, workload: Workload, plans: Sequence[ReplicaPlan], seed: int = 0) -> World:
    return World(workload, policy, plans, seed)


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
