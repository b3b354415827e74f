"""Shares: requests placed one after the other by the decision itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.policy import Policy, load_policy
from adaptive_gamma.routing import DecisionLimits, ReplicaState, RequestNeeds, decide
from adaptive_gamma.routing.shares import Expected, Shares, even_shares, shares_of

POLICY = "demo-llamacpp-cpu"
LIMITS = DecisionLimits()


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(POLICY)


def state(name: str, gamma: int = 0, in_flight: int = 0, **more: object) -> ReplicaState:
    found = ReplicaState(name, speculative=gamma > 0, gamma=gamma, in_flight=in_flight)
    return replace(found, **more)  # type: ignore[arg-type]


def weights(shares: Shares) -> dict[str, int]:
    return {share.replica: share.weight for share in shares.first}


def share(
    policy: Policy, states: list[ReplicaState], *expected: tuple[str, float], **more: object
) -> list[dict[str, int]]:
    kinds = [Expected(RequestNeeds(name, **more), requests) for name, requests in expected]  # type: ignore[arg-type]
    return [weights(each) for each in shares_of(kinds, states, policy, now=0.0, limits=LIMITS)]


def test_one_request_goes_where_the_decision_sends_it(policy: Policy) -> None:
    for load in range(12):
        states = [state("spec", 4, load), state("plain")]
        for name in ("structured", "chat"):
            decided = decide(RequestNeeds(name), states, policy, now=0.0, tie_break=0.0)
            assert share(policy, states, (name, 0.0)) == [{decided.replica: 1}]


def test_equals_share_however_few_are_expected(policy: Policy) -> None:
    states = [state("a", 4), state("b", 4), state("c", 4), state("plain")]
    assert share(policy, states, ("structured", 0.0)) == [{"a": 1, "b": 1, "c": 1}]
    assert share(policy, states, ("structured", 2.0)) == [{"a": 1, "b": 1, "c": 1}]


def test_what_is_open_counts(policy: Policy) -> None:
    states = [state("a", 4, 3), state("b", 4)]
    assert share(policy, states, ("structured", 1.0)) == [{"b": 1}]
    (both,) = share(policy, states, ("structured", 5.0))
    assert both["b"] > both["a"] > 0


def test_classes_are_placed_on_each_others_loads(policy: Policy) -> None:
    states = [state("a"), state("b")]
    first, second = share(policy, states, ("structured", 6.0), ("chat", 6.0))
    for name in ("a", "b"):
        assert abs(first.get(name, 0) + second.get(name, 0) - 6) <= 1


def test_of_very_many_each_placed_stands_for_several(policy: Policy) -> None:
    states = [state("a"), state("b")]
    (both,) = share(policy, states, ("structured", 100_000.0))
    assert sum(both.values()) <= 520
    assert abs(both["a"] - both["b"]) <= 1


def test_those_that_would_refuse_come_last(policy: Policy) -> None:
    states = [
        state("spec", 4, refused_parameters=frozenset({"min_p"})),
        state("plain"),
        state("down", healthy=False),
    ]
    kinds = [Expected(RequestNeeds("structured", parameters=frozenset({"min_p"})), 1.0)]
    (found,) = shares_of(kinds, states, policy, now=0.0, limits=LIMITS)
    assert (weights(found), found.spare, found.last) == ({"plain": 1}, ("down",), ("spec",))
    assert found.first[0].reason in ("capability", "only_replica")


def test_only_those_that_have_the_model(policy: Policy) -> None:
    states = [state("spec", 4), state("plain")]
    kinds = [Expected(RequestNeeds("structured"), 1.0, frozenset({"plain"}))]
    (found,) = shares_of(kinds, states, policy, now=0.0, limits=LIMITS)
    assert (weights(found), found.spare) == ({"plain": 1}, ())


def test_no_room_anywhere(policy: Policy) -> None:
    states = [state("a", in_flight=1, max_in_flight=1), state("b", in_flight=0, max_in_flight=1)]
    (some,) = shares_of([Expected(RequestNeeds("chat"), 5.0)], states, policy, now=0.0, limits=LIMITS)
    assert (weights(some), some.at_capacity) == ({"b": 1}, False)
    states[1].in_flight = 1
    (none,) = shares_of([Expected(RequestNeeds("chat"), 5.0)], states, policy, now=0.0, limits=LIMITS)
    assert (weights(none), none.at_capacity, none.spare) == ({}, True, ("a", "b"))


def test_while_observing_all_that_can_share(policy: Policy) -> None:
    states = [state("spec", 4, refused_parameters=frozenset({"min_p"})), state("plain"), state("down", healthy=False)]
    found = even_shares(Expected(RequestNeeds("chat"), 0.0), states)
    assert (weights(found), found.spare) == ({"spec": 1, "plain": 1}, ("down",))
    found = even_shares(Expected(RequestNeeds("chat", parameters=frozenset({"min_p"})), 0.0), states)
    assert (weights(found), found.last) == ({"plain": 1}, ("spec",))


STATES = st.lists(
    st.builds(
        lambda gamma, load, healthy, draining, cap: {
            "gamma": gamma, "in_flight": load, "healthy": healthy, "draining": draining, "max_in_flight": cap
        },
        st.sampled_from([0, 0, 2, 4]), st.integers(0, 40), st.booleans(), st.booleans(), st.none() | st.integers(1, 40),
    ),
    min_size=1, max_size=6,
)  # fmt: skip


@given(rows=STATES, requests=st.lists(st.floats(0, 60), min_size=1, max_size=3))
def test_every_replica_that_does_not_drain_is_there_once(
    policy: Policy, rows: list[dict[str, object]], requests: list[float]
) -> None:
    states = []
    for index, row in enumerate(rows):
        gamma = int(str(row.pop("gamma")))
        states.append(replace(state(f"r{index}", gamma), **row))  # type: ignore[arg-type]
    before = [replace(each) for each in states]
    kinds = [Expected(RequestNeeds(policy.classes[i % len(policy.classes)]), n) for i, n in enumerate(requests)]
    for found in shares_of(kinds, states, policy, now=0.0, limits=LIMITS):
        names = [share.replica for share in found.first] + [*found.spare, *found.last]
        assert sorted(names) == [each.name for each in states if not each.draining]
        assert all(share.weight >= 1 for share in found.first)
        # One at its cap is waited for, rather than one that is down be asked.
        assert found.first or found.at_capacity or all(each.draining for each in states)
        assert not (found.first and found.at_capacity)
    assert states == before
