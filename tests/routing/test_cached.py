"""What is cached of a prompt, as a term of the cost."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from adaptive_gamma.routing import Decision, DecisionLimits, ReplicaState, RequestNeeds, decide, least_loaded

from .fleets import PRICES, choose, replica

EXACT = DecisionLimits(tie_margin=0.0)


def asking(prompt: int | None, output: int | None = 100, request_class: str = "chat", **cached: int) -> RequestNeeds:
    return RequestNeeds(request_class, prompt_tokens=prompt, max_output_tokens=output, cached=cached)


def whole_cost(state: ReplicaState, load: int, prompt: int, cached: int, output: int) -> float:
    """The cost with the request's whole own prefill in it: one term the more, the same for every replica."""
    alone = choose([state]).chosen.cost_s
    return alone + (load + 1) * PRICES.prefill_seconds(prompt - cached) / output


@given(
    gammas=st.lists(st.sampled_from([None, 0, 3]), min_size=2, max_size=5),
    load=st.integers(0, 30),
    spread=st.lists(st.integers(0, 1), min_size=5, max_size=5),
    prompt=st.integers(1, 60_000),
    shares=st.lists(st.sampled_from([0.0, 0.0, 0.1, 0.6, 1.0]), min_size=5, max_size=5),
    output=st.integers(1, 200),
)
def test_the_saved_prefill_counts_for_the_request_and_its_neighbours(
    gammas: list[int | None], load: int, spread: list[int], prompt: int, shares: list[float], output: int
) -> None:
    fleet = [
        replica(f"r{i}", gamma, load=load + spread[i], speculative=gamma is not None) for i, gamma in enumerate(gammas)
    ]
    held = {state.name: int(share * prompt) for state, share in zip(fleet, shares, strict=False)}
    decision = choose(fleet, needs=asking(prompt, output)._replace(cached=held), limits=EXACT)
    weighed = [decision.chosen, *decision.runners_up]
    expected = {
        c.replica: whole_cost(next(s for s in fleet if s.name == c.replica), c.load, prompt, c.cached_tokens, output)
        for c in weighed
    }
    assert all(c.cost_s > 0 for c in weighed)
    for candidate in weighed[1:]:
        assert candidate.cost_s - decision.chosen.cost_s == pytest.approx(
            expected[candidate.replica] - expected[decision.replica], abs=1e-9
        )


def test_a_long_prompt_goes_back_to_where_it_is_cached() -> None:
    fleet = [replica(f"r{i}", load=3) for i in range(4)]
    for tie_break in (0.0, 0.5, 0.99):
        decision = choose(fleet, needs=asking(8000, r2=7900), tie_break=tie_break)
        assert (decision.replica, decision.chosen.cached_tokens) == ("r2", 7900)
    reasons = Counter(choose(fleet, needs=asking(8000, r2=7900), tie_break=i / 48).reason for i in range(48))
    assert reasons == {"cached": 36, "balance": 12}, "chance would have had it there one time in four"


def test_the_marginal_cost_may_say_otherwise() -> None:
    fleet = [replica("busy", load=9), replica("other", load=9), replica("idle", load=0)]
    decision = choose(fleet, needs=asking(500, busy=100), limits=EXACT)
    assert decision.replica == "idle"
    pools = [replica("spec", 6, load=0), replica("plain", load=0)]
    assert choose(pools, "structured", needs=asking(200, 200, "structured", plain=100)).replica == "spec"


def test_more_than_the_prompt_is_not_saved() -> None:
    fleet = [replica("a", load=1), replica("b", load=1)]
    assert choose(fleet, needs=asking(100, a=5000)) == choose(fleet, needs=asking(100, a=100))
    assert choose(fleet, needs=asking(100, a=5000)).chosen.cached_tokens == 100


@given(
    loads=st.lists(st.integers(0, 20), min_size=1, max_size=6),
    gamma=st.sampled_from([0, 4]),
    prompt=st.none() | st.integers(0, 4000),
    tie_break=st.floats(0, 1, exclude_max=True),
    cached=st.sampled_from([None, {}, {"elsewhere": 900}, {"r0": 0}]),
)
def test_nothing_cached_changes_nothing(
    loads: list[int], gamma: int, prompt: int | None, tie_break: float, cached: dict[str, int] | None
) -> None:
    fleet = [replica(f"r{i}", gamma if i % 2 else 0, load=load) for i, load in enumerate(loads)]
    needs = RequestNeeds("chat", prompt)
    assert choose(fleet, needs=needs._replace(cached=cached), tie_break=tie_break) == choose(
        fleet, needs=needs, tie_break=tie_break
    )


@given(
    loads=st.lists(st.integers(0, 40), min_size=2, max_size=8),
    gammas=st.lists(st.sampled_from([0, 4]), min_size=8, max_size=8),
    holders=st.sets(st.integers(0, 7), max_size=4),
    tie_break=st.floats(0, 1, exclude_max=True),
    draining=st.booleans(),
)
def test_no_credit_beyond_a_quarter_over_the_mean(
    loads: list[int], gammas: list[int], holders: set[int], tie_break: float, draining: bool
) -> None:
    fleet = [replica(f"r{i}", gammas[i], load=load) for i, load in enumerate(loads)]
    if draining:
        fleet.append(replica("leaving", load=1000, draining=True))
    needs = asking(20_000)._replace(cached={f"r{i}": 19_000 for i in holders})
    decision = choose(fleet, needs=needs, tie_break=tie_break)
    bound = -(-5 * (sum(loads) + 1) // (4 * len(loads)))
    for candidate in (decision.chosen, *decision.runners_up):
        credited = int(candidate.replica[1:]) in holders and candidate.load + 1 <= bound
        assert candidate.cached_tokens == (19_000 if credited else 0)
    if decision.reason == "cached":
        assert decision.chosen.load + 1 <= bound
        without = choose(fleet, needs=needs._replace(cached=None), tie_break=tie_break)
        assert without.replica != decision.replica


def test_a_popular_prompt_does_not_draw_a_herd() -> None:
    fleet = [replica(f"r{i}", load=0) for i in range(4)]
    for step in range(100):
        decision = choose(fleet, needs=asking(30_000, r0=29_000, r1=29_000), tie_break=(step * 0.618) % 1.0)
        state = next(s for s in fleet if s.name == decision.replica)
        state.in_flight += 1
        if decision.reason == "cached":
            mean = (step + 1) / 4
            assert state.in_flight < 1.25 * mean + 1
    assert max(s.in_flight for s in fleet) <= 32


def test_a_ramping_replica_is_bounded_by_what_it_carries() -> None:
    """The mean is of true loads: what a ramp adds to a price must not loosen the bound for the others."""
    fleet = [replica("held", load=3), replica("joined", load=2, ramp_until=80.0, ramp_s=30.0), replica("c", load=2)]
    decision = choose(fleet, needs=asking(30_000, held=29_000))
    assert decision.reason == "cached"
    fleet[0].running = 4
    assert choose(fleet, needs=asking(30_000, held=29_000)).chosen.cached_tokens == 0


def test_among_equals_the_cache_decides() -> None:
    """A short stay in a cache is worth less than the margin for ties, yet it breaks the tie."""
    fleet = [replica(f"r{i}", load=2) for i in range(5)]
    for tie_break in (0.0, 0.3, 0.99):
        decision = choose(fleet, needs=asking(40, 200, r3=30), tie_break=tie_break)
        assert decision.replica == "r3"
        assert decision.runners_up[0].cost_s <= decision.chosen.cost_s * 1.01


def test_the_pools_reason_leaves_the_cache_out() -> None:
    """Where the cache did not tip it, the pools' own difference is the reason, at the price with the cache."""

    def reason(load: int, **cached: int) -> str:
        return choose(
            [replica("spec", 4, load=load), replica("plain", load=load)], needs=asking(300)._replace(cached=cached)
        ).reason

    assert [reason(0), reason(0, spec=200)] == ["low_load", "low_load"]
    assert [reason(12), reason(12, plain=250)] == ["high_load", "high_load"]
    assert reason(12, spec=300) == "cached"


def test_a_refusing_replica_with_the_prompt_cached_is_the_cheapest_that_refuses() -> None:
    fleet = [replica("spec", 4, load=12, refused_parameters=frozenset({"min_p"})), replica("plain", load=12)]
    needs = asking(5000)._replace(parameters=frozenset({"min_p"}))
    assert choose(fleet, needs=needs).reason == "only_replica"
    assert choose(fleet, needs=needs._replace(cached={"spec": 4900})).reason == "capability"


def test_least_loaded_takes_the_cached_one_of_equals_only() -> None:
    fleet = [replica("a", load=2), replica("b", load=2), replica("c", load=3)]

    def least(**cached: int) -> set[str]:
        needs = asking(1000)._replace(cached=cached)
        return {least_loaded(needs, fleet, now=50.0, tie_break=i / 10).name for i in range(10)}

    assert least() == {"a", "b"}
    assert least(b=10, a=5, c=1000) == {"b"}


@given(st.lists(st.integers(0, 9), min_size=2, max_size=5), st.integers(1, 5000), st.integers(1, 5000))
def test_more_in_the_cache_never_turns_a_request_away(loads: list[int], prompt: int, cached: int) -> None:
    assume(cached < prompt)
    fleet = [replica(f"r{i}", load=load) for i, load in enumerate(loads)]

    def there(tokens: int) -> Decision:
        return decide(asking(prompt, r0=tokens), fleet, PRICES, now=50.0, tie_break=0.0, limits=EXACT)

    if there(cached).replica == "r0":
        assert there(prompt).replica == "r0"
