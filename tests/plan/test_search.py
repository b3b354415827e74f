"""The fleet that ``plan`` proposes, against every fleet there is, where there are few."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.policy import Policy, load_policy, rebuild_policy, shipped_policies
from adaptive_gamma.simulation.plan import (
    FleetTrials,
    Plan,
    ServiceLimits,
    Trial,
    search,
    start_ups,
    traffic_of,
    verdicts,
)
from adaptive_gamma.simulation.plan.search import ALIKE, _neighbours, _scaled, _shares
from adaptive_gamma.simulation.plan.words import fleet_words
from adaptive_gamma.simulation.replay import ClassedTrace, Workload, World, merge, synthetic_trace

SHIPPED = "h200-llama3-70b-fp8"


@cache
def shipped() -> Policy:
    return load_policy(SHIPPED)


@cache
def refused() -> Policy:
    """The same, of a drafter that is hardly ever right."""
    data: dict[str, Any] = yaml.safe_load(shipped_policies()[SHIPPED].read_text())
    for inputs in data["inputs"]["classes"].values():
        inputs["two_parameter"] = {"first": 0.06, "plateau": 0.05}
    return rebuild_policy(data, "refused")


def requests(count: int, scale: float, policy: Policy) -> Workload:
    shapes = {"code": "structured", "conversation": "chat"}
    traces = [ClassedTrace(synthetic_trace(shape, 3), name) for shape, name in shapes.items()]
    return merge(traces, policy.classes, scale=scale, limit=count)


def trials_of(policy: Policy, scale: float, limits: ServiceLimits, count: int = 250, seqs: int = 64) -> FleetTrials:
    workload = requests(count, scale, policy)
    ways = start_ups(policy, traffic_of(workload), seqs)
    every = [plan for way in ways for plan in way.replicas(1)]
    return FleetTrials(World(workload, policy, every, 0), ways, limits)


def every_fleet(trials: FleetTrials, replicas: int) -> list[Trial]:
    ways = range(len(trials.start_ups))
    chosen = itertools.combinations_with_replacement(ways, replicas)
    return [trials.trial(tuple(each.count(way) for way in ways)) for each in chosen]


@pytest.mark.parametrize("scale", [0.3, 3.0, 12.0])
def test_where_fleets_are_few_none_is_better_than_the_one_proposed(scale: float) -> None:
    trials = trials_of(shipped(), scale, ServiceLimits())
    plan = search(trials, 2)
    best = min(trial.latency_s for trial in every_fleet(trials, 2))
    assert plan.tried[0].latency_s == best
    assert plan.chosen.latency_s <= best * (1 + ALIKE)


@pytest.mark.parametrize("scale", [1.0, 4.0, 16.0])
def test_a_search_that_does_not_try_all_comes_near(scale: float) -> None:
    trials = trials_of(shipped(), scale, ServiceLimits())
    plan = search(trials, 3, most=30)
    searched = len(trials.made)
    every = every_fleet(trials, 3)
    assert searched < len(every) / 2
    best = min(trial.latency_s for trial in every)
    print(f"scale {scale}: {fleet_words(plan.chosen.parts)}, {plan.chosen.latency_s / best - 1:.3%} over the best")
    assert plan.chosen.latency_s <= best * 1.03


def test_a_drafter_that_is_never_right_is_left_off() -> None:
    plan = search(trials_of(refused(), 0.2, ServiceLimits()), 3)
    assert plan.chosen.parts == {"plain": 3}
    assert plan.plain_instead is None
    said = verdicts(plan, ServiceLimits())
    assert said[0].startswith("Speculation should be off")
    assert not any("earn their place" in text or "lost capacity" in text for text in said)


def test_plain_replicas_are_called_lost_where_speculation_always_wins() -> None:
    plan = search(trials_of(shipped(), 0.3, ServiceLimits()), 3)
    assert plan.chosen.plain == 0
    assert plan.plain_instead is not None
    assert plan.plain_instead.plain == 1
    assert plan.plain_instead.latency_s > plan.chosen.latency_s
    assert any("lost capacity" in text and "more" in text for text in verdicts(plan, ServiceLimits()))


def test_limits_are_held_against_the_percentile() -> None:
    loose = search(trials_of(shipped(), 3.0, ServiceLimits(1.0, 60.0)), 2)
    assert loose.chosen.within
    assert loose.chosen.within_share == 1.0
    assert loose.fewest is not None
    assert loose.fewest.replicas == 1
    limits = ServiceLimits(1e-6, None)
    tight = search(trials_of(shipped(), 3.0, limits), 2)
    assert not tight.chosen.within
    assert tight.fewest is None
    assert verdicts(tight, limits)[0].startswith("No fleet of 2 tried keeps within the limits at p95")


def test_a_limit_between_two_fleets_decides() -> None:
    free = search(trials_of(shipped(), 12.0, ServiceLimits()), 2)
    by_tpot = sorted(free.tried, key=lambda trial: trial.tpot_s or 0.0)
    least, most = by_tpot[0].tpot_s, by_tpot[-1].tpot_s
    assert least is not None
    assert most is not None
    assert least < most
    bound = search(trials_of(shipped(), 12.0, ServiceLimits((least + most) / 2)), 2)
    assert bound.chosen.within
    assert bound.chosen.tpot_s is not None
    assert bound.chosen.tpot_s <= (least + most) / 2


def test_one_replica_has_no_mixture() -> None:
    trials = trials_of(shipped(), 1.0, ServiceLimits())
    plan = search(trials, 1)
    assert all(len(trial.parts) == 1 for trial in plan.tried)
    assert sum(plan.chosen.shape) == 1


def test_the_budget_of_trials_is_kept() -> None:
    trials = trials_of(shipped(), 3.0, ServiceLimits(), count=60)
    search(trials, 9, most=20)
    ways = len(trials.start_ups)
    assert len(trials.made) <= max(20, ways + 2 * len(_shares(9))) + 1


def test_another_seed_says_how_much_is_luck() -> None:
    trials = trials_of(shipped(), 3.0, ServiceLimits())
    other = FleetTrials(World(trials.world.workload, shipped(), trials.world.plans, 1), trials.start_ups, trials.limits)
    plan: Plan = search(trials, 2, other.trial)
    assert plan.luck is not None
    assert 0 < plan.luck < 0.2
    assert any("other luck" in text for text in verdicts(plan, ServiceLimits()))


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any), st.data())
def test_a_scaled_fleet_has_as_many_replicas_as_asked(shape: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, sum(shape)))
    scaled = _scaled(tuple(shape), count)
    assert sum(scaled) == count
    assert all(0 <= part <= whole for part, whole in zip(scaled, shape, strict=True))


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=6).filter(any), st.integers(1, 9))
def test_neighbours_have_as_many_replicas(shape: list[int], step: int) -> None:
    for other in _neighbours(tuple(shape), range(len(shape)), step):
        assert sum(other) == sum(shape)
        assert min(other) >= 0
        assert sum(abs(a - b) for a, b in zip(other, shape, strict=True)) == 2 * step


@given(st.integers(1, 300))
def test_mixtures_keep_one_of_each(replicas: int) -> None:
    assert all(0 < plain < replicas for plain in _shares(replicas))
    assert not replicas > 1 or 1 in _shares(replicas)
