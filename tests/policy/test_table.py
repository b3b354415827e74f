"""Look-ups: what a decision reads is what the model says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.policy import Policy, load_policy, rebuild_policy
from adaptive_gamma.routing import DecisionLimits, PolicyPrices, ReplicaState, RequestNeeds, decide

from .inputs import POLICIES, SHIPPED, small_inputs, small_policy

POLICY = small_policy()
CLASSES = st.sampled_from(POLICY.classes)
CONTEXTS = st.sampled_from([500, 2000, 8000])


@given(CLASSES, st.integers(1, 300), st.integers(0, 10), CONTEXTS)
def test_lookups_equal_the_model(name: str, batch: int, gamma: int, context: int) -> None:
    cost, curve = POLICY.cost, POLICY.curves[name]
    assert POLICY.step_seconds(batch, gamma, context) == cost.speculative_seconds(batch, gamma, context)
    assert POLICY.step_seconds(batch, gamma, context, speculative=False) == cost.plain_seconds(batch, context)
    assert POLICY.expected_tokens(name, gamma) == curve.expected_tokens(gamma)
    assert POLICY.speedup(name, batch, gamma, context) == pytest.approx(
        float(cost.speedup(batch, gamma, context, curve))
    )
    assert POLICY.step_row(gamma, context)[batch] == POLICY.step_seconds(batch, gamma, context)


@given(CLASSES, st.integers(1, 300), CONTEXTS)
def test_best_gamma_is_the_best_that_fits(name: str, batch: int, context: int) -> None:
    best = POLICY.best_gamma(name, batch, context)
    fitting = [g for g in range(1, 7) if batch * (g + 1) <= 512]
    if not fitting:
        assert best == 0
    else:
        speedups = {g: POLICY.speedup(name, batch, g, context) for g in fitting}
        assert best in fitting
        assert speedups[best] == pytest.approx(max(speedups.values()))


@given(CLASSES, CONTEXTS)
def test_plain_wins_from_there_on_and_not_before(name: str, context: int) -> None:
    start = POLICY.plain_wins_from(name, context)

    def beats_plain(batch: int) -> bool:
        return any(POLICY.speedup(name, batch, g, context) >= 1.0 for g in range(1, 7) if batch * (g + 1) <= 512)

    assert start is not None
    assert not any(beats_plain(batch) for batch in range(start, 301))
    assert beats_plain(start - 1)


@given(st.integers(0, 10), CONTEXTS, st.booleans())
def test_marginal_rows(gamma: int, context: int, speculative: bool) -> None:
    row = POLICY.marginal_row(gamma, context, speculative)
    assert len(row) == POLICY.max_batch
    assert isinstance(row, list)
    assert isinstance(row[0], float)
    assert row[0] == POLICY.step_seconds(1, gamma, context, speculative)
    for n in (1, 2, 50, 150, 299):
        before = POLICY.step_seconds(n, gamma, context, speculative)
        after = POLICY.step_seconds(n + 1, gamma, context, speculative)
        assert row[n] == pytest.approx(after + n * (after - before))


def test_marginal_costs_add_up_to_the_total() -> None:
    """Sum of t(n+1) + n (t(n+1) - t(n)) over n telescopes to N t(N): all requests' time in a step."""
    row = POLICY.marginal_row(3, 2000)
    assert sum(row[:120]) == pytest.approx(120 * POLICY.step_seconds(120, 3, 2000))


def test_rows_are_built_once() -> None:
    policy = small_policy()
    assert policy.step_row(3) is policy.step_row(3, 2000)
    assert policy.marginal_row(3) is policy.marginal_row(3, 2000)
    assert policy.step_row(0, None, False) is policy.step_row(5, None, False)
    assert len(policy.step_row(3)) == policy.max_batch + 1
    assert policy.step_row(3)[0] == policy.step_row(3)[1]


def test_a_plain_replica_has_no_gamma_and_no_tax() -> None:
    plain = POLICY.step_seconds(189, 0, speculative=False)
    assert POLICY.step_seconds(189, 5, speculative=False) == plain
    assert POLICY.step_seconds(189, 0) == pytest.approx(plain * 1.2158)


def test_batches_beyond_the_table_go_on_in_a_line() -> None:
    last, before = POLICY.step_seconds(300, 2), POLICY.step_seconds(299, 2)
    assert POLICY.step_seconds(310, 2) == pytest.approx(last + 10 * (last - before))
    assert POLICY.step_seconds(0, 2) == POLICY.step_seconds(1, 2)
    assert POLICY.step_seconds(-3, 2) == POLICY.step_seconds(1, 2)


def test_best_gamma_beyond_the_table_keeps_the_capture_limit() -> None:
    data = small_inputs()
    data["inputs"]["limits"]["max_batch"] = 100
    policy = rebuild_policy(data, "small.yaml")
    assert policy.best_gamma("structured", 100) == 3
    assert policy.best_gamma("structured", 128) == 3
    assert policy.best_gamma("structured", 129) == 2
    assert policy.best_gamma("structured", 256) == 1
    assert policy.best_gamma("structured", 257) == 0
    assert policy.best_gamma("structured", 0) == policy.best_gamma("structured", 1)


@pytest.mark.parametrize(
    ("context", "bucket"), [(None, 2000), (1, 500), (999, 500), (1001, 2000), (3999, 2000), (4001, 8000), (1e9, 8000)]
)
def test_contexts_take_the_nearest_bucket(context: float | None, bucket: int) -> None:
    assert POLICY.step_seconds(50, 2, context) == POLICY.cost.speculative_seconds(50, 2, bucket)


def test_classes_and_their_aliases() -> None:
    assert POLICY.classes == ("structured", "chat", "unsure")
    for name in ("structured", "code", "math"):
        assert POLICY.class_for(name) == "structured"
    assert POLICY.class_for("prose") == "chat"
    assert POLICY.class_for("haiku") == "unsure"
    assert POLICY.expected_tokens("code", 4) == POLICY.expected_tokens("structured", 4)
    assert POLICY.best_gamma("prose", 8) == POLICY.best_gamma("chat", 8)
    assert POLICY.plain_wins_from("math") == POLICY.plain_wins_from("structured")


def test_a_policy_with_classes_of_its_own() -> None:
    article = load_policy(POLICIES / "article-h100-27b.yaml")
    assert article.classes == ("decaying", "independent_0.8", "independent_0.6")
    for name in ("structured", "code", "chat", "unsure"):
        assert article.class_for(name) == "decaying"
    data = small_inputs()
    data["inputs"]["classes"]["code"] = data["inputs"]["classes"]["chat"]
    assert rebuild_policy(data, "x").class_for("code") == "code"


def test_gammas_beyond_the_search_are_priced_too() -> None:
    assert POLICY.step_seconds(4, 40) == POLICY.cost.speculative_seconds(4, 40, 2000)
    assert POLICY.expected_tokens("chat", 100) == POLICY.curves["chat"].expected_tokens(100)
    with pytest.raises(ValueError, match="gamma"):
        POLICY.step_seconds(4, -1)
    with pytest.raises(ValueError, match="gamma"):
        POLICY.expected_tokens("chat", -1)


def test_prefill_is_priced_by_the_token() -> None:
    assert POLICY.prefill_seconds(2048) == pytest.approx(2048e-4)


def test_ties_go_to_the_smaller_gamma() -> None:
    data = small_inputs()
    data["inputs"]["step_time"] = {"kind": "linear", "fixed_seconds": 0.02, "seconds_per_token": 0.0}
    data["inputs"]["drafter"] = {"kind": "ngram", "fraction": 0.0}
    data["inputs"]["classes"]["chat"] = {"reading": "conditional", "rates": [0.6, 0.5, 0.0]}
    policy = rebuild_policy(data, "x")
    assert policy.best_gamma("chat", 1) == 2
    assert policy.best_gamma("structured", 1) == 6


def test_gamma_zero_may_compete() -> None:
    data = small_inputs()
    data["inputs"]["limits"].update(min_gamma=0, zero_gamma_tax=0.0)
    data["inputs"]["classes"]["chat"] = {"reading": "conditional", "independent": 0.02}
    policy = rebuild_policy(data, "x")
    assert policy.best_gamma("chat", 1) == 0
    assert policy.plain_wins_from("chat") == 1
    assert policy.speedup("chat", 1, 0) == 1.0


@pytest.mark.parametrize("name", SHIPPED)
def test_a_policy_is_what_decide_asks_for(name: str) -> None:
    policy: PolicyPrices = load_policy(POLICIES / f"{name}.yaml")
    states = [
        ReplicaState("spec", speculative=True, gamma=4, running=3, waiting=0, fresh_until=9.0),
        ReplicaState("plain", speculative=False, gamma=0, running=3, waiting=0, fresh_until=9.0),
    ]
    decision = decide(
        RequestNeeds("code", 900), states, policy, now=1.0, tie_break=0.5, limits=DecisionLimits(tie_margin=0.0)
    )
    stall = 3 * policy.prefill_seconds(900) / 200
    costs = {
        "spec": policy.marginal_row(4, 900)[3] / policy.expected_tokens("code", 4) + stall,
        "plain": policy.marginal_row(0, 900, False)[3] + stall,
    }
    assert decision.replica == min(costs, key=lambda replica: costs[replica])
    assert decision.chosen.cost_s == pytest.approx(min(costs.values()))


def test_the_largest_build_is_a_matter_of_numpy() -> None:
    """3 classes x 3 contexts x 512 batches x 16 gammas, without a Python loop over batches."""
    data = small_inputs()
    data["inputs"]["limits"].update(max_gamma=16, max_batch=512)
    policy: Policy = rebuild_policy(data, "x")
    grid = np.asarray([[policy.speedup("chat", b, g) for g in range(1, 17)] for b in (1, 64, 512)])
    stored = policy.table.classes["chat"][2000].speedup
    for row, batch in zip(grid, (1, 64, 512), strict=True):
        for value, kept in zip(row, stored[batch], strict=True):
            assert kept is None or kept == round(float(value), 4)
