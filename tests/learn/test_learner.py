"""What holds of learned acceptance whatever is counted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.roofline import AcceptanceCurve
from adaptive_gamma.routing.learn import AcceptanceLearner, LearnedCurve

PRIOR = {"code": AcceptanceCurve.two_parameter(0.84, 0.83), "chat": AcceptanceCurve.two_parameter(0.73, 0.69)}

rates = st.floats(0.0, 1.0)
curves = st.builds(AcceptanceCurve, st.lists(rates, max_size=6).map(tuple), rates)
histograms = st.lists(st.integers(0, 400), min_size=2, max_size=9)
means = st.tuples(st.integers(1, 8), st.integers(1, 500), st.floats(0.0, 1.0))
counters = st.tuples(st.integers(1, 500), st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8), st.floats(0.0, 1.0))


def feed_histogram(learner: AcceptanceLearner, histogram: list[int], at: float) -> None:
    learner.observe_histogram("code", histogram, at)


def feed_mean(learner: AcceptanceLearner, mean: tuple[int, int, float], at: float) -> None:
    gamma, drafts, share = mean
    learner.observe_mean("code", drafts, share * gamma * drafts, gamma, at)


def feed_counters(learner: AcceptanceLearner, look: tuple[int, list[float], float], at: float) -> None:
    drafts, conditional, share = look
    accepted = [drafts * survival for survival in itertools.accumulate(conditional, lambda a, b: a * b)]
    learner.observe_counters({"code": share, "chat": 1.0 - share}, drafts, accepted, at)


def feed_many(
    learner: AcceptanceLearner, name: str, trials: Sequence[tuple[float, float]], at: float, requests: int = 100
) -> None:
    """These trials, as alike requests."""
    for _ in range(requests):
        learner.observe_trials(name, [(accepted / requests, tried / requests) for accepted, tried in trials], at)


def check_whole(learned: LearnedCurve) -> None:
    """Rates in 0..1, survival that never rises, and everything of one length."""
    positions = len(learned.trials)
    survival = [float(value) for value in learned.curve.unconditional(12)]
    assert all(0.0 <= value <= 1.0 for value in survival)
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(survival))
    assert len(learned.error) == len(learned.interval) == positions
    assert all(trials >= 0 for trials in learned.trials)
    assert all(0 <= error <= 0.5 for error in learned.error)
    for position, (low, high) in enumerate(learned.interval, 1):
        assert 0 <= low <= learned.prior.conditional_at(position) <= high <= 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(histograms, max_size=5), st.lists(means, max_size=5), st.lists(counters, max_size=5),
    curves, curves, st.floats(0.5, 500.0),
)  # fmt: skip
def test_rates_are_rates_whatever_was_counted(
    by_position: list[list[int]],
    totals: list[tuple[int, int, float]],
    looks: list[tuple[int, list[float], float]],
    code: AcceptanceCurve,
    chat: AcceptanceCurve,
    weight: float,
) -> None:
    learner = AcceptanceLearner({"code": code, "chat": chat}, pseudo_drafts=weight)
    at = 0.0
    for histogram in by_position:
        feed_histogram(learner, histogram, at := at + 0.7)
    for mean in totals:
        feed_mean(learner, mean, at := at + 0.7)
    for look in looks:
        feed_counters(learner, look, at := at + 0.7)
    for learned in learner.curves(at + 1.0).values():
        check_whole(learned)
    again = AcceptanceLearner({"code": code, "chat": chat}, pseudo_drafts=weight)
    again.restore(learner.snapshot())
    for name, learned in again.curves(0.0).items():
        expected = learner.curve(name, at + 1.0)
        assert learned.curve.expected_tokens(8) == pytest.approx(expected.curve.expected_tokens(8), rel=1e-6, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(curves, st.floats(0.5, 500.0))
def test_the_prior_alone_gives_the_prior(curve: AcceptanceCurve, weight: float) -> None:
    learned = AcceptanceLearner({"code": curve}, pseudo_drafts=weight).curve("code", 5.0)
    assert learned.curve == curve == learned.prior
    assert (learned.trials, learned.inferred, learned.drifted) == ((), False, False)


@settings(max_examples=50, deadline=None)
@given(
    st.floats(0.05, 0.95), st.floats(0.05, 0.95), st.integers(1, 8), st.sampled_from(["positions", "mean", "counters"])
)
def test_counts_as_the_prior_expects_leave_the_prior(first: float, plateau: float, gamma: int, kind: str) -> None:
    prior = AcceptanceCurve.two_parameter(first, plateau)
    learner = AcceptanceLearner({"code": prior, "chat": prior})
    survival = [float(value) for value in prior.unconditional(gamma)]
    if kind == "positions":
        trials = list(zip([1000 * u for u in survival], [1000.0, *(1000 * u for u in survival)], strict=False))
        learner.observe_trials("code", trials, 0.0)
    elif kind == "mean":
        learner.observe_mean("code", 1000, 1000 * sum(survival), gamma, 0.0)
    else:
        learner.observe_counters({"code": 3, "chat": 1}, 1000, [1000 * u for u in survival], 0.0)
    learned = learner.curve("code", 1.0)
    assert learned.curve.expected_tokens(8) == pytest.approx(prior.expected_tokens(8), rel=1e-3)
    assert not learned.drifted


@settings(max_examples=50, deadline=None)
@given(
    st.data(), st.lists(histograms, min_size=1, max_size=5), st.lists(means, max_size=4), st.lists(counters, max_size=4)
)
def test_counts_of_one_moment_have_no_order(
    data: st.DataObject,
    by_position: list[list[int]],
    totals: list[tuple[int, int, float]],
    looks: list[tuple[int, list[float], float]],
) -> None:
    evidence: list[Callable[[AcceptanceLearner], None]] = [
        *(partial(feed_histogram, histogram=one, at=10.0) for one in by_position),
        *(partial(feed_mean, mean=one, at=10.0) for one in totals),
        *(partial(feed_counters, look=one, at=10.0) for one in looks),
    ]
    shuffled = data.draw(st.permutations(evidence))
    learned = []
    for order in (evidence, shuffled):
        learner = AcceptanceLearner(PRIOR)
        for feed in order:
            feed(learner)
        learned.append(learner.curves(10.0))
    for name in PRIOR:
        one, other = (each[name] for each in learned)
        assert one.trials == pytest.approx(other.trials, rel=1e-6)
        assert one.curve.expected_tokens(8) == pytest.approx(other.curve.expected_tokens(8), rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.floats(1.0, 1000.0), st.integers(1, 9))
def test_evidence_halves_with_each_half_life_of_traffic(half_life_s: float, seconds: int) -> None:
    """Later requests of next to no drafts keep the traffic going without counting for anything."""
    learner = AcceptanceLearner(PRIOR, half_life_s=half_life_s)
    feed_many(learner, "code", [(700.0, 1000.0)], 0.0)
    before = learner.curve("code", 0.0).trials[0]
    for second in range(1, seconds + 1):
        learner.observe_trials("code", [(0.7e-6, 1e-6)], float(second))
        learner.curve("code", float(second))
    after = learner.curve("code", float(seconds)).trials[0]
    assert after / before == pytest.approx(0.5 ** (seconds / half_life_s), rel=0.01)


def test_a_night_without_requests_forgets_nothing() -> None:
    learner = AcceptanceLearner(PRIOR, half_life_s=60.0)
    learner.observe_trials("code", [(500.0, 1000.0)], 0.0)
    evening = learner.curve("code", 1.0)
    morning = [learner.curve("code", at) for at in range(10, 40_000, 1000)][-1]
    assert morning.trials == pytest.approx(evening.trials)


def test_deep_positions_follow_the_ones_before_them() -> None:
    """Acceptance falls to a half at the first positions; hardly a draft reaches the last one, which believed 0.83."""
    learner = AcceptanceLearner(PRIOR)
    feed_many(learner, "code", [(900, 2000), (405, 900), (180, 405), (80, 180), (4, 8)], 0.0)
    curve = learner.curve("code", 1.0).curve
    assert curve.conditional_at(5) == pytest.approx(0.46, abs=0.05)
    assert curve.plateau == pytest.approx(0.45, abs=0.05)  # of the last position with a telling number of trials


def test_the_last_ratio_is_the_plateau_over_a_flat_prior() -> None:
    learner = AcceptanceLearner({"code": AcceptanceCurve.independent(0.7)})
    feed_many(learner, "code", [(7000, 10_000), (6300, 7000), (5670, 6300)], 0.0)
    curve = learner.curve("code", 1.0).curve
    assert curve.plateau == pytest.approx(0.9, abs=0.005)
    assert curve.conditional_at(1) == pytest.approx(0.7, abs=0.005)


def test_of_drafts_of_varying_length_only_the_first_position_is_believed() -> None:
    """Half of the drafts had one token only: read as full ones, acceptance at the second position would be a half."""
    histogram = [200, 400, 0, 0, 400]  # 400 drafts of one token accepted, 400 of four, 200 refused at once
    learner = AcceptanceLearner(PRIOR)
    learner.observe_histogram("code", histogram, 0.0, draft_tokens=600 * 1 + 400 * 4)
    learned = learner.curve("code", 1.0)
    assert len(learned.trials) == 1
    assert learned.curve.conditional_at(1) == pytest.approx(0.80, abs=0.01)
    assert learned.curve.conditional_at(2) > 0.75
    counted = AcceptanceLearner(PRIOR)
    counted.observe_counters({"code": 1.0}, 1000, [800, 400, 400, 400], 0.0, draft_tokens=2200)
    learned = counted.curve("code", 1.0)
    assert len(learned.trials) == 1
    assert learned.curve.conditional_at(1) == pytest.approx(0.80, abs=0.01)
    assert learned.inferred


def test_totals_of_short_drafts_are_not_believed() -> None:
    learner = AcceptanceLearner(PRIOR)
    learner.observe_mean("code", 1000, 1300, 4, 0.0, draft_tokens=2200)
    assert learner.curve("code", 1.0).curve == PRIOR["code"]


def test_a_replica_is_not_believed_until_it_has_settled() -> None:
    learner = AcceptanceLearner(PRIOR, settle_s=5.0)
    learner.note_gamma_change(10.0, "a")
    learner.observe_trials("code", [(100.0, 1000.0)], 14.9, source="a")
    assert learner.curve("code", 14.9).trials == ()
    learner.observe_trials("code", [(840.0, 1000.0)], 14.9, source="b")
    learner.observe_trials("code", [(840.0, 1000.0)], 15.0, source="a")
    assert learner.curve("code", 15.0).curve.conditional_at(1) == pytest.approx(0.84, abs=0.01)


def test_drift_is_told_beyond_the_prior_s_interval_and_taken_back_within_it() -> None:
    learner = AcceptanceLearner(PRIOR)
    learner.observe_trials("code", [(6, 10)], 0.0)
    assert not learner.curve("code", 0.5).drifted, "ten drafts prove nothing"
    for second in range(1, 30):
        for _ in range(5):
            learner.observe_trials("code", [(22, 50), (10, 22)], float(second))
        learner.curves(float(second))
    fallen = learner.curve("code", 30.0)
    assert fallen.drifted
    assert fallen.curve.conditional_at(1) < fallen.interval[0][0]
    assert not learner.curve("chat", 30.0).drifted
    for second in range(31, 90):
        for _ in range(5):
            learner.observe_trials("code", [(42, 50), (35, 42)], float(second))
        learner.curves(float(second))
    assert not learner.curve("code", 90.0).drifted


def test_a_small_fall_at_every_position_is_drift_of_the_tokens_per_step() -> None:
    prior = AcceptanceCurve.independent(0.85)
    learner = AcceptanceLearner({"code": prior})
    reached, trials = 20_000.0, []
    for _ in range(5):
        trials.append((0.75 * reached, reached))
        reached *= 0.75
    feed_many(learner, "code", trials, 0.0)
    learned = learner.curve("code", 1.0)
    inside = [low <= 0.75 <= high for low, high in learned.interval]
    print(f"E(5) {learned.curve.expected_tokens(5):.2f}, believed {prior.expected_tokens(5):.2f}; inside {inside}")
    assert all(inside)
    assert learned.drifted


@pytest.mark.parametrize(
    "change",
    [
        {"classes": {}},
        {"classes": {"code": {}, "chat": {}}},
        {"mix": None},
        {"mix": {"products": [[[1.0]]], "targets": [[1.0]], "squares": [1], "looks": [1], "weight": [1]}},
    ],
)
def test_a_snapshot_that_cannot_be_is_refused_whole(change: dict[str, object]) -> None:
    learner = AcceptanceLearner(PRIOR)
    feed_histogram(learner, [100, 100, 100], 0.0)
    feed_counters(learner, (300, [0.8, 0.8], 0.3), 0.0)
    before = learner.snapshot()
    with pytest.raises((ValueError, TypeError)):
        learner.restore({**before, **change})
    assert learner.snapshot() == before


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, "3", None, True, 1e30])
def test_numbers_in_a_snapshot_are_checked(value: object) -> None:
    learner = AcceptanceLearner(PRIOR)
    feed_histogram(learner, [100, 100, 100], 0.0)
    data = learner.snapshot()
    data["classes"]["code"]["tried"][0] = value
    with pytest.raises(ValueError, match=r"number|accepted"):
        learner.restore(data)


def test_counts_that_cannot_be_are_refused() -> None:
    learner = AcceptanceLearner(PRIOR)
    with pytest.raises(ValueError, match="accepted"):
        learner.observe_trials("code", [(11, 10)], 0.0)
    with pytest.raises(ValueError, match="accepted"):
        learner.observe_trials("code", [(5, 10), (3, 6)], 0.0)
    with pytest.raises(ValueError, match="cannot be"):
        learner.observe_mean("code", 10, 41, 4, 0.0)
    with pytest.raises(ValueError, match="counts"):
        learner.observe_histogram("code", [1, -1], 0.0)
    with pytest.raises(KeyError):
        learner.observe_trials("poem", [(1, 2)], 0.0)
