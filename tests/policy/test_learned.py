"""The same policy with other acceptance."""

from __future__ import annotations

import pytest
import yaml

from adaptive_gamma.errors import PolicyError
from adaptive_gamma.policy import Policy, load_policy, policy_yaml, shipped_policies, with_curves
from adaptive_gamma.roofline import AcceptanceCurve


@pytest.mark.parametrize("name", sorted(shipped_policies()))
def test_only_the_acceptance_of_the_class_changes(name: str) -> None:
    policy = load_policy(name)
    changed, *others = policy.classes
    curve = AcceptanceCurve((0.41, 0.37, 0.39), 0.39)
    learned = with_curves(policy, {changed: curve})
    assert learned.curves[changed].expected_tokens(8) == pytest.approx(curve.expected_tokens(8))
    assert (learned.name, learned.classes, learned.default_class) == (policy.name, policy.classes, policy.default_class)
    for batch in (1, 8, policy.max_batch):
        assert learned.step_seconds(batch, 3) == policy.step_seconds(batch, 3)
        for other in others:
            assert learned.best_gamma(other, batch) == policy.best_gamma(other, batch)
            assert learned.expected_tokens(other, 4) == policy.expected_tokens(other, 4)
    assert learned.best_gamma(changed, 1) <= policy.best_gamma(changed, 1)
    assert policy.curves[changed].expected_tokens(8) > learned.curves[changed].expected_tokens(8)


def test_a_learned_policy_is_a_policy_file_like_any_other() -> None:
    policy = with_curves(load_policy("h200-llama3-70b-fp8"), {"chat": AcceptanceCurve.two_parameter(0.5, 0.4)})
    assert "acceptance of chat: learned from traffic" in policy.document.measured
    again = Policy.from_mapping(yaml.safe_load(policy_yaml(policy)), "again")
    assert again.expected_tokens("chat", 5) == pytest.approx(policy.expected_tokens("chat", 5))


def test_an_unknown_class_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(PolicyError, match="did you mean 'chat'"):
        with_curves(load_policy("h200-llama3-70b-fp8"), {"chatt": AcceptanceCurve.independent(0.5)})
