"""Requests that a replica cannot serve as they should be served, and where they go."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.errors import NoReplica
from adaptive_gamma.routing import STRUCTURED_OUTPUT, ReplicaState, RequestNeeds, decide, is_capable, least_loaded

from .prices import LinearPrices

PRICES = LinearPrices()


def replica(name: str, gamma: int = 0, *, load: int = 0, **more: Any) -> ReplicaState:
    return ReplicaState(
        name,
        speculative=gamma > 0,
        gamma=gamma,
        running=load,
        fresh_until=100.0,
        **more,
    )


def choose(needs: RequestNeeds, fleet: list[ReplicaState], **more: Any) -> tuple[str, str]:
    decision = decide(needs, fleet, PRICES, now=50.0, tie_break=0.0, **more)
    return decision.replica, decision.reason


def why(needs: RequestNeeds, fleet: list[ReplicaState]) -> dict[str, str]:
    return dict(decide(needs, fleet, PRICES, now=50.0, tie_break=0.0).excluded)


LONG = [replica("spec", 4, context_limit=4000), replica("plain", load=40)]


@pytest.mark.parametrize(
    ("prompt", "output", "expected"),
    [
        (3700, None, ("spec", "low_load")),
        (3799, None, ("spec", "low_load")),
        (3800, None, ("plain", "capability")),
        (3800, 100, ("spec", "low_load")),
        (3800, 4000, ("plain", "capability")),
        (3900, 100, ("plain", "capability")),
        (100_000, 1, ("plain", "capability")),
        (None, None, ("spec", "low_load")),
    ],
)
def test_a_prompt_near_the_drafters_limit_goes_elsewhere(
    prompt: int | None, output: int | None, expected: tuple[str, str]
) -> None:
    needs = RequestNeeds("structured", prompt, max_output_tokens=output)
    assert choose(needs, LONG) == expected


def test_of_two_drafters_the_one_with_the_longer_context_serves() -> None:
    fleet = [replica("short", 4, context_limit=4000), replica("long", 4, context_limit=32_000, load=5)]
    assert choose(RequestNeeds("chat", 100), fleet)[0] == "short"
    assert choose(RequestNeeds("chat", 5000), fleet) == ("long", "capability")
    assert why(RequestNeeds("chat", 5000), fleet) == {"short": "near the drafter's context limit"}


def test_structured_output_stays_off_replicas_that_are_configured_so() -> None:
    fleet = [replica("spec", 4, refused_parameters=frozenset({STRUCTURED_OUTPUT, "min_p"})), replica("plain", load=40)]
    needs = RequestNeeds("structured", 100, parameters=frozenset({STRUCTURED_OUTPUT}))
    assert choose(needs, fleet) == ("plain", "capability")
    assert why(needs, fleet) == {"spec": "speculates, and the output is structured"}
    fleet[0].refused_parameters = frozenset({"min_p"})
    assert choose(needs, fleet) == ("spec", "low_load")


def test_a_request_goes_to_the_replica_that_stores_what_it_goes_on_from() -> None:
    fleet = [replica("a", 4), replica("b", load=200), replica("c", 4, load=1)]
    needs = RequestNeeds("chat", 100, pinned="b")
    assert choose(needs, fleet) == ("b", "capability")
    assert why(needs, fleet) == dict.fromkeys(("a", "c"), "does not have the response it goes on from")
    assert least_loaded(needs, fleet, now=50.0, tie_break=0.0).name == "b"
    assert choose(needs._replace(pinned="a"), fleet) == ("a", "capability"), "it is so though it is the cheapest too"


def test_an_unhealthy_holder_is_tried_first_and_others_after_it() -> None:
    fleet = [replica("a", 4), replica("b", healthy=False)]
    needs = RequestNeeds("chat", 100, pinned="b")
    assert choose(needs, fleet)[0] == "b"
    assert choose(needs, fleet, exclude={"b"})[0] == "a"


def test_a_holder_that_drains_or_is_gone_leaves_the_answer_to_another_engine() -> None:
    needs = RequestNeeds("chat", 100, pinned="b")
    assert choose(needs, [replica("a", 4), replica("b", draining=True)])[0] == "a"
    assert choose(needs, [replica("a", 4), replica("c")]) == ("a", "low_load")


def test_a_request_waits_for_the_holder_at_its_cap() -> None:
    fleet = [replica("a", 4), replica("b", max_in_flight=1, in_flight=1)]
    for rule in (choose, lambda needs, fleet: least_loaded(needs, fleet, now=50.0, tie_break=0.0)):
        with pytest.raises(NoReplica) as caught:
            rule(RequestNeeds("chat", 100, pinned="b"), fleet)
        assert caught.value.at_capacity
    with pytest.raises(NoReplica):
        choose(RequestNeeds("chat", 9000), [replica("spec", 4, context_limit=4000), fleet[1]])


def test_where_no_replica_is_capable_the_engine_says_so() -> None:
    fleet = [replica("one", 4, context_limit=10), replica("two", 4, context_limit=20, load=3)]
    assert choose(RequestNeeds("chat", 5000), fleet)[0] == "one"


@given(
    prompt=st.none() | st.integers(0, 10_000),
    output=st.none() | st.integers(1, 5000),
    limits=st.lists(st.none() | st.integers(1, 10_000), min_size=1, max_size=6),
    loads=st.lists(st.integers(0, 50), min_size=6, max_size=6),
    pinned=st.sampled_from([None, "r0", "r5", "gone"]),
    parameters=st.sampled_from([frozenset[str](), frozenset({"min_p"}), frozenset({STRUCTURED_OUTPUT})]),
    tie_break=st.floats(0, 1, exclude_max=True),
)
def test_an_incapable_replica_never_serves_while_a_capable_one_can(
    prompt: int | None,
    output: int | None,
    limits: list[int | None],
    loads: list[int],
    pinned: str | None,
    parameters: frozenset[str],
    tie_break: float,
) -> None:
    refused = frozenset({"min_p", STRUCTURED_OUTPUT})
    fleet = [
        replica(
            f"r{n}",
            4 * (n % 2),
            load=loads[n],
            context_limit=limit,
            refused_parameters=refused if n % 2 else frozenset(),
        )
        for n, limit in enumerate(limits)
    ]
    needs = RequestNeeds("chat", prompt, parameters=parameters, max_output_tokens=output, pinned=pinned)
    capable = {state.name for state in fleet if is_capable(needs, state)}
    decision = decide(needs, fleet, PRICES, now=50.0, tie_break=tie_break)
    fallback = least_loaded(needs, fleet, now=50.0, tie_break=tie_break).name
    if capable:
        assert {decision.replica, fallback} <= capable
    named = {name for name, _ in decision.excluded}
    assert (named == {state.name for state in fleet} - capable) or not capable
