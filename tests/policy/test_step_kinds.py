"""Step times and drafters as a policy writes them, there and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adaptive_gamma.errors import PolicyError
from adaptive_gamma.policy import class_prior_input, cost_inputs, policy_yaml, rebuild_policy
from adaptive_gamma.policy.physics import curve_of
from adaptive_gamma.policy.schema import ClassPrior
from adaptive_gamma.roofline import (
    AcceptanceCurve,
    AutoregressiveDrafter,
    CapturedStep,
    CaptureSizes,
    Drafter,
    LinearStep,
    MeasuredTableStep,
    ModelShare,
    MoeStep,
    NgramDrafter,
    ParallelDrafter,
    PassFraction,
    PassSeconds,
    PlainPoolStep,
    RooflineStep,
    SpeculationCost,
    StepTime,
    ZeroGammaTax,
)

from .inputs import small_inputs

TABLE = MeasuredTableStep.from_points([(1, 0.005), (16, 0.0056), (512, 0.015)], "log")
STEPS: list[StepTime] = [
    LinearStep(0.02, 1e-4, 5e-8),
    MoeStep(4e-3, 7e-3, 0.0625, 8e-6, 0.85, 2e-9, 1e-3, 2.0),
    MoeStep(4e-3, 7e-3, 0.0625, 8e-6, combine="max"),
    TABLE,
    MeasuredTableStep((1.0, 64.0), ((0.005, 0.008), (0.006, 0.012)), (500.0, 8000.0)),
    PlainPoolStep(TABLE),
    PlainPoolStep(MoeStep(4e-3, 7e-3, 0.0625, 8e-6), kv_read_once=True),
    RooflineStep(16e9, 16e9, 131_072, 3.35e12, 989e12, 0.8, 0.7, 2.0, 1e-3),
    PlainPoolStep(RooflineStep(16e9, 16e9, 131_072, 3.35e12, 989e12)),
    CapturedStep(TABLE, CaptureSizes((1, 2, 4, 8, 64, 512)), None, 0.08),
    CapturedStep(LinearStep(0.02, 1e-4), None, 256, 0.08),
]
DRAFTERS: list[Drafter] = [
    AutoregressiveDrafter(PassFraction(0.12), 0.05, 0.001),
    AutoregressiveDrafter(PassSeconds(0.001)),
    AutoregressiveDrafter(ModelShare(0.04, 0.05, 0.06)),
    ParallelDrafter(ModelShare(0.2, 0.21, 0.22)),
    NgramDrafter(0.01),
]


def written(cost: SpeculationCost) -> dict[str, Any]:
    """A policy file that holds these times."""
    data, parts = small_inputs(), cost_inputs(cost)
    inputs = data["inputs"]
    inputs |= {"step_time": parts.step_time, "drafter": parts.drafter}
    inputs["limits"] = {"max_gamma": 6, "max_batch": 300, "context_buckets": [500, 2000, 8000], **parts.limits}
    for key, section in (("hardware", parts.hardware), ("model", parts.model)):
        if section is not None:
            inputs[key] = {"name": key, **section}
    return data


@pytest.mark.parametrize("step", STEPS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("drafter", DRAFTERS, ids=lambda d: type(d).__name__)
def test_a_policy_gives_the_times_it_was_written_from(step: StepTime, drafter: Drafter) -> None:
    cost = SpeculationCost(step, drafter, ZeroGammaTax.of([(2, 0.06), (100, 0.2)]), 512)
    if isinstance(step, CapturedStep) and step.limit_tokens is not None:
        cost = SpeculationCost(step, drafter, ZeroGammaTax.of(0.1), step.limit_tokens)
    policy = rebuild_policy(written(cost), "written.yaml")
    batches, gammas = np.asarray([1, 7, 64, 300])[:, None, None], np.asarray([0, 1, 5])[:, None]
    for prefill in (0, 100):
        given = cost.speculative_seconds(batches, gammas, [500, 4000], prefill)
        assert np.allclose(policy.cost.speculative_seconds(batches, gammas, [500, 4000], prefill), given, rtol=1e-12)
    assert policy.cost.capture_limit_tokens == cost.capture_limit_tokens
    assert "kind: " + written(cost)["inputs"]["step_time"]["kind"] in policy_yaml(policy)


@pytest.mark.parametrize(
    "curve",
    [
        AcceptanceCurve.independent(0.7),
        AcceptanceCurve.two_parameter(0.8, 0.7),
        AcceptanceCurve.from_conditional([0.9, 0.8, 0.7], 0.65),
    ],
)
def test_a_class_gives_the_curve_it_was_written_from(curve: AcceptanceCurve) -> None:
    prior = ClassPrior.model_validate(class_prior_input(curve))
    read = curve_of(prior, "x", "y")
    for gamma in range(9):
        assert read.expected_tokens(gamma) == pytest.approx(curve.expected_tokens(gamma))


def test_a_step_time_that_a_policy_has_no_kind_for() -> None:
    with pytest.raises(TypeError, match="CapturedStep"):
        cost_inputs(SpeculationCost(PlainPoolStep(CapturedStep(TABLE)), NgramDrafter()))


TABLE_INPUT: dict[str, Any] = {"kind": "table", "tokens": [1, 64], "seconds": [0.005, 0.008]}
MOE_INPUT: dict[str, Any] = {
    "kind": "moe", "shared_seconds": 4e-3, "experts_seconds": 7e-3, "active_share": 0.06, "seconds_per_token": 8e-6,
}  # fmt: skip


@pytest.mark.parametrize(
    ("step_time", "key", "says"),
    [
        ({**TABLE_INPUT, "seconds": [0.008, 0.005]}, "inputs.step_time", "must not fall"),
        ({**TABLE_INPUT, "seconds": [5.0, 800.0]}, "inputs.step_time.seconds[1]", "20.6 ms is 0.0206"),
        ({**TABLE_INPUT, "seconds": [0.005]}, "inputs.step_time", "2 times"),
        ({**TABLE_INPUT, "tokens": [64, 1]}, "inputs.step_time", "rise"),
        ({**TABLE_INPUT, "rows": [[0.1, 0.2]], "contexts": [1]}, "inputs.step_time", "or rows"),
        ({**TABLE_INPUT, "contexts": [1.0]}, "inputs.step_time.contexts", "goes with rows"),
        ({"kind": "table", "tokens": [1, 64]}, "inputs.step_time", "expected seconds"),
        ({**TABLE_INPUT, "interpolation": "cubic"}, "inputs.step_time.interpolation", "linear"),
        ({**MOE_INPUT, "active_share": 8.0}, "inputs.step_time.active_share", "less than 1"),
        ({**MOE_INPUT, "shared_seconds": 20.6}, "inputs.step_time.shared_seconds", "seconds per step"),
        ({**MOE_INPUT, "combine": "sum"}, "inputs.step_time.combine", "'max' or a power"),
        ({**MOE_INPUT, "experts": 128}, "inputs.step_time.experts", "unknown key"),
        ({"kind": "plain_pool", "plain": {**TABLE_INPUT, "tokens": [2, 1]}}, "inputs.step_time.plain", "rise"),
        ({"kind": "mole"}, "inputs.step_time.kind", "did you mean 'moe'"),
    ],
)
def test_wrong_step_times_name_the_key(step_time: dict[str, Any], key: str, says: str) -> None:
    data = small_inputs()
    data["inputs"]["step_time"] = step_time
    with pytest.raises(PolicyError, match=r"wrong\.yaml") as found:
        rebuild_policy(data, "wrong.yaml")
    assert found.value.key == key
    assert says in str(found.value)


def test_the_cliff_needs_a_limit() -> None:
    data = small_inputs()
    del data["inputs"]["limits"]["capture_limit_tokens"]
    data["inputs"]["limits"]["uncaptured_seconds"] = 0.08
    with pytest.raises(PolicyError, match="capture_limit_tokens"):
        rebuild_policy(data, "wrong.yaml")


def test_plain_decoding_beyond_the_limit_pays_the_cliff() -> None:
    data = small_inputs()
    data["inputs"]["limits"] |= {"capture_limit_tokens": 200, "uncaptured_seconds": 0.08}
    policy = rebuild_policy(data, "cliff.yaml")
    assert policy.step_seconds(201, 0, speculative=False) > policy.step_seconds(200, 0, speculative=False) + 0.08
    assert all(gamma == 0 for first, _, gamma in policy.table.classes["chat"][2000].best_gamma if first > 100)
