"""Every figure of the high-batch article, and what changes when its assumptions do."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_gamma.roofline import (
    AcceptanceCurve,
    AutoregressiveDrafter,
    ModelShare,
    ParallelDrafter,
    compute_bound_batch,
)

from .article import BATCHES, CONTEXT, DECAYING, article_cost, article_step, best_gammas, first_batch_below_one

# Rows: batch 1, 2, 4 .. 512; columns: gamma 0 .. 8.
PRINTED = np.asarray(
    [
        [1, 1.849, 2.628, 3.251, 3.706, 4.007, 4.184, 4.276, 4.318],
        [1, 1.832, 2.605, 3.223, 3.674, 3.972, 4.147, 4.239, 4.280],
        [1, 1.802, 2.561, 3.169, 3.612, 3.905, 4.078, 4.168, 4.208],
        [1, 1.747, 2.483, 3.072, 3.502, 3.786, 3.953, 4.040, 4.079],
        [1, 1.656, 2.354, 2.912, 3.320, 3.589, 3.747, 3.830, 3.867],
        [1, 1.526, 2.169, 2.683, 3.059, 3.306, 3.453, 3.389, 3.112],
        [1, 1.373, 1.951, 2.414, 2.640, 2.495, 2.314, 2.128, 1.952],
        [1, 1.230, 1.748, 1.897, 1.849, 1.745, 1.618, 1.486, 1.363],
        [1, 1.122, 1.449, 1.487, 1.448, 1.366, 1.266, 1.163, 1.066],
        [1, 1.053, 1.248, 1.280, 1.246, 1.176, 1.089, 1.000, 0.917],
    ]
)


def test_terms_of_the_closed_form() -> None:
    terms = article_step().terms(CONTEXT)
    assert round(terms.weight_seconds * 1e3, 3) == 20.149
    assert round(terms.kv_seconds_per_sequence * 1e3, 5) == 0.20032
    assert round(terms.token_seconds * 1e3, 5) == 0.10920


@pytest.mark.parametrize(("gamma", "batch"), [(7, 29.93), (3, 85.20)])
def test_compute_bound_batch(gamma: int, batch: float) -> None:
    terms = article_step().terms(CONTEXT)
    bound = compute_bound_batch(terms.weight_seconds, terms.token_seconds, terms.kv_seconds_per_sequence, gamma)
    assert bound is not None
    assert round(bound, 2) == batch


@pytest.mark.parametrize(("gamma", "batch"), [(7, 58), (3, 277)])
def test_compute_bound_batch_at_the_measured_efficiency(gamma: int, batch: int) -> None:
    terms = article_step(compute_efficiency=0.8).terms(CONTEXT)
    bound = compute_bound_batch(terms.weight_seconds, terms.token_seconds, terms.kv_seconds_per_sequence, gamma)
    assert bound is not None
    assert round(bound) == batch


def test_no_compute_bound_batch_where_kv_reads_outlast_compute() -> None:
    assert compute_bound_batch(0.02, 1e-4, 2e-4, 0) is None
    assert compute_bound_batch(0.02, 1e-4, 2e-4, 1) is None
    assert compute_bound_batch(0.02, 1e-4, 2e-4, 2) == pytest.approx(200.0)


def test_expected_tokens() -> None:
    independent = AcceptanceCurve.independent(0.8)
    assert round(independent.expected_tokens(7), 4) == 4.1611
    assert independent.expected_tokens(7) == pytest.approx((1 - 0.8**8) / (1 - 0.8))
    assert round(DECAYING.expected_tokens(7), 4) == 4.4875
    assert round(DECAYING.expected_tokens(8) - DECAYING.expected_tokens(5), 4) == 0.3262


def test_the_printed_speedup_table() -> None:
    speedup = article_cost().speedup(BATCHES[:, None], np.arange(9), CONTEXT, DECAYING)
    np.testing.assert_allclose(speedup, PRINTED, rtol=0, atol=0.0005)


def test_best_gamma_falls_with_load() -> None:
    assert best_gammas(article_cost()) == [8, 8, 8, 8, 8, 6, 4, 3, 3, 3]


def test_eight_is_the_edge_of_the_search() -> None:
    assert best_gammas(article_cost(), largest=12) == [12, 12, 12, 12, 12, 6, 4, 3, 3, 3]


def test_break_even_batches() -> None:
    cost = article_cost()
    assert first_batch_below_one(cost, 7) == 513
    assert first_batch_below_one(cost, 8) == 329
    assert first_batch_below_one(cost, 7, AcceptanceCurve.independent(0.6)) == 84


def test_gamma_seven_falls_behind_three_at_49() -> None:
    batches = np.arange(1, 65)
    cost = article_cost()
    behind = cost.speedup(batches, 7, CONTEXT, DECAYING) < cost.speedup(batches, 3, CONTEXT, DECAYING)
    assert int(batches[behind][0]) == 49


class TestReadAsUnconditional:
    """The same rates, read as vLLM means them."""

    curve = AcceptanceCurve.line(0.94, 0.07, 8, reading="unconditional")

    def test_expected_tokens(self) -> None:
        assert round(self.curve.expected_tokens(5), 2) == 5.00
        assert round(self.curve.expected_tokens(8) - self.curve.expected_tokens(5), 2) == 1.56
        assert round(DECAYING.expected_tokens(5), 2) == 4.20

    def test_best_gamma(self) -> None:
        assert best_gammas(article_cost(), self.curve) == [8, 8, 8, 8, 8, 7, 5, 5, 5, 5]

    @pytest.mark.parametrize("gamma", [7, 8])
    def test_never_below_one(self, gamma: int) -> None:
        assert first_batch_below_one(article_cost(), gamma, self.curve) is None

    def test_the_source_figures_are_unconditional(self) -> None:
        """Its overall rate is 80.0 %, the mean of the positions: so they count accepted tokens per draft."""
        assert self.curve.unconditional(5).mean() == pytest.approx(0.800)
        assert round(float(DECAYING.unconditional(5).mean()), 3) == 0.641


class TestFragility:
    """One assumption changed at a time."""

    def test_drafter_that_reads_its_own_small_kv_cache(self) -> None:
        cost = article_cost(ParallelDrafter(ModelShare(weight=0.04, compute=0.04, kv=0.04)))
        assert best_gammas(cost) == [8, 8, 8, 8, 8, 6, 4, 3, 2, 2]
        assert first_batch_below_one(cost, 7) == 17317
        assert first_batch_below_one(cost, 8) == 830

    def test_autoregressive_drafter(self) -> None:
        cost = article_cost(AutoregressiveDrafter(ModelShare(weight=0.04, compute=0.04, kv=1.0)))
        assert best_gammas(cost) == [6, 5, 5, 5, 4, 3, 3, 2, 1, 1]
        assert first_batch_below_one(cost, 7) == 62
        assert first_batch_below_one(cost, 8) == 51

    def test_measured_compute_efficiency(self) -> None:
        cost = article_cost(compute_efficiency=0.8)
        assert best_gammas(cost) == [8, 8, 8, 8, 8, 8, 6, 4, 4, 3]
        assert first_batch_below_one(cost, 7) is None
        assert first_batch_below_one(cost, 8) is None
