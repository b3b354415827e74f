"""What the observations cannot tell is refused or held, in words."""

from __future__ import annotations

import math
from typing import Any

import pytest

from adaptive_gamma.roofline import AcceptanceCurve, AutoregressiveDrafter, LinearStep, PassFraction, SpeculationCost
from adaptive_gamma.roofline.calibrate import Observation, UnderDetermined, calibrate, compare_models

from .synthetic import observed

COST = SpeculationCost(LinearStep(0.02, 1e-4, 5e-8), AutoregressiveDrafter(PassFraction(0.12)))
CURVE = AcceptanceCurve.two_parameter(0.8, 0.7)


def test_one_load_cannot_tell_a_line() -> None:
    seen = observed(COST, CURVE, loads=(4,), gammas=(None,), contexts=(1000.0,), runs=6)
    with pytest.raises(UnderDetermined, match=r"fixed_seconds.* need two batches or gammas") as refused:
        calibrate(seen, model="linear")
    assert {"fixed_seconds", "token_seconds"} <= set(refused.value.parameters)


def test_fewer_points_than_numbers() -> None:
    seen = observed(COST, CURVE, loads=(4,), gammas=(None,), contexts=(1000.0,))
    with pytest.raises(UnderDetermined, match="1 usable observation for 2 parameters"):
        calibrate(seen, model="linear")


def test_one_context_holds_the_kv_cost_and_says_so() -> None:
    found = calibrate(observed(COST, CURVE, gammas=(None,), contexts=(1000.0,)), model="linear", bootstrap=10)
    kv = next(p for p in found.parameters if p.name == "kv_token_seconds")
    assert kv.held
    assert kv.value == 0
    assert kv.low is None
    assert any("two context lengths" in note for note in found.notes)
    assert found.step.seconds(64, 1, 1000) == pytest.approx(COST.plain_seconds(64, 1000), rel=1e-4)


def test_what_the_fit_does_without_says_so_and_does_not_ask_for_what_is_there() -> None:
    """Plain steps and three gammas are there: a fixed part of the drafter that is none is held for another reason."""
    seen = observed(COST, CURVE, noise=0.1, contexts=(1000.0,), seed=1)
    found = calibrate(seen, model="linear", drafter="autoregressive", bootstrap=0)
    (note,) = [note for note in found.notes if note.startswith("drafter_fixed_fraction held")]
    print(note)
    assert "the fit is as good so" in note
    assert "needs" not in note


def test_what_is_held_for_want_of_observations_counts_them() -> None:
    seen = observed(COST, CURVE, loads=(1, 64), gammas=(None,), contexts=(1000.0,))
    found = calibrate(seen, model="linear", bootstrap=0)
    assert "kv_token_seconds held at 0: 2 usable observations for 3 parameters" in found.notes


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_dense_model_is_no_mixture_of_experts(noise: float) -> None:
    """Where no experts are to be seen the straight line is taken, and the mixture says why it is not."""
    seen = observed(COST, CURVE, noise=noise, seed=5)
    ranked = compare_models(seen, models=["moe", "linear"], drafters=["autoregressive"])
    moe = next(one for one in ranked if one.family.name == "moe")
    if moe.calibration is None:
        assert moe.refusal == "it fits as the straight line, with no experts to be seen"
    else:
        experts = next(p for p in moe.calibration.parameters if p.name == "experts_seconds")
        assert experts.value > 0
    assert ranked[0].family.name == "linear"


def test_a_mixture_asked_for_by_name_is_fitted_all_the_same() -> None:
    found = calibrate(observed(COST, CURVE), model="moe", drafter="autoregressive", bootstrap=0)
    assert found.family == "moe"


def test_a_plain_pool_needs_plain_steps() -> None:
    with pytest.raises(UnderDetermined, match="plain steps"):
        calibrate(observed(COST, CURVE, gammas=(1, 3)), model="plain_pool", drafter="ngram")


def test_without_drafted_steps_there_is_no_price_of_drafting() -> None:
    found = calibrate(observed(COST, CURVE, gammas=(None,)), model="linear", bootstrap=0)
    assert found.drafter is None
    with pytest.raises(UnderDetermined, match="drafter"):
        found.cost()


def test_failed_requests_are_named_and_left_aside() -> None:
    good = observed(COST, CURVE)
    bad = Observation(512, 0, False, 1000, 0, 1e-4, failed_share=0.9, label="run.json:7")
    found = calibrate([*good, bad], model="linear", drafter="autoregressive", bootstrap=0)
    assert any("run.json:7" in note and "90%" in note for note in found.notes)
    assert len(found.residuals) == len(good)
    with pytest.raises(UnderDetermined, match="no usable observation"):
        calibrate([bad], model="linear")


def test_a_comparison_lists_refusals_last() -> None:
    ranked = compare_models(observed(COST, CURVE, gammas=(1, 3, 5), loads=(1, 4, 16, 64)))
    assert ranked[0].calibration is not None
    assert ranked[-1].calibration is None
    assert ranked[-1].refusal
    judged = [r.left_out.mean for r in ranked if r.left_out is not None]
    assert judged == sorted(judged)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("batch", 0), ("batch", math.nan), ("gamma", -1), ("context_tokens", -1), ("prefill_tokens", math.inf),
        ("seconds_per_token", 0.0), ("seconds_per_token", -1e-3), ("seconds_per_token", math.nan),
        ("tokens_per_step", 0.5), ("tokens_per_step", 5.0), ("failed_share", 1.5), ("load", 0),
    ],
)  # fmt: skip
def test_impossible_observations_name_the_field(field: str, value: float) -> None:
    good: dict[str, Any] = {
        "batch": 4, "gamma": 3, "speculative": True, "context_tokens": 100, "prefill_tokens": 0,
        "seconds_per_token": 0.01,
    }  # fmt: skip
    with pytest.raises(ValueError, match=field):
        Observation(**{**good, field: value})


def test_a_plain_engine_drafts_nothing() -> None:
    with pytest.raises(ValueError, match="speculative"):
        Observation(1, 2, False, 0, 0, 0.01)


def test_names_there_are_not() -> None:
    seen = observed(COST, CURVE)
    with pytest.raises(ValueError, match="model must be one of"):
        calibrate(seen, model="cubic", drafter="ngram")
    with pytest.raises(ValueError, match="drafter must be one of"):
        calibrate(seen, model="linear", drafter="oracle")
