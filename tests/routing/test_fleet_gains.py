"""What the fleet gains, worked out by hand on prices that are easy to add up."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.policy import Policy, load_policy
from adaptive_gamma.routing import GammaSchedule, GammaSetting, ReplicaState
from adaptive_gamma.routing.fleet_gains import fleet_gains

POLICY = load_policy("h200-llama3-70b-fp8")
CAPTURED = load_policy("h100-llama3-8b-eagle3")
NOW = 10.0


def replica(name: str, gamma: GammaSetting | None, batch: int | None, **more: object) -> ReplicaState:
    state = ReplicaState(name, speculative=gamma is not None, gamma=0 if gamma is None else gamma)
    if batch is not None:
        state.running, state.waiting, state.fresh_until = batch, 0, NOW + 1
    for key, value in more.items():
        setattr(state, key, value)
    return state


def plain_rate(batch: int, policy: Policy = POLICY) -> float:
    return batch / policy.step_seconds(batch, 0, None, False)


def rate(batch: int, gamma: int, tokens: float) -> float:
    return batch * tokens / POLICY.step_seconds(batch, gamma)


def test_two_replicas_by_hand() -> None:
    states = [replica("s", 4, 6), replica("p", None, 2)]
    gains = fleet_gains(states, {"s": {"structured": 4, "chat": 2}, "p": {"chat": 2}}, POLICY, now=NOW)
    assert gains is not None

    def mixed(gamma: int, structured: int, chat: int) -> float:
        expected = POLICY.expected_tokens
        total = structured + chat
        return (structured * expected("structured", gamma) + chat * expected("chat", gamma)) / total

    assert (gains.sequences, gains.replicas, gains.left_out) == (8, 2, 0)
    assert gains.in_force == pytest.approx(rate(6, 4, mixed(4, 4, 2)) + plain_rate(2))
    assert gains.plain == pytest.approx(2 * plain_rate(4))
    assert set(gains.fixed) == set(range(1, POLICY.max_gamma + 1))
    for gamma, each in gains.fixed.items():
        assert each == pytest.approx(2 * rate(4, gamma, mixed(gamma, 4, 4)))
    best = max(gains.fixed, key=lambda gamma: gains.fixed[gamma])
    assert gains.best_fixed == best
    assert gains.over_best_fixed == pytest.approx(gains.in_force / gains.fixed[best] - 1)
    assert gains.over_plain == pytest.approx(gains.in_force / gains.plain - 1)
    assert gains.plain_observed


def test_an_uneven_load_is_spread_in_whole_sequences() -> None:
    gains = fleet_gains([replica(f"s{i}", 3, 5 if i == 0 else 0) for i in range(3)], {}, POLICY, now=NOW)
    assert gains is not None
    assert gains.plain == pytest.approx(2 * plain_rate(2) + plain_rate(1))
    few = fleet_gains([replica(f"s{i}", 3, 2 if i == 0 else 0) for i in range(5)], {}, POLICY, now=NOW)
    assert few is not None
    assert few.plain == pytest.approx(2 * plain_rate(1))


def test_one_fixed_gamma_everywhere_and_even_load_gains_nothing_over_itself() -> None:
    gains = fleet_gains([replica("a", 3, 7), replica("b", 3, 7)], {}, POLICY, now=NOW)
    assert gains is not None
    assert gains.in_force == pytest.approx(gains.fixed[3])


def test_observed_acceptance_goes_into_every_gamma() -> None:
    states = [replica("a", 3, 4, acceptance_ratio=0.5), replica("b", 3, 4, acceptance_ratio=0.7)]
    gains = fleet_gains(states, {}, POLICY, now=NOW)
    assert gains is not None
    accepted = POLICY.expected_tokens(POLICY.default_class, 5) - 1
    assert gains.fixed[5] == pytest.approx(2 * rate(4, 5, 1 + 0.6 * accepted))


def test_a_drafter_that_makes_steps_slow_is_seen_to_lose() -> None:
    states = [replica("a", 5, 8, step_time_ratio=2.5, acceptance_ratio=0.6), replica("p", None, 8)]
    gains = fleet_gains(states, {}, POLICY, now=NOW)
    assert gains is not None
    assert gains.over_plain < 0
    # An error that all pools share cancels.
    shared = fleet_gains(
        [replica("a", 5, 8, step_time_ratio=2.0), replica("p", None, 8, step_time_ratio=2.0)], {}, POLICY, now=NOW
    )
    none = fleet_gains([replica("a", 5, 8), replica("p", None, 8)], {}, POLICY, now=NOW)
    assert shared is not None
    assert none is not None
    assert shared.over_plain == pytest.approx(none.over_plain)
    assert shared.over_best_fixed == pytest.approx(none.over_best_fixed)


def test_what_is_not_known_is_left_out_and_said() -> None:
    states = [
        replica("known", 3, 4), replica("stale", 3, 4, fresh_until=NOW - 1), replica("never", 3, None),
        replica("pool?", 3, 4, speculative=None), replica("gamma?", 3, 4), replica("down", 3, 4, healthy=False),
        replica("down and unread", 3, None, healthy=False),
    ]  # fmt: skip
    states[4].gamma = None
    gains = fleet_gains(states, {}, POLICY, now=NOW)
    assert gains is not None
    assert (gains.sequences, gains.replicas, gains.left_out) == (8, 2, 4)


def test_nothing_decoded_is_nothing_to_compare() -> None:
    assert fleet_gains([], {}, POLICY, now=NOW) is None
    assert fleet_gains([replica("a", 3, 0)], {}, POLICY, now=NOW) is None
    assert fleet_gains([replica("a", 3, None)], {}, POLICY, now=NOW) is None


def test_gammas_beyond_the_capture_limit_are_no_alternative() -> None:
    largest = CAPTURED.largest_gamma(128)
    assert largest is not None
    gains = fleet_gains([replica("a", 1, 128)], {}, CAPTURED, now=NOW)
    assert gains is not None
    assert set(gains.fixed) == set(range(1, largest + 1))
    none = fleet_gains([replica("a", 1, 600)], {}, CAPTURED, now=NOW)
    assert none is not None
    assert (none.fixed, none.best_fixed, none.over_best_fixed) == ({}, None, None)


def test_a_schedule_is_priced_at_its_batch() -> None:
    schedule = GammaSchedule([(1, 4, 5), (5, 64, 2)])
    for batch, gamma in ((4, 5), (5, 2)):
        scheduled = fleet_gains([replica("a", schedule, batch)], {}, POLICY, now=NOW)
        fixed = fleet_gains([replica("a", gamma, batch)], {}, POLICY, now=NOW)
        assert scheduled == fixed


COUNTS = st.dictionaries(st.sampled_from(["chat", "code", "x"]), st.integers(0, 50))


@given(st.lists(st.tuples(st.sampled_from([None, 0, 1, 4, 8]), st.integers(0, 400), COUNTS), min_size=1, max_size=8))
def test_all_figures_are_finite_and_positive(rows: list[tuple[int | None, int, dict[str, int]]]) -> None:
    states = [replica(str(i), gamma, batch) for i, (gamma, batch, _) in enumerate(rows)]
    gains = fleet_gains(states, {str(i): counts for i, (_, _, counts) in enumerate(rows)}, POLICY, now=NOW)
    if not sum(batch for _, batch, _ in rows):
        assert gains is None
        return
    assert gains is not None
    assert gains.sequences == sum(batch for _, batch, _ in rows)
    assert all(math.isfinite(each) and each > 0 for each in (gains.in_force, gains.plain, *gains.fixed.values()))
