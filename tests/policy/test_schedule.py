"""Few ranges at the least predicted loss."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.errors import ConfigurationError, ExportRefused
from adaptive_gamma.policy import load_policy, rebuild_policy
from adaptive_gamma.policy.dead_band import edge_on_load
from adaptive_gamma.policy.export import ScheduleOptions, Step, make_schedule
from adaptive_gamma.policy.export.search import fewest_ranges

from .inputs import small_inputs, small_policy

COSTS = st.integers(1, 3).flatmap(
    lambda gammas: st.integers(1, 6).flatmap(
        lambda batches: st.lists(
            st.lists(st.sampled_from([0.0, 0.1, 0.25, 1.0, 7.0, np.inf]), min_size=batches, max_size=batches),
            min_size=gammas,
            max_size=gammas,
        )
    )
)


def every_schedule(gammas: int, batches: int, most: int) -> list[tuple[int, ...]]:
    found = set()
    for ranges in range(1, most + 1):
        for cuts in combinations(range(1, batches), ranges - 1):
            bounds = [0, *cuts, batches]
            for values in product(range(gammas), repeat=ranges):
                rows: list[int] = []
                for value, first, last in zip(values, bounds, bounds[1:], strict=False):
                    rows += [value] * (last - first)
                found.add(tuple(rows))
    return list(found)


@given(COSTS, st.integers(1, 3), st.sets(st.integers(2, 6)), st.booleans())
def test_no_other_schedule_is_cheaper(
    costs: list[list[float]], most: int, barred: set[int], first_is_largest: bool
) -> None:
    cost = np.asarray(costs)
    found = fewest_ranges(cost, most, lambda batch: batch not in barred, first_is_largest)

    def legal(rows: tuple[int, ...]) -> bool:
        edges = [b + 1 for b in range(1, len(rows)) if rows[b] != rows[b - 1]]
        return not barred & set(edges) and (not first_is_largest or rows[0] == max(rows))

    def total(rows: tuple[int, ...]) -> float:
        return float(sum(cost[g, b] for b, g in enumerate(rows)))

    for n in range(1, most + 1):
        cheapest = min((total(r) for r in every_schedule(len(cost), cost.shape[1], n) if legal(r)), default=np.inf)
        if not np.isfinite(cheapest):
            assert found[n - 1] is None
            continue
        candidate = found[n - 1]
        assert candidate is not None
        rows = tuple(int(r) for r in candidate.rows)
        assert legal(rows)
        assert total(rows) == pytest.approx(cheapest)
        assert candidate.cost == pytest.approx(cheapest)


def test_as_many_ranges_as_it_takes_and_no_more() -> None:
    policy = load_policy("h200-llama3-70b-fp8")
    exact = make_schedule(policy, ScheduleOptions(max_steps=64, tolerance=0.0))
    assert exact.steps == exact.free_steps
    assert exact.merging.mean == 0.0
    assert [policy.best_gamma("unsure", b, exact.context) for b in (1, 50, 256)] == [
        exact.gamma_at(b) for b in (1, 50, 256)
    ]
    merged = make_schedule(policy, ScheduleOptions())
    assert len(merged.steps) < len(exact.steps)
    assert 0 < merged.merging.mean <= 0.005
    one = make_schedule(policy, ScheduleOptions(max_steps=1))
    assert one.steps == (Step(1, 256, one.static_gamma),)
    assert one.merging == one.static


def test_no_edge_on_the_median_load() -> None:
    policy = load_policy("h200-llama3-70b-fp8")
    free = make_schedule(policy, ScheduleOptions())
    edge = free.steps[1].first
    moved = make_schedule(policy, ScheduleOptions(median_load=edge))
    assert any(edge_on_load(step.first, edge) for step in free.steps[1:])
    assert not any(edge_on_load(step.first, edge) for step in moved.steps[1:])
    assert moved.merging.mean >= free.merging.mean


@pytest.mark.parametrize(
    ("first", "load", "on"),
    [(2, 1, True), (3, 1, False), (4, 4, True), (5, 4, True), (6, 4, False), (90, 100, False), (91, 100, True),
     (110, 100, True), (111, 100, False)],
)  # fmt: skip
def test_the_dead_band(first: int, load: float, on: bool) -> None:
    assert edge_on_load(first, load) is on


def test_zero_only_where_it_wins_by_the_margin() -> None:
    data = small_inputs()
    data["inputs"]["limits"].update(max_batch=200, capture_limit_tokens=None, zero_gamma_tax=0.0, max_gamma=2)
    data["inputs"]["classes"] = {"chat": {"reading": "unconditional", "two_parameter": {"first": 0.3, "plateau": 0.3}}}
    data["inputs"]["default_class"] = "chat"
    policy = rebuild_policy(data, "x")
    gain = 1 / policy.speedup("chat", 200, 1, 2000) - 1
    assert gain > 0.02
    eager = make_schedule(policy, ScheduleOptions(allow_zero=True, zero_margin=0.0))
    slow = make_schedule(policy, ScheduleOptions(allow_zero=True, zero_margin=0.5))
    assert eager.has_zero
    assert not slow.has_zero
    assert {"zero_gamma", "zero_gamma_untaxed"} <= {note.code for note in eager.notes}
    never = make_schedule(policy, ScheduleOptions())
    assert not never.has_zero
    assert "route_to_plain" in {note.code for note in never.notes}
    assert never.plain_wins_from == policy.plain_wins_from("chat", 2000)


def test_the_capture_limit_caps_the_replica() -> None:
    policy = load_policy("h100-llama3-8b-eagle3")
    made = make_schedule(policy, ScheduleOptions())
    assert (made.max_batch, made.capture_limit_tokens) == (256, 512)
    note = next(n for n in made.notes if n.code == "capture_limit")
    assert "capture 1024 tokens" in note.message
    wider = make_schedule(policy, ScheduleOptions(capture_limit_tokens=1024))
    assert wider.max_batch == 512
    free = make_schedule(policy, ScheduleOptions(no_capture_limit=True))
    assert free.capture_limit_tokens is None
    assert "capture_limit_unknown" in {n.code for n in free.notes}
    with_zero = make_schedule(policy, ScheduleOptions(allow_zero=True))
    assert with_zero.max_batch == 512
    assert with_zero.gamma_at(512) == 0
    beyond = make_schedule(policy, ScheduleOptions(allow_zero=True, max_batch=600))
    assert {"capture_limit", "beyond_table"} <= {n.code for n in beyond.notes}
    with pytest.raises(ExportRefused, match="leave no room for gamma 1"):
        make_schedule(policy, ScheduleOptions(capture_limit_tokens=1))


class TestMix:
    def test_default_is_the_default_class(self) -> None:
        assert make_schedule(small_policy(), ScheduleOptions()).mix == {"unsure": 1.0}

    def test_weights_are_shares_and_aliases_add_up(self) -> None:
        made = make_schedule(small_policy(), ScheduleOptions(mix={"code": 1, "math": 1, "prose": 2, "unsure": 0}))
        assert made.mix == {"structured": 0.5, "chat": 0.5}

    def test_a_mix_lies_between_its_classes(self) -> None:
        policy = small_policy()
        pure = {
            c: make_schedule(policy, ScheduleOptions(mix={c: 1}, max_steps=64, tolerance=0)) for c in policy.classes
        }
        mixed = make_schedule(policy, ScheduleOptions(mix={"structured": 1, "chat": 1}, max_steps=64, tolerance=0))
        for batch in range(1, mixed.max_batch + 1):
            low, high = sorted((pure["chat"].gamma_at(batch), pure["structured"].gamma_at(batch)))
            assert low <= mixed.gamma_at(batch) <= high

    def test_cells_tell_what_one_table_costs_each_class(self) -> None:
        policy = small_policy()
        made = make_schedule(policy, ScheduleOptions(mix={"structured": 1}))
        cells = {(c.request_class, c.context): c.loss.mean for c in made.cells}
        assert set(cells) == {(c, x) for c in policy.classes for x in policy.context_buckets}
        assert cells["structured", made.context] == made.merging.mean
        assert cells["chat", made.context] > made.merging.mean

    @pytest.mark.parametrize("mix", [{"haiku": 1.0}, {"chat": -1.0}, {"chat": 0.0}, {"chat": float("nan")}, {}])
    def test_a_wrong_mix(self, mix: dict[str, float]) -> None:
        with pytest.raises(ConfigurationError, match="class mix"):
            make_schedule(small_policy(), ScheduleOptions(mix=mix))


@pytest.mark.parametrize(
    "options",
    [
        {"max_steps": 0}, {"max_steps": 65}, {"tolerance": -0.1}, {"tolerance": 1.0}, {"zero_margin": float("nan")},
        {"median_load": 0.5}, {"median_load": float("nan")}, {"max_batch": 0}, {"max_gamma": 0},
    ],
)  # fmt: skip
def test_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        make_schedule(small_policy(), ScheduleOptions(**options))
