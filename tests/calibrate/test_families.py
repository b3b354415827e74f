"""Rooflines, mixtures of experts, tables, captured steps: what made the observations is found again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.policy import cost_inputs
from adaptive_gamma.roofline import (
    AcceptanceCurve,
    AutoregressiveDrafter,
    CapturedStep,
    CaptureSizes,
    LinearStep,
    ModelShare,
    MoeStep,
    NgramDrafter,
    ParallelDrafter,
    PassFraction,
    RooflineStep,
    SpeculationCost,
)
from adaptive_gamma.roofline.calibrate import (
    Calibration,
    Experts,
    Machine,
    ModelNumbers,
    Observation,
    TableFamily,
    UnderDetermined,
    calibrate,
    compare_models,
    families_for,
    monotone_table,
)

from .synthetic import observed

CURVE = AcceptanceCurve.two_parameter(0.8, 0.7)
DRAFTER = AutoregressiveDrafter(PassFraction(0.12))
EXPERTS = ModelNumbers(470e9, 44e9, 0.0, Experts(128, 8, 454e9))


def numbers(found: Calibration) -> dict[str, float]:
    return {p.name: p.value for p in found.parameters}


@settings(max_examples=5)
@given(st.floats(2e-3, 1e-2), st.floats(5e-3, 3e-2), st.floats(0.6, 1.0), st.floats(1e-5, 8e-5))
def test_a_mixture_of_experts(shared: float, experts: float, exponent: float, token: float) -> None:
    step = MoeStep(shared, experts, 0.0625, token, exponent)
    found = calibrate(
        observed(SpeculationCost(step, DRAFTER), CURVE, contexts=(0.0,)),
        model="moe", drafter="autoregressive", numbers=EXPERTS, bootstrap=0,
    )  # fmt: skip
    assert found.mean_error < 1e-3
    values = numbers(found)
    assert values["shared_seconds"] == pytest.approx(shared, rel=0.05)
    assert values["experts_seconds"] == pytest.approx(experts, rel=0.05)
    assert values["exponent"] == pytest.approx(exponent, abs=0.05)
    assert values["token_seconds"] == pytest.approx(token, rel=0.05)


def test_a_mixture_is_told_from_a_line_by_loads_left_out() -> None:
    seen = observed(
        SpeculationCost(MoeStep(4e-3, 12e-3, 0.0625, 3e-5, 0.85), DRAFTER), CURVE, contexts=(0.0,), noise=0.01
    )
    ranked = compare_models(seen, models=["linear", "moe"], drafters=["autoregressive"])
    assert [r.family.name for r in ranked] == ["moe", "linear"]
    assert ranked[0].left_out is not None
    assert ranked[0].left_out.mean < 0.03


def test_where_nothing_tells_the_experts_a_mixture_is_a_line() -> None:
    cost = SpeculationCost(LinearStep(0.02, 1e-4, 5e-8), DRAFTER)
    found = calibrate(observed(cost, CURVE, noise=0.01), model="moe", drafter="autoregressive", bootstrap=0)
    assert found.step.seconds(64, 4, 2000) == pytest.approx(float(cost.step.seconds(64, 4, 2000)), rel=0.02)


def test_a_roofline_of_known_peaks() -> None:
    machine, sizes = Machine(3.35e12, 989e12), ModelNumbers(16.06e9, 16.06e9, 131_072)
    step = RooflineStep(16.06e9, 16.06e9, 131_072, 3.35e12, 989e12, 0.78, 0.71, 2.0, 8e-4)
    found = calibrate(
        observed(SpeculationCost(step, DRAFTER), CURVE, loads=(1, 4, 16, 64, 256)),
        model="roofline", drafter="autoregressive", hardware=machine, numbers=sizes, bootstrap=0,
    )  # fmt: skip
    values = numbers(found)
    assert values["memory_efficiency"] == pytest.approx(0.78, rel=0.02)
    assert values["compute_efficiency"] == pytest.approx(0.71, rel=0.02)
    assert values["launch_seconds"] == pytest.approx(8e-4, rel=0.1)


def test_a_roofline_with_experts() -> None:
    machine = Machine(8 * 4.8e12, 8 * 989e12)
    step = MoeStep.from_sizes(
        shared_bytes=16e9, expert_bytes=454e9, experts=128, active_experts=8, flops_per_token=44e9,
        kv_bytes_per_token=0.0, bandwidth=machine.bandwidth, compute=machine.compute, memory_efficiency=0.6,
        compute_efficiency=0.5, exponent=0.9, launch_seconds=2e-3,
    )  # fmt: skip
    found = calibrate(
        observed(SpeculationCost(step, DRAFTER), CURVE, contexts=(0.0,), loads=(1, 2, 4, 8, 16, 64, 256, 512)),
        model="roofline", drafter="autoregressive", hardware=machine, numbers=EXPERTS, bootstrap=0,
    )  # fmt: skip
    values = numbers(found)
    assert values["memory_efficiency"] == pytest.approx(0.6, rel=0.05)
    assert values["exponent"] == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize(
    ("drafter", "kind", "name", "value"),
    [
        (ParallelDrafter(ModelShare(0.2, 0.2, 0.2)), "parallel", "drafter_share", 0.2),
        (NgramDrafter(0.02), "ngram", "drafter_fraction", 0.02),
    ],
)
def test_kinds_of_drafter(drafter: ParallelDrafter | NgramDrafter, kind: str, name: str, value: float) -> None:
    cost = SpeculationCost(LinearStep(0.02, 1e-4, 5e-8), drafter)
    found = calibrate(observed(cost, CURVE), model="linear", drafter=kind, bootstrap=0)
    assert numbers(found)[name] == pytest.approx(value, rel=0.01)
    assert found.drafter_kind == kind


def test_acceptance_is_found_where_it_is_not_known() -> None:
    cost = SpeculationCost(LinearStep(0.02, 1e-4, 5e-8), DRAFTER)
    seen = observed(cost, CURVE, yields_known=False, gammas=(None, 1, 2, 3, 5, 7))
    found = calibrate(seen, model="linear", drafter="autoregressive", bootstrap=0)
    for gamma in (1, 4, 7):
        assert found.curves["all"].expected_tokens(gamma) == pytest.approx(CURVE.expected_tokens(gamma), rel=0.01)
    known = calibrate(seen, model="linear", drafter="autoregressive", curve=CURVE, bootstrap=0)
    assert known.curves["all"] == CURVE
    assert not any("acceptance" in p.name for p in known.parameters)


def test_classes_have_their_own_acceptance() -> None:
    cost = SpeculationCost(LinearStep(0.02, 1e-4), DRAFTER)
    curves = {"chat": AcceptanceCurve.two_parameter(0.6, 0.5), "structured": AcceptanceCurve.two_parameter(0.9, 0.85)}
    seen = [
        Observation(
            o.batch, o.gamma, o.speculative, o.context_tokens, 0.0, o.seconds_per_token, request_class=name
        )
        for name, curve in curves.items()
        for o in observed(cost, curve, contexts=(0.0,), gammas=(None, 1, 2, 4, 7))
    ]  # fmt: skip
    found = calibrate(seen, model="linear", drafter="autoregressive", bootstrap=0)
    for name, curve in curves.items():
        assert found.curves[name].expected_tokens(5) == pytest.approx(curve.expected_tokens(5), rel=0.02)


def test_a_table_follows_what_no_formula_does() -> None:
    tokens = np.asarray([1, 4, 16, 64, 256, 1024])
    seconds = np.asarray([5, 5.1, 9, 9.2, 20, 21]) * 1e-3
    seen = [
        Observation(float(t), 0, False, 0.0, 0.0, float(s) * factor, run=str(i))
        for t, s in zip(tokens, seconds, strict=True)
        for i, factor in enumerate((0.99, 1.0, 1.01))
    ]
    found = calibrate(seen, model="table", bootstrap=20)
    assert found.step.seconds(16, 1, 0) == pytest.approx(9e-3, rel=0.01)
    assert found.mean_error < 0.011


@given(
    st.lists(st.tuples(st.integers(1, 500), st.floats(1e-4, 1.0)), min_size=2, max_size=30).filter(
        lambda points: len({t for t, _ in points}) >= 2
    )
)
def test_a_monotone_table_never_falls_and_never_leaves_the_data(points: list[tuple[int, float]]) -> None:
    tokens, seconds = (np.asarray(column, dtype=np.float64) for column in zip(*points, strict=True))
    table = monotone_table(tokens, seconds, np.ones(tokens.size))
    assert list(table.rows[0]) == sorted(table.rows[0])
    assert table.rows[0][0] >= seconds.min() * (1 - 1e-9)
    assert table.rows[0][-1] <= seconds.max() * (1 + 1e-9)


class TestCapture:
    sizes = CaptureSizes((1, 2, 4, 8, 16, 32, 64, 128, 256))
    step = CapturedStep(LinearStep(5e-3, 3e-5), sizes, uncaptured_seconds=0.08)

    def seen(self) -> list[Observation]:
        return observed(
            SpeculationCost(self.step, DRAFTER), CURVE, contexts=(0.0,), loads=(1, 3, 7, 13, 27, 50, 90, 128)
        )

    def test_the_cliff_and_the_staircase_are_found(self) -> None:
        found = calibrate(self.seen(), model="linear", drafter="autoregressive", capture_sizes=self.sizes, bootstrap=0)
        assert found.capture_limit_tokens == 256
        assert found.uncaptured_seconds == pytest.approx(0.08, rel=0.01)
        assert found.mean_error < 1e-4
        assert numbers(found)["token_seconds"] == pytest.approx(3e-5, rel=1e-3)
        for batch, gamma in ((3, 1), (100, 0), (200, 2)):
            assert found.cost().speculative_seconds(batch, gamma, 0) == pytest.approx(
                float(SpeculationCost(self.step, DRAFTER).speculative_seconds(batch, gamma, 0)), rel=1e-3
            )
        assert cost_inputs(found.cost()).limits["uncaptured_seconds"] == found.uncaptured_seconds

    def test_without_sizes_the_staircase_is_noise(self) -> None:
        found = calibrate(self.seen(), model="linear", drafter="autoregressive", capture_limit_tokens=256, bootstrap=0)
        assert 0.005 < found.mean_error < 0.1
        assert found.uncaptured_seconds == pytest.approx(0.08, rel=0.05)

    def test_nothing_within_the_limit(self) -> None:
        with pytest.raises(UnderDetermined, match="within the capture limit"):
            calibrate(self.seen(), model="linear", drafter="autoregressive", capture_limit_tokens=0)


def test_what_is_tried_follows_what_is_known() -> None:
    def names(machine: Machine | None, sizes: ModelNumbers | None) -> set[str]:
        return {f.name.partition("/")[0] for f in families_for(machine, sizes)}

    assert names(None, None) == {"linear", "moe", "plain_pool", "table"}
    assert names(None, EXPERTS) == {"moe", "plain_pool", "table"}
    assert names(Machine(1e12, 1e14), ModelNumbers(1e9, 1e9, 1e3)) == {"linear", "roofline", "plain_pool", "table"}


def test_a_comparison_picks_for_the_caller() -> None:
    cost = SpeculationCost(LinearStep(0.02, 1e-4), DRAFTER)
    seen = observed(cost, CURVE, contexts=(0.0,), loads=(1, 4, 16, 64), noise=0.005)
    found = calibrate(seen, bootstrap=10)
    assert found.left_out is not None
    assert found.left_out.mean < 0.05
    assert any("chosen by leave-one-load-out" in note for note in found.notes)
    table = calibrate(seen, model=TableFamily(4), drafter="autoregressive", bootstrap=0)
    assert table.family == "table/4"


def test_as_many_points_as_numbers_have_no_interval() -> None:
    seen = observed(
        SpeculationCost(LinearStep(0.02, 1e-4), DRAFTER), CURVE, loads=(1, 64), gammas=(None,), contexts=(1.0,)
    )
    found = calibrate(seen, model="linear", bootstrap=50)
    assert all(p.low is None and p.high is None for p in found.parameters)
    assert found.intervals_over is None
