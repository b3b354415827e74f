"""A fit finds the numbers that made the observations."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.roofline import (
    AcceptanceCurve,
    AutoregressiveDrafter,
    LinearStep,
    PassFraction,
    SpeculationCost,
    ZeroGammaTax,
)
from adaptive_gamma.roofline.calibrate import calibrate

from .synthetic import observed

CURVE = AcceptanceCurve.two_parameter(0.8, 0.7)


@settings(max_examples=15)
@given(st.floats(0.004, 0.05), st.floats(1e-5, 3e-4), st.floats(5e-9, 1e-7), st.floats(0.02, 0.3), st.floats(0.0, 0.2))
def test_a_linear_server_without_noise(fixed: float, token: float, kv: float, one_pass: float, extra: float) -> None:
    drafter = AutoregressiveDrafter(PassFraction(one_pass), fixed_fraction=extra)
    found = calibrate(
        observed(SpeculationCost(LinearStep(fixed, token, kv), drafter), CURVE),
        model="linear", drafter="autoregressive", bootstrap=0,
    )  # fmt: skip
    numbers = {p.name: p.value for p in found.parameters}
    assert numbers["fixed_seconds"] == pytest.approx(fixed, rel=1e-3)
    assert numbers["token_seconds"] == pytest.approx(token, rel=1e-2)
    assert numbers["kv_token_seconds"] == pytest.approx(kv, rel=1e-2)
    assert numbers["drafter_pass_fraction"] == pytest.approx(one_pass, abs=1e-3)
    assert numbers["drafter_fixed_fraction"] == pytest.approx(extra, abs=1e-3)
    assert found.left_out is not None
    assert found.left_out.worst < 1e-3


def test_noise_moves_the_numbers_within_their_intervals() -> None:
    cost = SpeculationCost(
        LinearStep(0.02, 1e-4, 5e-8), AutoregressiveDrafter(PassFraction(0.12), fixed_fraction=0.05),
        ZeroGammaTax.of([(1, 0.05), (128, 0.2)]),
    )  # fmt: skip
    truth = {"fixed_seconds": 0.02, "token_seconds": 1e-4, "kv_token_seconds": 5e-8, "drafter_pass_fraction": 0.12}
    found = calibrate(
        observed(cost, CURVE, runs=8, noise=0.03, gammas=(None, 0, 1, 3, 5), loads=(1, 8, 32, 128)),
        model="linear", drafter="autoregressive", bootstrap=60,
    )  # fmt: skip
    assert found.intervals_over == "runs"
    for parameter in found.parameters:
        if parameter.name in truth:
            assert parameter.low is not None
            assert parameter.high is not None
            assert parameter.low < truth[parameter.name] < parameter.high
            assert parameter.high - parameter.low < 0.5 * parameter.value
    assert found.zero_gamma_tax_measured
    assert found.zero_gamma_tax.at(1) == pytest.approx(0.05, abs=0.03)
    assert found.zero_gamma_tax.at(128) == pytest.approx(0.2, abs=0.03)
    assert found.curves["all"].expected_tokens(4) == pytest.approx(CURVE.expected_tokens(4), rel=0.01)


@pytest.mark.parametrize("interpolation", ["log", "linear"])
def test_a_plain_curve_prices_the_same_server(interpolation: str) -> None:
    cost = SpeculationCost(LinearStep(0.02, 1e-4), AutoregressiveDrafter(PassFraction(0.1)))
    found = calibrate(
        observed(cost, CURVE, contexts=(0.0,), gammas=(None, 1, 3, 7)),
        model=f"plain_pool/{interpolation}", drafter="autoregressive", bootstrap=0,
    )  # fmt: skip
    reached = [abs(one.relative_error) for one in found.residuals if one.reached]
    assert len(reached) == found.reached < len(found.residuals)
    assert sum(reached) / len(reached) < 0.01
    numbers = {p.name: p.value for p in found.parameters}
    assert numbers["drafter_pass_fraction"] == pytest.approx(0.1, abs=0.01)
