"""Classes told apart by the counters of simulated replicas."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptive_gamma.policy import load_policy
from adaptive_gamma.roofline import AcceptanceCurve
from adaptive_gamma.simulation.control import recovery_from_counters

POLICY = load_policy(Path(__file__).resolve().parents[2] / "policies" / "h200-llama3-70b-fp8.yaml")
TRUTH = {
    "structured": AcceptanceCurve.two_parameter(0.86, 0.84),
    "chat": AcceptanceCurve.two_parameter(0.70, 0.62),
    "unsure": AcceptanceCurve.two_parameter(0.55, 0.48),
}
BELIEVED = AcceptanceCurve.two_parameter(0.74, 0.70)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_three_classes_over_six_replicas_from_counters_alone(seed: int) -> None:
    found = recovery_from_counters(POLICY, TRUTH, BELIEVED, seed=seed, seconds=120.0)
    assert [each.request_class for each in found] == list(TRUTH)
    for each in found:
        print(f"seed {seed}: {each.request_class} E(4) {each.learned_tokens:.3f} for {each.true_tokens:.3f}")
        assert each.learned_tokens == pytest.approx(each.true_tokens, rel=0.05)
        assert each.inferred
        assert abs(each.believed_tokens / each.true_tokens - 1.0) > 0.05, "what was believed would not have done"


def test_a_second_of_traffic_is_worth_little() -> None:
    for each in recovery_from_counters(POLICY, TRUTH, BELIEVED, seed=1, seconds=1.0):
        assert each.drafts < 100
