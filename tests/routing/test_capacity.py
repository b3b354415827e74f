"""Caps of open requests, and the slow start of a replica that has just joined."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.errors import NoReplica
from adaptive_gamma.routing import DecisionLimits, ReplicaState, RequestNeeds, decide, least_loaded

from .fleets import PRICES, choose, replica

NEEDS = RequestNeeds("chat")


def test_a_replica_at_its_cap_takes_no_more() -> None:
    fleet = [replica("spec", 4, in_flight=2, max_in_flight=2), replica("plain", load=9)]
    decision = choose(fleet)
    assert decision.replica == "plain"
    assert decision.excluded == (("spec", "at its cap"),)
    assert least_loaded(NEEDS, fleet, now=50.0, tie_break=0.0).name == "plain"
    fleet[0].in_flight = 1
    assert choose(fleet).replica == "spec"


def test_the_cap_counts_our_own_requests_only() -> None:
    assert choose([replica("a", load=40, in_flight=1, in_flight_at_scrape=1, max_in_flight=2)]).chosen.load == 40


def test_all_at_their_cap_is_said_apart_from_nothing_there() -> None:
    full = replica("full", in_flight=1, max_in_flight=1)
    for fleet in ([full], [full, replica("gone", draining=True)], [full, replica("tried")]):
        for attempt in (lambda f: choose(f, exclude={"tried"}), _least):
            with pytest.raises(NoReplica, match="full: at its cap") as caught:
                attempt(fleet)
            assert caught.value.at_capacity
    with pytest.raises(NoReplica) as caught:
        choose([replica("gone", draining=True)])
    assert not caught.value.at_capacity
    with pytest.raises(NoReplica) as caught:
        choose([replica("none", max_in_flight=0)])
    assert caught.value.at_capacity


def _least(fleet: list[ReplicaState]) -> ReplicaState:
    return least_loaded(NEEDS, fleet, now=50.0, tie_break=0.0, exclude={"tried"})


def test_a_request_waits_for_a_full_replica_rather_than_go_to_one_that_is_down_or_refuses() -> None:
    full = replica("full", in_flight=1, max_in_flight=1)
    down, refuses = replica("down", healthy=False), replica("spec", 4, refused_parameters=frozenset({"min_p"}))
    min_p = RequestNeeds("chat", parameters=frozenset({"min_p"}))
    for needs, other in ((NEEDS, down), (min_p, refuses)):
        for rule in (lambda f, n: choose(f, needs=n), lambda f, n: least_loaded(n, f, now=50.0, tie_break=0.0)):
            with pytest.raises(NoReplica) as caught:
                rule([full, other], needs)
            assert caught.value.at_capacity
    assert choose([full, refuses]).replica == "spec"
    crowded = replica("crowded", kv_usage=0.99)
    assert choose([full, crowded]).replica == "crowded", "a soft limit is no reason to wait"
    full.healthy = False
    assert choose([full, down]).reason == "fallback"


def test_a_ramping_replica_is_priced_as_if_it_carried_more() -> None:
    """A fifth of the ramp has passed, so each of its requests weighs five times."""
    joined = replica("joined", load=2, ramp_until=74.0, ramp_s=30.0)
    decision = choose([joined])
    assert decision.chosen.cost_s == pytest.approx(choose([replica("r", load=10)]).chosen.cost_s)
    assert decision.chosen.load == 2, "what it carries is said as it is"
    assert decision.chosen.tpot_s == pytest.approx(choose([replica("r", load=2)]).chosen.tpot_s)
    peer = replica("peer", load=9)
    assert choose([joined, peer], limits=DecisionLimits(tie_margin=0.0)).replica == "peer"
    assert least_loaded(NEEDS, [joined, peer], now=50.0, tie_break=0.0).name == "peer"
    assert choose([joined, replica("peer", load=11)], limits=DecisionLimits(tie_margin=0.0)).replica == "joined"
    joined.ramp_until = 50.0
    assert choose([joined, peer]).replica == "joined"


@given(st.integers(0, 3), st.integers(0, 60), st.sampled_from([0.0, 30.0]), st.floats(-10.0, 120.0))
def test_the_weight_of_a_load_falls_from_ten_to_one(gamma: int, load: int, ramp_s: float, left: float) -> None:
    share = 1.0 if left <= 0 or ramp_s <= 0 else max(1 - left / ramp_s, 0.1)
    cost = choose([replica("r", gamma, load=load, ramp_until=50.0 + left, ramp_s=ramp_s)]).chosen.cost_s
    least, most = (
        choose([replica("r", gamma, load=int(n))]).chosen.cost_s for n in (load / share, load / share + 0.999)
    )
    assert least * (1 - 1e-9) <= cost <= most * (1 + 1e-9)


def test_a_joining_replica_is_not_flooded() -> None:
    """Sixty requests arrive in its first second of thirty: it gets a tenth of an equal share, and more as it ramps."""
    fleet = [replica(f"r{i}", load=0) for i in range(3)] + [replica("new", load=0, ramp_until=80.0, ramp_s=30.0)]
    shares = []
    for now in (50.0, 65.0, 81.0):
        for state in fleet:
            state.in_flight, state.fresh_until = 0, 100.0
        sent: Counter[str] = Counter()
        for step in range(60):
            decision = decide(NEEDS, fleet, PRICES, now=now, tie_break=(step * 0.618) % 1.0)
            sent[decision.replica] += 1
            next(s for s in fleet if s.name == decision.replica).in_flight += 1
        shares.append(sent["new"])
    assert shares[0] <= 3
    assert 6 <= shares[1] <= 11
    assert shares[2] >= 14
