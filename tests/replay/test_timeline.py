"""The timeline of a run: exact sums, in as many bins as at the start, and no change to the run."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.policy import load_policy
from adaptive_gamma.simulation.replay import (
    ClassedTrace,
    ReplicaPlan,
    World,
    merge,
    replay,
    routing_policies,
    synthetic_trace,
)
from adaptive_gamma.simulation.replay.plots import (
    PERCENTILES,
    distributions,
    open_requests,
    pool_sizes,
    timeline_figures,
)
from adaptive_gamma.simulation.replay.timeline import Timeline

POLICY = load_policy("h200-llama3-70b-fp8")


def test_steps_are_shared_out_over_bins() -> None:
    timeline = Timeline(100.0, 10.0, bins=10)
    record = timeline.recorder("a")
    record(100.5, 103.5, 4, 3)
    record(103.5, 104.0, 2, 0)
    assert timeline.times_s == [0.5, 1.5, 2.5, 3.5]
    assert timeline.decoding() == pytest.approx([2.0, 4.0, 4.0, 3.0])
    assert timeline.busy_share() == pytest.approx([0.5, 1.0, 1.0, 1.0])
    assert timeline.mean_gamma() == pytest.approx([3.0, 3.0, 3.0, 2.0])


def test_where_nothing_is_decoded_gamma_is_unknown() -> None:
    timeline = Timeline(0.0, 4.0, bins=4)
    record = timeline.recorder("a")
    record(0.0, 1.0, 0, 5)
    record(3.0, 4.0, 1, 5)
    assert timeline.mean_gamma() == [None, None, None, 5.0]
    assert timeline.decoding() == [0.0, 0.0, 0.0, 1.0]


def test_a_run_beyond_the_guess_doubles_the_bins() -> None:
    timeline = Timeline(0.0, 4.0, bins=4)
    record, other = timeline.recorder("a"), timeline.recorder("b")
    record(0.0, 4.0, 1, 2)
    other(0.0, 16.0, 3, 4)
    assert timeline.bin_s == 4.0
    assert timeline.decoding(["a"]) == [1.0, 0.0, 0.0, 0.0]
    assert timeline.decoding(["b"]) == [3.0, 3.0, 3.0, 3.0]
    assert timeline.mean_gamma() == [3.5, 4.0, 4.0, 4.0]


def test_odd_bins_are_refused() -> None:
    with pytest.raises(ValueError, match="even"):
        Timeline(0.0, 1.0, bins=3)


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(1e-3, 40), st.integers(0, 9), st.integers(0, 8)), max_size=30))
def test_nothing_is_lost(steps: list[tuple[float, float, int, int]]) -> None:
    timeline = Timeline(0.0, 10.0, bins=8)
    record = timeline.recorder("a")
    at = 0.0
    for gap, length, batch, gamma in steps:
        record(at + gap, at + gap + length, batch, gamma)
        at += gap + length
    total = math.fsum(length * batch for _, length, batch, _ in steps)
    assert math.fsum(timeline.decoding()) * timeline.bin_s == pytest.approx(total, rel=1e-6, abs=1e-6)
    assert len(timeline.times_s) <= 8


def world(plans: list[ReplicaPlan]) -> World:
    trace = synthetic_trace("conversation", 3)
    workload = merge([ClassedTrace(trace, "chat")], POLICY.classes, scale=0.5, limit=400, duration_s=None)
    return World(workload, POLICY, plans)


PLANS = [ReplicaPlan("s", True, 5), ReplicaPlan("p", False, 0)]


def test_recording_changes_nothing_and_agrees_with_the_totals() -> None:
    scene = world(PLANS)
    for name in ("adaptive", "oracle"):
        routing = routing_policies(POLICY.max_gamma)[name]
        arrival = scene.workload.arrival_s
        timeline = Timeline(arrival[0], arrival[-1] - arrival[0], bins=16)
        recorded, bare = replay(scene, routing, timeline=timeline), replay(scene, routing)
        assert recorded.log.finished_s == bare.log.finished_s
        for replica, totals in recorded.replicas.items():
            seconds = math.fsum(timeline.decoding([replica])) * timeline.bin_s
            assert seconds == pytest.approx(totals.sequence_s, rel=1e-6)
        figures = timeline_figures(recorded, scene.workload, timeline)
        assert {len(figures[key]) for key in ("time_s", "open", "decoding", "busy", "gamma")} == {len(timeline.times_s)}
        waited = np.asarray(recorded.log.finished_s) - np.asarray(arrival)
        opened = math.fsum(open_requests(recorded, scene.workload, timeline)) * timeline.bin_s
        assert opened == pytest.approx(float(waited.sum()), rel=1e-6)


def test_distributions_rise_and_hold_the_extremes() -> None:
    scene = world(PLANS)
    run = replay(scene, routing_policies(POLICY.max_gamma)["least-loaded"])
    found = distributions(run, scene.workload)
    latency = np.asarray(run.log.finished_s) - np.asarray(scene.workload.arrival_s)
    for values in found.values():
        assert values is not None
        assert len(values) == len(PERCENTILES)
        assert values == sorted(values)
    assert found["latency_s"] is not None
    assert found["latency_s"][0] == pytest.approx(latency.min(), rel=1e-4)
    assert found["latency_s"][-1] == pytest.approx(latency.max(), rel=1e-4)


def test_other_sizes_of_the_pools() -> None:
    sizes = pool_sizes(
        [
            ReplicaPlan("a", True, 5, 64),
            ReplicaPlan("b", False, 0),
            ReplicaPlan("c", True, 3),
            ReplicaPlan("d", True, 5),
        ],
        POLICY,
    )
    assert [size for size, _ in sizes] == [0, 1, 2, 3, 4]
    for size, plans in sizes:
        assert sum(plan.speculative for plan in plans) == size
        assert [plan.name for plan in plans] == ["a", "b", "c", "d"]
        assert plans[0].max_num_seqs == 64
        assert all(plan.gamma == 0 for plan in plans if not plan.speculative)
    assert [plan.gamma for plan in sizes[4][1]] == [5, 5, 3, 5]
    assert [plan.gamma for plan in sizes[3][1]] == [5, 0, 3, 5], "as given"
    plain = pool_sizes([ReplicaPlan("p", False, 0)], POLICY)
    assert [size for size, _ in plain] == [0, 1]
    assert plain[1][1][0].gamma not in (0, None)
    assert len(pool_sizes([ReplicaPlan(str(i), i % 2 == 0, 3 if i % 2 == 0 else 0) for i in range(100)], POLICY)) <= 10
