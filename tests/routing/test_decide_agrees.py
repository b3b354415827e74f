"""The decision gives what the plain one gives, and a price book changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.errors import NoReplica
from adaptive_gamma.policy import load_policy
from adaptive_gamma.routing import (
    DecisionLimits,
    GammaSchedule,
    PolicyPrices,
    PriceBook,
    ReplicaState,
    RequestNeeds,
    decide,
)

from .prices import LinearPrices
from .reference_decide import reference_decide

LINEAR = LinearPrices()
BUILT = load_policy(Path(__file__).resolve().parents[2] / "policies" / "h100-llama3-8b-eagle3.yaml")
SCHEDULES = (GammaSchedule([(1, 4, 5), (5, 16, 2), (17, 64, 0)]), GammaSchedule([(1, 500, 3)]))

STATES = st.builds(
    ReplicaState,
    name=st.just(""),
    speculative=st.sampled_from([None, False, True, True]),
    gamma=st.sampled_from([None, 0, 1, 4, 7, *SCHEDULES]),
    healthy=st.sampled_from([True, True, True, False]),
    draining=st.sampled_from([False, False, False, True]),
    running=st.none() | st.integers(0, 600),
    waiting=st.none() | st.integers(0, 3),
    kv_usage=st.none() | st.sampled_from([0.1, 0.95, 1.0]),
    fresh_until=st.sampled_from([100.0, 100.0, 10.0]),
    in_flight=st.integers(0, 5),
    in_flight_at_scrape=st.integers(0, 5),
    models=st.sampled_from([None, frozenset({"m"}), frozenset({"n"})]),
    refused_parameters=st.sampled_from([frozenset[str](), frozenset({"min_p"})]),
    context_limit=st.sampled_from([None, None, 1000, 40_000]),
    acceptance_ratio=st.none() | st.floats(0.0, 1.5),
    step_time_ratio=st.sampled_from([None, None, 0.5, 1.0, 1.3, 2.0]),
)
NEEDS = st.builds(
    RequestNeeds,
    request_class=st.sampled_from(["structured", "chat", "unsure", "code", "other"]),
    prompt_tokens=st.none() | st.integers(0, 100_000),
    model=st.sampled_from([None, "m"]),
    parameters=st.sampled_from([frozenset[str](), frozenset({"min_p"})]),
    max_output_tokens=st.none() | st.integers(1, 1000),
    cached=st.none(),
    pinned=st.sampled_from([None, None, "r0", "r3", "gone"]),
)
LIMITS = st.builds(
    DecisionLimits,
    slo_tpot_s=st.sampled_from([None, None, 0.01, 0.03]),
    tie_margin=st.sampled_from([0.0, 0.01, 0.5]),
)


def outcome(decide_once: Any, *args: Any, **more: Any) -> object:
    try:
        return decide_once(*args, now=50.0, **more)
    except NoReplica as error:
        return str(error), error.model_unknown


@pytest.mark.parametrize("policy", [LINEAR, BUILT], ids=["linear", "built"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_same_decisions_as_the_plain_form(policy: PolicyPrices, data: st.DataObject) -> None:
    states = data.draw(st.lists(STATES, max_size=24))
    copies = data.draw(st.integers(1, 3))
    fleet = [state for state in states for _ in range(copies)]
    fleet = [_named(state, f"r{i}") for i, state in enumerate(fleet)]
    book = PriceBook()
    for _ in range(3):
        needs = data.draw(NEEDS)
        more: dict[str, Any] = {
            "tie_break": data.draw(st.floats(0, 1, exclude_max=True)),
            "limits": data.draw(LIMITS),
            "exclude": data.draw(st.sampled_from([(), {"r0"}])),
        }
        expected = outcome(reference_decide, needs, fleet, policy, **more)
        assert outcome(decide, needs, fleet, policy, **more) == expected
        assert outcome(decide, needs, fleet, policy, prices=book, **more) == expected


def _named(state: ReplicaState, name: str) -> ReplicaState:
    return ReplicaState(**{field: getattr(state, field) for field in ReplicaState.__slots__} | {"name": name})


def test_another_policy_starts_the_book_afresh() -> None:
    book = PriceBook()
    fleet = [ReplicaState("a", speculative=True, gamma=4), ReplicaState("b", speculative=False)]
    for policy in (LINEAR, LinearPrices(draft=0.5), BUILT, LINEAR):
        for prompt in (None, 10, 40_000):
            needs = RequestNeeds("chat", prompt)
            kept = decide(needs, fleet, policy, now=0.0, tie_break=0.0, prices=book)
            assert kept == decide(needs, fleet, policy, now=0.0, tie_break=0.0)


def test_a_book_stays_small_whatever_the_class_is_called() -> None:
    book = PriceBook()
    for i in range(10_000):
        book.pricing(BUILT, f"class-{i}", i * 10)
        assert len(book) <= 256
