"""Telling classes apart in counters that mix them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from adaptive_gamma.roofline import AcceptanceCurve, FloatArray
from adaptive_gamma.routing.learn import AcceptanceLearner
from adaptive_gamma.routing.learn.recovery import recover
from tests.learn.traffic import Scenario, Scraped, run

TRUTH = {
    "structured": AcceptanceCurve.two_parameter(0.86, 0.84),
    "chat": AcceptanceCurve.two_parameter(0.70, 0.62),
    "unsure": AcceptanceCurve.two_parameter(0.55, 0.48),
}
UNKNOWING = dict.fromkeys(TRUTH, AcceptanceCurve.two_parameter(0.74, 0.70))


@pytest.mark.parametrize(("requests_per_s", "seconds"), [(5.0, 240.0), (20.0, 120.0)])
def test_three_classes_from_the_counters_of_six_replicas(requests_per_s: float, seconds: float) -> None:
    for seed in range(2):
        learner = AcceptanceLearner(UNKNOWING)
        scenario = Scenario(lambda name, at: TRUTH[name], dict.fromkeys(TRUTH, 1.0), requests_per_s, replicas=6)
        for told in run(scenario, seconds, seed):
            if isinstance(told, Scraped):
                learner.observe_counters(told.seconds, told.drafts, told.accepted_per_position, told.at)
        for name, learned in learner.curves(seconds).items():
            tokens, true = learned.curve.expected_tokens(4), TRUTH[name].expected_tokens(4)
            print(
                f"{requests_per_s:g} requests/s, {seconds:g} s, seed {seed}: {name} E(4) {tokens:.3f} for {true:.3f} "
                f"({tokens / true - 1:+.1%}), worth {learned.trials[0]:.0f} drafts of its own, inferred"
            )
            assert tokens == pytest.approx(true, rel=0.05)
            assert learned.inferred
        assert learner.changes == 0


def test_one_mix_for_ever_leaves_the_division_to_the_prior() -> None:
    learner = AcceptanceLearner({"code": AcceptanceCurve.independent(0.8), "chat": AcceptanceCurve.independent(0.6)})
    for second in range(100):
        learner.observe_counters({"code": 0.5, "chat": 0.5}, 1000, [650], float(second))
    code, chat = (learner.curve(name, 100.0) for name in ("code", "chat"))
    assert (code.curve.conditional_at(1) + chat.curve.conditional_at(1)) / 2 == pytest.approx(0.65, abs=0.005)
    assert code.curve.conditional_at(1) - chat.curve.conditional_at(1) == pytest.approx(0.2, abs=0.02)
    print(f"100 000 drafts of one mix tell each class as much as {code.trials[0]:.0f} of its own")
    assert code.trials[0] < 100


def test_reports_and_counters_of_one_family_agree() -> None:
    """One class reports by itself, the other one is inferred beside it."""
    learner = AcceptanceLearner(UNKNOWING)
    rng = np.random.default_rng(1)
    for second in range(60):
        learner.observe_trials("structured", [(86, 100), (72, 86)], float(second))
        share = rng.random()
        first = 1000 * (share * 0.86 + (1 - share) * 0.70)
        second_position = 1000 * (share * 0.7224 + (1 - share) * 0.434)
        learner.observe_counters(
            {"structured": share, "chat": 1 - share}, 1000, [first, second_position], float(second)
        )
    learned = learner.curves(60.0)
    assert learned["chat"].inferred
    assert learned["chat"].curve.conditional_at(1) == pytest.approx(0.70, abs=0.01)
    assert learned["chat"].curve.conditional_at(2) == pytest.approx(0.62, abs=0.01)
    assert learned["structured"].curve.conditional_at(1) == pytest.approx(0.86, abs=0.01)
    assert learned["unsure"].curve == UNKNOWING["unsure"]


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_bounded_least_squares_as_scipy_does_it(unknowns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.random((unknowns + int(rng.integers(0, 20)), unknowns))
    wanted: FloatArray = rng.normal(0.5, 1.0, size=(rows.shape[0],))
    upper: FloatArray = rng.random(unknowns, dtype=np.float64)
    rows = np.concatenate([rows, 0.1 * np.eye(unknowns)])
    wanted = np.concatenate([wanted, np.zeros(unknowns)])
    ours = recover(rows.T @ rows, rows.T @ wanted, upper)
    theirs = lsq_linear(rows, wanted, (np.zeros(unknowns), upper + 1e-12), method="bvls", tol=1e-14).x
    assert np.all((ours >= 0) & (ours <= upper))
    one, other = np.linalg.norm(rows @ ours - wanted), np.linalg.norm(rows @ theirs - wanted)
    assert one <= other + 1e-8
