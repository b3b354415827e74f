"""Predicted against observed step time: what is right stays unflagged, what is wrong is named and corrected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.config.settings import CostCheckSettings, ReplicaSettings
from adaptive_gamma.engines import EngineReading, LatencySum
from adaptive_gamma.fleet.cost_causes import StepEvidence, likely_causes
from adaptive_gamma.fleet.cost_check import CostCheck
from adaptive_gamma.policy import Policy, load_policy
from adaptive_gamma.routing import GammaSchedule
from tests.fleet.scene import Clock, Prior, a_fleet, page
from tests.fleet.timed_engine import scrapes
from tests.support.scripted_engine import ScriptedEngine

POLICY = load_policy("h200-llama3-70b-fp8")
SCHEDULE = GammaSchedule([(1, 8, 5), (9, 300, 2)])


def check(**settings: float) -> CostCheck:
    return CostCheck(CostCheckSettings(**settings), 30.0)


def watch(
    cost: CostCheck,
    seconds: int,
    *,
    gamma: int | GammaSchedule | None = 4,
    policy: Policy = POLICY,
    each: Callable[[float], None] = lambda at: None,
    **engine: Any,
) -> None:
    for at, reading in scrapes(policy, seconds, gamma=gamma, **engine):
        cost.look(reading, at, policy, speculative=gamma is not None, gamma=gamma, class_shares={"chat": 1.0})
        each(at)


@pytest.mark.parametrize("gamma", [None, 0, 4, SCHEDULE], ids=["plain", "off", "gamma 4", "schedule"])
@pytest.mark.parametrize("batch", [1, 12])
def test_an_engine_as_the_policy_says_is_not_flagged(gamma: int | GammaSchedule | None, batch: int) -> None:
    cost = check()
    watch(cost, 40, gamma=gamma, concurrency=lambda now: batch)
    found = cost.finding
    assert found is not None
    print(
        f"batch {batch}, {gamma}: step {found.step_s * 1e3:.2f} ms, predicted {found.predicted_step_s * 1e3:.2f} ms, "
        f"ratio {found.step_time_ratio:.3f}, tokens per step {found.tokens_per_step:.2f}, noise {found.noise:.4f}"
    )
    assert found.step_time_ratio == pytest.approx(1.0, abs=0.06)
    assert not cost.flagged
    assert cost.correction is None
    if gamma in (None, 0):
        assert found.tokens_per_step == pytest.approx(1.0, abs=0.01)
        assert found.predicted_tokens_per_step == 1.0


def test_acceptance_shows_in_the_tokens_of_a_step() -> None:
    cost = check()
    watch(cost, 60, concurrency=lambda now: 4, rates=(0.9, 0.9, 0.9, 0.9))
    found = cost.finding
    assert found is not None
    assert found.tokens_per_step == pytest.approx(4.1, abs=0.1)
    assert found.tokens_ratio == pytest.approx(4.1 / POLICY.expected_tokens("chat", 4), abs=0.05)
    assert found.step_time_ratio == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize(("batch", "gamma"), [(1, 4), (12, 4), (12, 0), (12, None)])
def test_the_gain_over_plain_is_that_of_the_policy_where_all_is_as_it_says(batch: int, gamma: int | None) -> None:
    cost = check()
    watch(cost, 60, gamma=gamma, concurrency=lambda now: batch)
    found = cost.finding
    assert found is not None
    assert found.tokens_per_step is not None
    assert found.batch == pytest.approx(batch, rel=0.05)
    plain, steps = (
        POLICY.step_seconds(batch, 0, None, False),
        POLICY.step_seconds(batch, gamma or 0, None, gamma is not None),
    )
    if gamma is None:
        assert found.gain_over_plain(POLICY) is None, "an engine without a drafter has nothing to gain it by"
        return
    assert found.gain_over_plain(POLICY) == pytest.approx(found.tokens_per_step * plain / steps - 1.0, abs=0.12)
    if gamma == 0:
        gain = found.gain_over_plain(POLICY)
        assert gain is not None
        assert gain < 0, "the drafter costs and gives nothing"
    assert replace(found, tokens_per_step=None).gain_over_plain(POLICY) is None


@pytest.mark.parametrize(("factor", "flagged"), [(1.15, False), (1.4, True), (0.6, True), (5.0, True)])
def test_an_error_that_stays_is_flagged_and_corrected_within_bounds(factor: float, flagged: bool) -> None:
    cost, first = check(), []
    watch(
        cost,
        90,
        concurrency=lambda now: 3,
        factor=lambda now: factor,
        each=lambda at: first.append(at) if cost.flagged else None,
    )
    found = cost.finding
    assert found is not None
    assert found.step_time_ratio == pytest.approx(factor, rel=0.06)
    assert cost.flagged is flagged
    print(f"steps {factor} times as long: ratio {found.step_time_ratio:.3f}, flagged from {first[:1]} s, "
          f"correction {cost.correction}, {cost.causes}")  # fmt: skip
    if flagged:
        assert first[0] >= 30
        assert cost.correction == pytest.approx(min(max(factor, 0.5), 2.0), rel=0.06)
        assert cost.causes
    else:
        assert cost.correction is None


def test_an_error_that_goes_is_forgotten() -> None:
    cost, seen = check(), []
    watch(
        cost,
        260,
        concurrency=lambda now: 3,
        factor=lambda now: 1.6 if 60 <= now < 130 else 1.0,
        each=lambda at: seen.append((at, cost.flagged)),
    )
    flagged = [at for at, flag in seen if flag]
    print(f"1.6 times as long from 60 s to 130 s: flagged from {flagged[0]} s to {flagged[-1]} s")
    assert 90 <= flagged[0] <= 130
    assert 160 <= flagged[-1] <= 215
    assert cost.correction is None
    assert cost.causes == ()


def test_a_short_disturbance_is_no_error() -> None:
    cost, ever = check(), []
    watch(
        cost,
        120,
        concurrency=lambda now: 3,
        factor=lambda now: 3.0 if 60 <= now < 65 else 1.0,
        each=lambda at: ever.append(cost.flagged),
    )
    assert not any(ever)


def test_loads_and_gammas_that_change_leave_no_trace() -> None:
    cost = check()

    def load(now: float) -> int:
        return (2, 20, 4, 12)[int(now // 15) % 4]

    watch(cost, 120, gamma=SCHEDULE, concurrency=load)
    found = cost.finding
    assert found is not None
    print(f"load 2, 20, 4, 12 in turn over a schedule: ratio {found.step_time_ratio:.3f}")
    assert found.step_time_ratio == pytest.approx(1.0, abs=0.08)


def test_prompts_of_others_are_named_where_they_explain_the_time() -> None:
    cost = check()
    watch(cost, 90, concurrency=lambda now: 24, prompt_tokens=3000, answer_tokens=40)
    found = cost.finding
    assert found is not None
    print(f"long prompts: ratio {found.step_time_ratio:.2f}: {cost.words}")
    assert cost.flagged
    assert cost.causes[0].startswith("prefill heavy: some ")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch": 120.0, "largest_captured": 3}, "capture limit passed: 120 sequences with gamma 4 are 600 tokens a"),
        ({"prefill_ratio": 0.6, "prompt_tokens_per_step": 900.0}, "prefill heavy: some 900 prompt tokens share a step"),
        ({"kv_usage": 0.99, "waiting": 7}, "KV cache full (99%) with 7 waiting: sequences may be preempted"),
        ({"batch": 2.0, "step_time_ratio": 2.4}, "graphs may be off (enforce_eager, a cudagraph mode of NONE or PIECE"),
        ({}, "the policy may be of faster hardware, a smaller model or shorter contexts"),
        ({"step_time_ratio": 0.6}, "the policy may be of slower hardware, a larger model or longer contexts"),
    ],
)
def test_causes(change: dict[str, Any], said: str) -> None:
    seen = StepEvidence(32.0, 4, 12, 0.01, 10.0, 0.3, 0, step_time_ratio=1.6)
    causes = likely_causes(replace(seen, **change), 0.25)
    assert len(causes) == 1
    assert causes[0].startswith(said)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(-1, 5),
            st.none() | st.integers(0, 50),
            st.none() | st.floats(0, 1e6),
            st.none() | st.floats(0, 1e6),
            st.none() | st.tuples(st.floats(0, 1e4), st.floats(0, 1e6), st.booleans()),
            st.sampled_from([None, 0, 3, SCHEDULE]),
            st.sampled_from([None, True, False]),
            st.floats(0, 3) | st.none(),
        ),
        max_size=40,
    )
)  # fmt: skip
def test_whatever_the_pages_say_corrections_are_bounded(steps: list[tuple[Any, ...]]) -> None:
    cost, at = check(flag_after_s=0.001), 0.0
    for passed, running, tokens, prompts, latency, gamma, speculative, ratio in steps:
        at += passed
        reading = EngineReading(
            running=running,
            generation_tokens=tokens,
            prompt_tokens=prompts,
            inter_token_latency=None if latency is None else LatencySum(*latency),
        )
        cost.look(reading, at, POLICY, speculative=speculative, gamma=gamma, class_shares={}, acceptance_ratio=ratio)
        assert cost.correction is None or 0.5 <= cost.correction <= 2.0
        assert bool(cost.causes) == cost.flagged
        cost.as_dict()


def test_an_engine_that_counts_at_the_end_of_requests() -> None:
    """Seconds and steps of whole requests arrive in bursts; the batch is the gauge's."""
    cost, seconds, steps, tokens = check(), 0.0, 0.0, 0.0
    for at in range(240):
        if at % 10 == 9:  # eight requests of 10 s end together
            step = 1.3 * POLICY.step_seconds(8, 4)
            seconds, steps, tokens = seconds + 80.0, steps + 80.0 / step, tokens + 80.0 / step * 2.5
        reading = EngineReading(
            running=8, generation_tokens=tokens, inter_token_latency=LatencySum(seconds, steps, at_end=True)
        )
        cost.look(reading, float(at), POLICY, speculative=True, gamma=4, class_shares={"chat": 1.0})
    found = cost.finding
    assert found is not None
    assert found.step_time_ratio == pytest.approx(1.3, abs=0.01)
    assert found.tokens_per_step == pytest.approx(2.5)
    assert cost.flagged


def test_noise_is_the_error_of_the_mean() -> None:
    quiet, loud = check(), check()
    watch(quiet, 90, concurrency=lambda now: 3)
    watch(loud, 90, concurrency=lambda now: 3, factor=lambda now: 1.2 if int(now) % 2 else 0.8)
    assert quiet.finding is not None
    assert loud.finding is not None
    print(f"noise of tokens per second: {quiet.finding.noise:.4f} as it is, {loud.finding.noise:.4f} with steps +-20 %")
    assert quiet.finding.noise is not None
    assert loud.finding.noise is not None
    assert quiet.finding.noise < 0.01
    assert 0.01 < loud.finding.noise < 0.04


async def test_the_fleet_checks_flags_and_corrects() -> None:
    """Through scrapes of a page: the status, the notes and what the decision reads."""
    clock = Clock()
    async with ScriptedEngine() as engine:
        fleet = a_fleet(ReplicaSettings(name="r", url=engine.url), clock=clock, policy=Prior(),
                        cost_check=CostCheckSettings(flag_after_s=5))  # fmt: skip
        try:
            state, seconds, steps = fleet.states[0], 0.0, 0.0
            for _ in range(40):
                text = page(running=4, drafts=steps + 1, accepted=(0.0, 0.0), generated=steps * 1.75)
                labels = '{engine="0",model_name="m"}'
                text += f"vllm:inter_token_latency_seconds_sum{labels} {seconds}\n"
                text += f"vllm:inter_token_latency_seconds_count{labels} {steps}\n"
                engine.page("/metrics", text)
                await fleet.scrape_once()
                clock.now += 1.0
                seconds, steps = seconds + 4.0, steps + 4.0 / (1.5 * Prior().step_seconds(4, 2))
            row = fleet.status()[0]
            print(row["cost"], row["notes"])
            assert row["cost"]["flagged"] is True
            assert row["cost"]["step_time_error_ratio"] == pytest.approx(0.5, abs=0.02)
            assert state.step_time_ratio == pytest.approx(1.5, abs=0.02)
            assert row["cost"]["correction"] == pytest.approx(state.step_time_ratio, abs=1e-3)
            assert any(note.startswith("steps take 1.50 times the predicted time; likely: ") for note in row["notes"])
            engine.page("/metrics", page(running=0))
            await fleet.scrape_once()
            assert fleet.status()[0]["cost"] is None, "a restart forgets"
            assert state.step_time_ratio is None
        finally:
            await fleet.stop()
