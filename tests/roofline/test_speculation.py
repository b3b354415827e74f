from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.roofline import (
    AcceptanceCurve,
    AutoregressiveDrafter,
    Drafter,
    LinearStep,
    ModelShare,
    NgramDrafter,
    ParallelDrafter,
    PassFraction,
    PassSeconds,
    PlainPoolStep,
    SpeculationCost,
    ZeroGammaTax,
)

from .test_step_time import llama_8b

STEP = LinearStep(0.020, 1e-4, 50e-9)
DRAFTERS: list[Drafter] = [
    AutoregressiveDrafter(PassFraction(0.12)),
    AutoregressiveDrafter(PassSeconds(0.001), fixed_fraction=0.1, fixed_seconds=0.002),
    AutoregressiveDrafter(ModelShare(0.04, 0.04, 1.0)),
    ParallelDrafter(ModelShare(0.17, 0.26, 0.17)),
    NgramDrafter(0.006),
]


@pytest.mark.parametrize("drafter", DRAFTERS, ids=lambda d: type(d).__name__)
@given(batch=st.integers(1, 512), gamma=st.integers(0, 16), context=st.integers(1, 32_768))
def test_drafting_more_never_takes_less_time(drafter: Drafter, batch: int, gamma: int, context: int) -> None:
    assert drafter.seconds(STEP, batch, 0, context) == 0
    now = drafter.seconds(STEP, batch, gamma, context)
    assert drafter.seconds(STEP, batch, gamma + 1, context) >= now
    assert isinstance(now, float)


def test_autoregressive_passes_add_up() -> None:
    plain = float(STEP.seconds(8, 1, 1000))
    assert DRAFTERS[0].seconds(STEP, 8, 5, 1000) == pytest.approx(5 * 0.12 * plain)
    assert DRAFTERS[1].seconds(STEP, 8, 5, 1000) == pytest.approx(0.002 + 0.1 * plain + 5 * 0.001)
    share = 0.04 * 0.020 + 0.04 * 8e-4 + 8 * 1000 * 50e-9
    assert DRAFTERS[2].seconds(STEP, 8, 5, 1000) == pytest.approx(5 * share)


def test_a_parallel_drafter_makes_one_pass() -> None:
    expected = 0.17 * 0.020 + 0.26 * 8 * 5 * 1e-4 + 0.17 * 8 * 1000 * 50e-9
    assert DRAFTERS[3].seconds(STEP, 8, 5, 1000) == pytest.approx(expected)


def test_the_measured_bill_of_an_autoregressive_drafter() -> None:
    """EAGLE-3 on Llama-3.1-8B at batch 1 (vLLM issue #20780): step = 8.35 + 1.016 K ms against 7.07 ms plain."""
    step = LinearStep(0.00707, 0.0)
    drafter = AutoregressiveDrafter(PassSeconds(0.001016), fixed_seconds=0.00128)
    cost = SpeculationCost(step, drafter)
    accepted = {2: 2.36, 3: 2.79, 4: 3.08, 5: 3.32, 6: 3.46, 7: 3.54}
    printed = {2: 4.32, 3: 4.09, 4: 4.05, 5: 4.13, 6: 4.20, 7: 4.29}
    for gamma, tpot in printed.items():
        predicted = cost.speculative_seconds(1, gamma, 100) / accepted[gamma] * 1e3
        assert predicted == pytest.approx(tpot, rel=0.03)


def test_ngram_costs_the_same_for_every_gamma() -> None:
    assert DRAFTERS[4].seconds(STEP, 8, 1, 1000) == DRAFTERS[4].seconds(STEP, 8, 9, 1000)


def test_drafter_arrays_broadcast() -> None:
    for drafter in DRAFTERS:
        grid = drafter.seconds(STEP, np.asarray([1, 8])[:, None], np.asarray([0, 1, 5]), 1000)
        assert grid.shape == (2, 3)
        assert grid[1, 2] == pytest.approx(float(drafter.seconds(STEP, 8, 5, 1000)))


def test_negative_costs_are_refused() -> None:
    for make in (PassFraction, PassSeconds, NgramDrafter):
        with pytest.raises(ValueError, match=">= 0"):
            make(-0.1)
    with pytest.raises(ValueError, match="kv"):
        ParallelDrafter(ModelShare(0.1, 0.1, -1.0))
    with pytest.raises(ValueError, match="fixed_seconds"):
        AutoregressiveDrafter(PassSeconds(0), fixed_seconds=-1)


class TestZeroGammaTax:
    measured = ZeroGammaTax.of([(2, 0.0656), (189, 0.2158)])

    def test_it_is_interpolated_and_flat_beyond(self) -> None:
        assert self.measured.at(2) == pytest.approx(0.0656)
        assert self.measured.at(189) == pytest.approx(0.2158)
        assert self.measured.at(95.5) == pytest.approx((0.0656 + 0.2158) / 2)
        assert self.measured.at(1) == pytest.approx(0.0656)
        assert self.measured.at(1000) == pytest.approx(0.2158)
        assert ZeroGammaTax.of(0.1).at(np.asarray([1, 99])).tolist() == [0.1, 0.1]

    def test_only_gamma_zero_on_a_speculative_engine_pays(self) -> None:
        cost = SpeculationCost(STEP, NgramDrafter(0.0), self.measured)
        plain = cost.plain_seconds(189, 100)
        assert cost.speculative_seconds(189, 0, 100) == pytest.approx(plain * 1.2158)
        assert cost.speculative_seconds(189, 1, 100) == pytest.approx(float(STEP.seconds(189, 2, 100)))
        assert cost.speedup(189, 0, 100, AcceptanceCurve.independent(0.5)) == pytest.approx(1 / 1.2158)

    @pytest.mark.parametrize("bad", [[], [(0, 0.1)], [(1, -0.1)], [(5, 0.1), (2, 0.2)]])
    def test_bad_points(self, bad: list[tuple[float, float]]) -> None:
        with pytest.raises(ValueError, match="tax"):
            ZeroGammaTax.of(bad)


@given(st.integers(1, 512), st.integers(0, 12), st.floats(0.0, 1.0))
def test_speedup_is_tokens_per_second_over_plain(batch: int, gamma: int, alpha: float) -> None:
    curve = AcceptanceCurve.independent(alpha)
    cost = SpeculationCost(llama_8b(), AutoregressiveDrafter(PassFraction(0.12)))
    plain = 1.0 / cost.plain_seconds(batch, 2048)
    spec = curve.expected_tokens(gamma) / cost.speculative_seconds(batch, gamma, 2048)
    assert cost.speedup(batch, gamma, 2048, curve) == pytest.approx(spec / plain)


def test_prefill_tokens_weigh_on_both_sides() -> None:
    cost = SpeculationCost(STEP, NgramDrafter(0.0))
    assert cost.plain_seconds(4, 0, 500) == pytest.approx(0.020 + 504e-4)
    assert cost.speculative_seconds(4, 3, 0, 500) == pytest.approx(0.020 + 516e-4)


def test_the_capture_limit_bounds_gamma() -> None:
    cost = SpeculationCost(STEP, NgramDrafter(), capture_limit_tokens=512)
    assert cost.largest_gamma(64) == 7
    assert cost.largest_gamma(300) == 0
    allowed = cost.allowed(np.asarray([64, 300, 600]), np.asarray([0, 1, 7, 8])[:, None])
    assert allowed.tolist() == [[True] * 3, [True, False, False], [True, False, False], [False] * 3]
    assert SpeculationCost(STEP, NgramDrafter()).largest_gamma(10**6) is None
    assert SpeculationCost(STEP, NgramDrafter()).allowed(600, 8).all()


def test_long_context_tolerates_longer_drafts() -> None:
    """A larger KV read keeps the step memory-bound for longer, so verifying stays cheaper."""
    cost = SpeculationCost(llama_8b(), AutoregressiveDrafter(PassFraction(0.05)))
    curve = AcceptanceCurve.independent(0.8)
    gammas = np.arange(1, 17)
    best = [int(gammas[np.argmax(cost.speedup(128, gammas, context, curve))]) for context in (128, 2048, 16384)]
    assert best == sorted(best)
    assert best[0] < best[-1]


def test_a_plain_pool_prices_speculation() -> None:
    plain = LinearStep(0.0206, 1.05e-4)
    cost = SpeculationCost(PlainPoolStep(plain), AutoregressiveDrafter(PassFraction(0.1)))
    assert cost.plain_seconds(32, 0) == plain.seconds(32, 1, 0)
    assert cost.speculative_seconds(32, 3, 0) == pytest.approx(
        float(plain.seconds(128, 1, 0)) + 0.3 * float(plain.seconds(32, 1, 0))
    )
