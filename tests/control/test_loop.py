"""The loop itself: what it does with a replica's gamma, what it learns, where requests go."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from adaptive_gamma.config.settings import ControlSettings, LearnSettings
from adaptive_gamma.policy import Policy, load_policy
from adaptive_gamma.roofline import AcceptanceCurve
from adaptive_gamma.routing import GammaRules, GammaSchedule
from adaptive_gamma.routing.gamma_loads import gamma_for
from adaptive_gamma.simulation.control import (
    CONTROL,
    ONE_GAMMA,
    ControlRules,
    LearningRules,
    contestants,
    control_session,
    fall_of_acceptance,
    hold,
    load_about_an_edge,
    most_in_a_minute,
    policy_with_an_edge,
    pools,
    queue_of_requests,
    start_gamma,
    swinging,
    vllm_schedule,
)
from adaptive_gamma.simulation.replay import ClassedTrace, ReplicaPlan, World, merge, policy_figures, synthetic_trace
from adaptive_gamma.simulation.replay.gamma_choice import ScheduledGamma
from adaptive_gamma.simulation.replay.run import run_session

ROOT = Path(__file__).resolve().parents[2]


@cache
def policy() -> Policy:
    return load_policy(ROOT / "policies" / "h200-llama3-70b-fp8.yaml")


def swing_world(seconds: float, scale: float = 1.0, truth: tuple[float, float] | None = None) -> World:
    traces = [
        ClassedTrace(swinging(synthetic_trace("conversation", 5 + i), 120.0, 0.8), name)
        for i, name in enumerate(("structured", "chat"))
    ]
    workload = merge(traces, policy().classes, scale=scale, duration_s=seconds)
    true = {}
    if truth is not None:
        survival = AcceptanceCurve.two_parameter(*truth).unconditional(64).tolist()
        true = dict.fromkeys(policy().classes, survival)
    return World(workload, policy(), [ReplicaPlan("spec", True, policy().max_gamma)], 3, true)


def test_its_rules_are_the_defaults_of_serve() -> None:
    control, learn, learning = ControlSettings(), LearnSettings(), LearningRules()
    assert ControlRules().gamma == GammaRules(control.dwell_s, control.min_gain, control.probe_every_s)
    assert (learning.half_life_s, learning.settle_s, learning.rebuild_s) == (
        learn.half_life_s,
        learn.settle_s,
        learn.rebuild_s,
    )


def test_every_contestant_serves_every_token_and_the_same_run_twice_is_the_same() -> None:
    world = swing_world(20.0)
    field = contestants(policy(), 4, 64)
    names = [each.name for each in field]
    assert len(set(names)) == len(names)
    assert {CONTROL, ONE_GAMMA, "vllm-schedule", "vllm-schedule-0", "sglang-adaptive", "oracle"} <= set(names)
    assert {f"fixed-{gamma}" for gamma in range(1, 9)} <= set(names)
    for contestant in field:
        session, _ = contestant.start(world)
        assert len(session.replicas) == 4
        run = run_session(session, contestant.name, contestant.meaning)
        assert sum(t.output_tokens for t in run.replicas.values()) == world.workload.generated_tokens
    again = []
    for _ in range(2):
        session, loop = field[0].start(world)
        run = run_session(session, "", "")
        assert loop is not None
        again.append((run.log.finished_s, loop.changes))
    assert again[0] == again[1]


def test_gammas_follow_the_load_and_dwell() -> None:
    world = swing_world(150.0, scale=0.7)
    session, loop = control_session(world, policy(), pools(6, 2, 0, 64), ControlRules(schedules=False))
    run_session(session, "", "")
    assert loop.changes
    assert all(change.reason == "gain" for change in loop.changes)
    assert min(gamma_for(change.gamma, 1) for change in loop.changes) <= 3
    for name in ("spec-0", "spec-1"):
        mine = [change for change in loop.changes if change.replica == name]
        assert most_in_a_minute([change.at for change in mine]) <= 1
        assert mine[0].before == 6
        assert all(a.gamma == b.before for a, b in itertools.pairwise(mine))


def test_schedules_are_set_and_drive_each_step_and_the_decision_prices_by_them() -> None:
    world = swing_world(150.0, scale=0.7)
    session, loop = control_session(world, policy(), pools(6, 2, 0, 64), ControlRules())
    run_session(session, "", "")
    assert loop.changes
    for index, name in enumerate(("spec-0", "spec-1")):
        mine = [change for change in loop.changes if change.replica == name]
        assert most_in_a_minute([change.at for change in mine]) <= 1
        assert mine[0].before == 6
        assert all(a.gamma == b.before for a, b in itertools.pairwise(mine))
        schedule = mine[-1].gamma
        assert isinstance(schedule, GammaSchedule)
        assert schedule.ranges[-1][1] == 64
        assert schedule.at(1) > schedule.at(64) >= 1
        assert session.states[index].gamma == schedule
        assert session.states[index].acceptance_ratio == pytest.approx(1.0, abs=0.2)
        choice = session.engines[index].choice
        assert [choice.at(batch, (), None) for batch in (1, 64)] == [schedule.at(1), schedule.at(64)]
        assert f"{schedule.at(64)} to 64] at" in str(mine[-1])


def test_a_gauge_of_acceptance_under_a_schedule_takes_an_engine_that_counts_by_length() -> None:
    world = swing_world(60.0, scale=0.7)
    table = GammaSchedule([(1, 8, 5), (9, 64, 3)])
    engines = [replace(each, gamma=table, choice=ScheduledGamma(table)) for each in pools(6, 2, 0, 64)]
    session, loop = control_session(world, policy(), engines, ControlRules())
    run_session(session, "", "")
    assert not loop.changes
    assert [state.acceptance_ratio for state in session.states] == [None, None]


@pytest.mark.parametrize("schedules", [False, True])
def test_another_drafter_than_the_files_is_found_out(schedules: bool) -> None:
    world = swing_world(90.0, truth=(0.5, 0.5))
    session, loop = control_session(world, policy(), pools(6, 4, 0, 64), ControlRules(schedules=schedules))
    run_session(session, "", "")
    assert loop.in_use.rebuilds >= 1
    for name in ("structured", "chat"):
        believed = loop.in_use.policy.curves[name]
        assert believed.conditional_at(1) == pytest.approx(0.5, abs=0.05)
        assert believed.expected_tokens(6) == pytest.approx(
            AcceptanceCurve.independent(0.5).expected_tokens(6), rel=0.05
        )
    assert loop.in_use.policy.curves["unsure"] == policy().curves["unsure"]
    assert loop.changes
    assert max(gamma_for(change.gamma, 16) for change in loop.changes) <= 3


def test_without_learning_the_file_stays_in_use() -> None:
    world = swing_world(60.0, truth=(0.5, 0.5))
    session, loop = control_session(world, policy(), pools(6, 4, 0, 64), ControlRules(learn=False))
    run_session(session, "", "")
    assert loop.in_use.policy is policy()
    assert loop.in_use.rebuilds == 0


@pytest.mark.parametrize("set_gamma", [False, True])
def test_a_fall_of_acceptance_is_learned_in_30_seconds_and_routing_follows(set_gamma: bool) -> None:
    fall = fall_of_acceptance(policy(), "structured", "chat", set_gamma=set_gamma, seed=4, seconds=150.0)
    assert fall.learned_at(-1.0) == pytest.approx(0.85, abs=0.05)
    assert fall.learned_at(30.0) == pytest.approx(0.45, abs=0.05)
    settled = fall.settled_after(0.05)
    assert settled is not None
    assert settled <= 30.0
    assert fall.share_before > 0.8
    assert fall.share_after < 0.5
    assert fall.other_after > fall.other_before
    assert bool(fall.changes) == set_gamma
    assert all(gamma_for(change.gamma, 8) < 6 for change in fall.changes)


@pytest.mark.parametrize("schedules", [False, True])
@pytest.mark.parametrize("margin", [0.05, 0.01, 0.0001])
def test_a_load_that_alternates_about_an_edge_changes_gamma_once_a_minute_at_most(
    margin: float, schedules: bool
) -> None:
    assert policy().best_gamma("chat", 31, 2048) != policy().best_gamma("chat", 33, 2048)
    rules = ControlRules(schedules=schedules, gamma=GammaRules(min_gain=margin))
    swing = load_about_an_edge(policy(), "chat", pools(6, 1, 0, 64), 31, 33, rules=rules, seed=5, seconds=150.0)
    assert swing.most_gamma_changes_a_minute <= 1
    assert len(swing.gammas) <= 2


@pytest.mark.parametrize(
    "rules", [ControlRules(set_gamma=False), ControlRules()], ids=["routing only", "schedules set"]
)
def test_a_load_that_alternates_about_an_edge_does_not_move_a_class_to_and_fro(rules: ControlRules) -> None:
    made = policy_with_an_edge(policy(), "chat", 6, 32)
    assert made.speedup("chat", 32, 6) > 0.999
    assert made.speedup("chat", 33, 6) < 1.0
    swing = load_about_an_edge(made, "chat", pools(6, 1, 1, 64), 62, 66, rules=rules, seed=5, seconds=150.0)
    assert swing.most_pool_switches_a_minute <= 1
    assert abs(swing.share_low - swing.share_high) < 0.1


def test_a_held_load_is_held() -> None:
    workload = queue_of_requests([("chat", 1.0)], policy().classes, 400, 1)
    world = World(workload, policy(), [ReplicaPlan("spec", True, 8)], 1)
    session, _ = control_session(world, policy(), pools(4, 2, 0, 64), ControlRules())
    run = hold(session, lambda now: 12, 30.0, 10.0)
    assert run.mean_load == pytest.approx(12.0, abs=0.05)
    expected = 12 * policy().expected_tokens("chat", 4) / policy().step_seconds(6, 4, 1200)
    assert 0.6 * expected < run.tokens_per_second < expected
    assert workload.arrival_s[: len(run.sent)] == [sent.at for sent in run.sent]
    with pytest.raises(ValueError, match="too few"):
        hold(control_session(world, policy(), pools(4, 2, 0, 64), ControlRules())[0], lambda now: 500, 30.0)


def test_a_swinging_trace_keeps_its_requests_and_swings() -> None:
    steady = synthetic_trace("conversation", 1, 4000)
    moved = swinging(steady, 200.0, 0.8)
    assert (moved.prompt_tokens, moved.output_tokens) == (steady.prompt_tokens, steady.output_tokens)
    assert moved.arrival_s == sorted(moved.arrival_s)
    assert moved.arrival_s[0] == pytest.approx(0.0, abs=1e-9)
    assert moved.span_s == pytest.approx(steady.span_s, rel=0.2)
    quiet = sum(t % 200.0 < 40.0 or t % 200.0 > 160.0 for t in moved.arrival_s if t < 600.0)
    busy = sum(60.0 < t % 200.0 < 140.0 for t in moved.arrival_s if t < 600.0)
    assert busy / quiet == pytest.approx(1.606 / 0.394, rel=0.15)
    with pytest.raises(ValueError, match="depth"):
        swinging(steady, 200.0, 1.0)
    with pytest.raises(ValueError, match="period_s"):
        swinging(steady, 0.0, 0.5)


def test_the_schedule_is_our_export_for_the_workload() -> None:
    world = swing_world(60.0)
    schedule = vllm_schedule(policy(), world, 64, allow_zero=False)
    assert schedule.at(1) >= schedule.at(64) >= 1
    assert schedule.ranges[-1][1] >= 64
    assert schedule.largest <= start_gamma(policy())


def test_the_loop_beats_what_ignores_the_load_where_the_start_gamma_is_wrong() -> None:
    world = swing_world(150.0, scale=0.8)
    by_name = {each.name: each for each in contestants(policy(), 3, 64)}
    latency = {}
    for name in (CONTROL, "fixed-6", "fixed-8", "plain", "oracle"):
        session, _ = by_name[name].start(world)
        latency[name] = policy_figures(run_session(session, name, ""), world.workload)["mean_latency_s"]
    assert latency[CONTROL] < latency["fixed-6"] < latency["fixed-8"]
    assert latency[CONTROL] < latency["plain"]
    assert latency[CONTROL] < 1.15 * latency["oracle"]
