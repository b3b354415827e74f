from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.roofline import AcceptanceCurve, draft_length_varies

rate = st.floats(0.0, 1.0)
rates = st.lists(rate, min_size=1, max_size=12)
curves = st.builds(AcceptanceCurve.from_conditional, rates, rate)


@given(curves)
def test_expected_tokens_rise_and_stay_between_one_and_gamma_plus_one(curve: AcceptanceCurve) -> None:
    values = [curve.expected_tokens(gamma) for gamma in range(17)]
    assert values[0] == 1.0
    for gamma, value in enumerate(values):
        assert 1.0 <= value <= gamma + 1 + 1e-12
    assert all(a <= b for a, b in pairwise(values))


@given(curves)
def test_gains_of_further_positions_shrink(curve: AcceptanceCurve) -> None:
    gains = np.diff(curve.expected_tokens(np.arange(17.0)))
    assert np.all(np.diff(gains) <= 1e-12)


@given(curves)
def test_arrays_and_numbers_agree(curve: AcceptanceCurve) -> None:
    gammas = np.asarray([[0.0, 3.0], [7.0, 1.0]])
    values = curve.expected_tokens(gammas)
    assert values.shape == (2, 2)
    assert values.tolist() == [[curve.expected_tokens(int(g)) for g in row] for row in gammas]


@given(st.lists(st.floats(0.05, 1.0), min_size=1, max_size=12))
def test_readings_round_trip(conditional: list[float]) -> None:
    curve = AcceptanceCurve.from_conditional(conditional)
    again = AcceptanceCurve.from_unconditional(curve.unconditional(len(conditional)).tolist())
    np.testing.assert_allclose(again.conditional, conditional, rtol=1e-9)
    assert again.expected_tokens(9) == pytest.approx(curve.expected_tokens(9))


def test_expected_tokens_are_one_plus_the_sum_of_unconditional_rates() -> None:
    """The sum rule that holds in every published table that prints an accepted length."""
    published = [0.858, 0.721, 0.603, 0.504, 0.418, 0.343, 0.269, 0.196]
    curve = AcceptanceCurve.from_per_position(published)
    assert curve.expected_tokens(8) == pytest.approx(4.91, abs=0.01)
    assert [round(c, 2) for c in curve.conditional] == [0.86, 0.84, 0.84, 0.84, 0.83, 0.82, 0.78, 0.73]


def test_the_two_readings_differ() -> None:
    unconditional = AcceptanceCurve.from_per_position([0.8, 0.6], reading="unconditional")
    conditional = AcceptanceCurve.from_per_position([0.8, 0.6], reading="conditional")
    assert unconditional.expected_tokens(2) == pytest.approx(2.4)
    assert conditional.expected_tokens(2) == pytest.approx(1 + 0.8 + 0.48)
    assert AcceptanceCurve.from_per_position([0.8, 0.6]) == unconditional
    with pytest.raises(ValueError, match="reading must be"):
        AcceptanceCurve.from_per_position([0.8], reading="relative")  # type: ignore[arg-type]  # a wrong word


def test_rising_unconditional_rates_are_refused() -> None:
    with pytest.raises(ValueError, match=r"position 2 has 0\.7 after 0\.6; are these conditional"):
        AcceptanceCurve.from_unconditional([0.6, 0.7])


def test_nothing_is_accepted_after_nothing() -> None:
    curve = AcceptanceCurve.from_unconditional([0.5, 0.0, 0.0])
    assert curve.conditional == (0.5, 0.0, 0.0)
    assert curve.expected_tokens(9) == 1.5


@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan")])
def test_rates_outside_the_unit_interval_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match=r"in 0\.\.1"):
        AcceptanceCurve.from_conditional([bad])
    with pytest.raises(ValueError, match="plateau"):
        AcceptanceCurve.independent(bad)


def test_two_parameters_hold_the_plateau_for_ever() -> None:
    curve = AcceptanceCurve.two_parameter(0.84, 0.83)
    assert [curve.conditional_at(i) for i in (1, 2, 50)] == [0.84, 0.83, 0.83]
    np.testing.assert_allclose(curve.unconditional(3), [0.84, 0.84 * 0.83, 0.84 * 0.83**2])
    with pytest.raises(ValueError, match="count from 1"):
        curve.conditional_at(0)


def test_gamma_must_be_whole() -> None:
    curve = AcceptanceCurve.independent(0.5)
    with pytest.raises(ValueError, match="whole number"):
        curve.expected_tokens(-1)
    with pytest.raises(ValueError, match="whole number"):
        curve.expected_tokens(np.asarray([1.0, 1.5]))
    assert curve.expected_tokens(np.asarray([])).size == 0


def test_a_histogram_gives_survival() -> None:
    curve = AcceptanceCurve.from_histogram([2, 3, 5])
    np.testing.assert_allclose(curve.unconditional(2), [0.8, 0.5])
    assert curve.expected_tokens(2) == pytest.approx(1 + (0 * 2 + 1 * 3 + 2 * 5) / 10)
    for bad in ([1.0], [0, 0], [1, -1]):
        with pytest.raises(ValueError, match="histogram"):
            AcceptanceCurve.from_histogram(bad)


PRIOR = AcceptanceCurve.two_parameter(0.74, 0.70)


def drawn(curve: AcceptanceCurve, gamma: int, drafts: int, seed: int) -> list[float]:
    """Accepted-at-least counts of simulated drafts."""
    random = np.random.default_rng(seed).random((drafts, gamma))
    alive = np.cumprod(random < curve.conditionals(gamma), axis=1)
    return [float(n) for n in alive.sum(axis=0)]


class TestFromCounters:
    def test_without_data_it_is_the_prior(self) -> None:
        assert AcceptanceCurve.from_counters(0, [0, 0, 0], PRIOR, 30) == AcceptanceCurve((0.74, 0.70, 0.70), 0.70)
        assert AcceptanceCurve.from_counters(0, [], PRIOR, 30) == AcceptanceCurve((0.74,), 0.70)

    @pytest.mark.parametrize("seed", range(5))
    def test_it_converges_on_the_truth(self, seed: int) -> None:
        truth = AcceptanceCurve.from_conditional([0.9, 0.85, 0.6, 0.5])
        errors = []
        for drafts in (100, 1_000_000):
            curve = AcceptanceCurve.from_counters(drafts, drawn(truth, 4, drafts, seed), PRIOR, 30)
            errors.append(abs(curve.expected_tokens(4) - truth.expected_tokens(4)))
            assert len(curve.conditional) == 4
        assert errors[1] < 0.005
        assert curve.plateau == pytest.approx(0.5, abs=0.005)

    @given(
        st.integers(1, 10_000),
        st.lists(rate, min_size=1, max_size=8),
        st.floats(1.0, 500.0),
    )
    def test_it_lies_between_prior_and_data(self, drafts: int, shares: list[float], weight: float) -> None:
        counts, reached = [], float(drafts)
        for share in shares:
            reached = float(int(reached * share))
            counts.append(reached)
        curve = AcceptanceCurve.from_counters(drafts, counts, PRIOR, weight)
        before = float(drafts)
        for position, count in enumerate(counts, 1):
            believed, value = PRIOR.conditional_at(position), curve.conditional_at(position)
            seen = count / before if before else believed
            assert min(seen, believed) - 1e-12 <= value <= max(seen, believed) + 1e-12
            before = count

    def test_deep_positions_lean_on_the_prior(self) -> None:
        """One draft in a thousand reached position 3; it was accepted once, which proves little."""
        curve = AcceptanceCurve.from_counters(1000, [30, 1, 1], PRIOR, 30)
        assert curve.conditional_at(1) == pytest.approx((30 + 30 * 0.74) / 1030)
        assert 0.70 < curve.conditional_at(3) < 0.75

    def test_the_tail_follows_the_last_position_seen(self) -> None:
        prior = AcceptanceCurve.from_conditional([0.8, 0.8, 0.8, 0.6], 0.4)
        curve = AcceptanceCurve.from_counters(1e9, [8e8, 3.2e8], prior, 1)
        assert curve.conditional_at(2) == pytest.approx(0.4)
        assert curve.conditional_at(4) == pytest.approx(0.3)
        assert curve.plateau == pytest.approx(0.2)

    def test_one_position_says_nothing_of_the_tail(self) -> None:
        assert AcceptanceCurve.from_counters(1000, [100], PRIOR, 30).plateau == 0.70

    def test_impossible_counts_are_refused(self) -> None:
        with pytest.raises(ValueError, match="position 2"):
            AcceptanceCurve.from_counters(10, [5, 6], PRIOR, 30)
        with pytest.raises(ValueError, match="position 1"):
            AcceptanceCurve.from_counters(10, [11], PRIOR, 30)
        with pytest.raises(ValueError, match="pseudo_drafts"):
            AcceptanceCurve.from_counters(10, [5], PRIOR, 0)

    def test_biased_counts_are_refused(self) -> None:
        with pytest.raises(ValueError, match="biased low"):
            AcceptanceCurve.from_counters(100, [60, 20, 10], PRIOR, 30, draft_tokens=180)
        AcceptanceCurve.from_counters(100, [60, 20, 10], PRIOR, 30, draft_tokens=300)


def test_draft_length_detector() -> None:
    assert draft_length_varies(100, 300, 3) is False
    assert draft_length_varies(100, 299, 3) is False
    assert draft_length_varies(100, 180, 3) is True
    assert draft_length_varies(0, 0, 3) is None
    assert draft_length_varies(None, 10, 3) is None
    assert draft_length_varies(10, None, 3) is None
    assert draft_length_varies(10, 30, 0) is None


def test_mixed_draft_lengths_bias_rates_low() -> None:
    """Why they are refused: half the drafts end after two tokens and count against position 3."""
    truth = AcceptanceCurve.independent(0.8)
    long, short = drawn(truth, 4, 100_000, 1), [*drawn(truth, 2, 100_000, 2), 0.0, 0.0]
    mixed = [a + b for a, b in zip(long, short, strict=True)]
    assert draft_length_varies(200_000, 600_000, 4) is True
    assert mixed[2] / mixed[1] == pytest.approx(0.4, abs=0.01)
