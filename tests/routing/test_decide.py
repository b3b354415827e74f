from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.errors import NoReplica
from adaptive_gamma.routing import (
    DecisionLimits,
    GammaSchedule,
    RequestNeeds,
    decide,
    least_loaded,
    load_of,
)

from .fleets import PRICES, choose, replica
from .prices import LinearPrices


def test_low_load_goes_to_the_speculative_replica() -> None:
    decision = choose([replica("spec", 4), replica("plain")])
    assert (decision.replica, decision.pool, decision.gamma, decision.reason) == ("spec", "speculative", 4, "low_load")


def test_high_load_sends_prose_to_plain_and_keeps_code() -> None:
    fleet = [replica("spec", 4, load=12), replica("plain", load=12)]
    prose, code = choose(fleet, "chat"), choose(fleet, "structured")
    assert (prose.replica, prose.reason) == ("plain", "high_load")
    assert (code.replica, code.reason) == ("spec", "class")


def test_prose_that_loses_on_the_drafter_even_idle_is_a_matter_of_class() -> None:
    prices = LinearPrices(draft=0.012, alpha={"structured": 0.95, "chat": 0.3, "unsure": 0.5})
    fleet = [replica("spec", 4), replica("plain")]
    decision = decide(RequestNeeds("prose"), fleet, prices, now=50.0, tie_break=0.0)
    assert (decision.request_class, decision.replica, decision.reason) == ("chat", "plain", "class")
    assert decide(RequestNeeds("code"), fleet, prices, now=50.0, tie_break=0.0).replica == "spec"


def test_cost_is_own_time_plus_the_delay_of_the_others() -> None:
    decision = choose([replica("spec", 4, load=7)])
    expected = PRICES.expected_tokens("chat", 4)
    t8, t7 = PRICES.step_seconds(8, 4), PRICES.step_seconds(7, 4)
    assert decision.chosen.cost_s == pytest.approx((t8 + 7 * (t8 - t7)) / expected)
    assert decision.chosen.tpot_s == pytest.approx(t8 / expected)
    assert decision.reason == "only_replica"


@given(
    load=st.integers(0, 200),
    gamma=st.integers(1, 8),
    request_class=st.sampled_from(["structured", "chat", "unsure"]),
    ratio=st.floats(0.5, 1.5),
)
def test_cost_agrees_with_the_formula_inside_and_beyond_the_row(
    load: int, gamma: int, request_class: str, ratio: float
) -> None:
    decision = choose([replica("r", gamma, load=load, acceptance_ratio=ratio)], request_class)
    accepted = (PRICES.expected_tokens(request_class, gamma) - 1) * ratio

    def tau(n: int) -> float:
        return PRICES.step_seconds(n, gamma) / (1 + accepted)

    expected = tau(load + 1) + (load * (tau(load + 1) - tau(load)) if load else 0.0)
    assert decision.chosen.cost_s == pytest.approx(expected)
    schedule = choose(
        [replica("r", GammaSchedule([(1, 500, gamma)]), load=load, acceptance_ratio=ratio)], request_class
    )
    assert schedule.chosen.cost_s == pytest.approx(expected)


@given(
    loads=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    gammas=st.lists(st.sampled_from([0, 1, 3, 5]), min_size=12, max_size=12),
    request_class=st.sampled_from(["structured", "chat"]),
    tie_break=st.floats(0, 1, exclude_max=True),
)
def test_no_replica_left_out_is_cheaper_than_the_chosen_one(
    loads: list[int], gammas: list[int], request_class: str, tie_break: float
) -> None:
    fleet = [replica(f"r{i}", gammas[i], load=load) for i, load in enumerate(loads)]
    decision = choose(fleet, request_class, tie_break=tie_break)
    alone = [choose([state], request_class).chosen.cost_s for state in fleet]
    assert decision.chosen.cost_s <= min(alone) * 1.01 + 1e-12
    assert all(c.cost_s * 1.01 >= decision.chosen.cost_s for c in decision.runners_up)
    assert decision.replica not in [c.replica for c in decision.runners_up]


@given(
    load=st.integers(0, 200),
    gamma=st.sampled_from([None, 0, 3]),
    prompt=st.integers(1, 50_000),
    allowed=st.none() | st.integers(1, 1000),
)
def test_a_prompt_stalls_every_neighbour_once(load: int, gamma: int | None, prompt: int, allowed: int | None) -> None:
    state = replica("r", gamma, load=load, speculative=gamma is not None)
    without = choose([state]).chosen.cost_s
    needs = RequestNeeds("chat", prompt_tokens=prompt, max_output_tokens=allowed)
    with_prompt = choose([state], needs=needs).chosen
    stall = PRICES.prefill_seconds(prompt) / min(allowed or 200, 200)
    assert with_prompt.cost_s == pytest.approx(without + load * stall)
    if gamma == 3:
        scheduled = choose([replica("r", GammaSchedule([(1, 500, 3)]), load=load)], needs=needs).chosen
        assert scheduled.cost_s == pytest.approx(with_prompt.cost_s)


def test_a_long_prompt_goes_where_it_stalls_few() -> None:
    fleet = [replica("spec", 4, load=4), replica("plain", load=0)]
    assert choose(fleet, "structured").replica == "spec"
    assert choose(fleet, needs=RequestNeeds("structured", prompt_tokens=30_000)).replica == "plain"


def test_gamma_zero_on_a_speculative_engine_pays_its_tax() -> None:
    fleet = [replica("idle-drafter", 0, speculative=True), replica("plain", 0)]
    assert choose(fleet).replica == "plain"
    idle = choose([fleet[0]])
    assert idle.chosen.cost_s == pytest.approx(1.1 * choose([fleet[1]]).chosen.cost_s)


def test_a_schedule_is_priced_at_the_batch_it_leads_to() -> None:
    schedule = GammaSchedule([(1, 4, 5), (5, 64, 1)])
    assert choose([replica("s", schedule, load=3)]).gamma == 5
    assert choose([replica("s", schedule, load=4)]).gamma == 1


def test_unknown_gamma_is_priced_as_plain_and_said_to_be_unknown() -> None:
    decision = choose([replica("new", None, speculative=None, load=2)])
    assert decision.gamma is None
    assert decision.chosen.cost_s == pytest.approx(choose([replica("p", 0, load=2)]).chosen.cost_s)


def test_a_drafter_that_has_not_told_its_gamma_is_no_reason() -> None:
    fleet = [replica("new", None, speculative=True), replica("plain")]
    assert {choose(fleet, tie_break=t).reason for t in (0.0, 0.9)} == {"balance"}


def test_own_requests_since_the_scrape_count() -> None:
    """A gauge an interval old must not draw a herd: forty requests in one interval spread over the fleet."""
    fleet = [replica(f"r{i}", 0, load=0) for i in range(4)]
    sent: Counter[str] = Counter()
    for step in range(40):
        decision = choose(fleet, tie_break=(step * 0.618) % 1.0)
        sent[decision.replica] += 1
        next(s for s in fleet if s.name == decision.replica).in_flight += 1
    assert max(sent.values()) - min(sent.values()) <= 1


def test_load_is_own_in_flight_plus_what_others_had_at_the_scrape() -> None:
    state = replica("r", 0, load=10, waiting=2, in_flight=3, in_flight_at_scrape=5)
    assert load_of(state, 50.0) == 3 + 12 - 5
    assert load_of(state, 100.5) is None
    assert load_of(replica("r", 0, load=None), 50.0) is None
    assert load_of(replica("r", 0, load=1, in_flight=2, in_flight_at_scrape=6), 50.0) == 2


def test_an_unread_replica_is_assumed_as_loaded_as_its_peers_not_idle() -> None:
    fleet = [replica("a", 0, load=9), replica("b", 0, load=10), replica("dark", 0, load=None)]
    decision = choose(fleet, limits=DecisionLimits(tie_margin=0.0))
    assert decision.replica == "a"
    assert [c.load for c in decision.runners_up] == [10, 10]
    stale = replace(fleet[2], running=0, fresh_until=49.0)
    assert choose([*fleet[:2], stale], limits=DecisionLimits(tie_margin=0.0)).replica == "a"


def test_ties_go_to_the_less_loaded_of_two_and_spread_evenly() -> None:
    fleet = [replica(f"r{i}") for i in range(5)]
    picks = Counter(choose(fleet, tie_break=i / 1000).replica for i in range(1000))
    assert set(picks) == {s.name for s in fleet}
    assert max(picks.values()) - min(picks.values()) <= 1


def test_parameters_a_speculative_engine_refuses_go_to_plain() -> None:
    fleet = [replica("spec", 4, refused_parameters=frozenset({"min_p", "logit_bias"})), replica("plain")]
    needs = RequestNeeds("structured", parameters=frozenset({"min_p"}))
    decision = choose(fleet, needs=needs)
    assert (decision.replica, decision.reason) == ("plain", "capability")
    assert decision.excluded == (("spec", "refuses a parameter"),)
    only = choose(fleet[:1], needs=needs)
    assert only.replica == "spec", "the engine's own answer is clearer than ours"


def test_soft_limits_give_way_when_nothing_else_is_left() -> None:
    full, roomy = replica("full", 4, kv_usage=0.97), replica("roomy", 0, load=60, kv_usage=0.2)
    decision = choose([full, roomy])
    assert decision.replica == "roomy"
    assert decision.excluded == (("full", "kv cache full"),)
    assert choose([full]).replica == "full"
    slow = DecisionLimits(slo_tpot_s=1e-6)
    assert choose([replica("spec", 4), replica("plain")], limits=slow).replica == "spec"
    bounded = DecisionLimits(slo_tpot_s=PRICES.step_seconds(20, 0))
    decision = choose([replica("a", 0, load=50), replica("b", 4, load=60)], "chat", limits=bounded)
    assert decision.replica == "a"


def test_all_down_means_all_are_tried() -> None:
    fleet = [replica("a", 4, healthy=False), replica("b", 0, healthy=False)]
    assert choose(fleet).reason == "fallback"
    one_up = [replica("a", 4, healthy=False), replica("b", 0, load=60)]
    decision = choose(one_up)
    assert decision.replica == "b"
    assert decision.excluded == (("a", "unhealthy"),)


def test_nothing_left_says_why() -> None:
    fleet = [replica("a", draining=True), replica("b")]
    with pytest.raises(NoReplica, match=r"a: draining, b: already tried") as caught:
        choose(fleet, exclude={"b"})
    assert not caught.value.model_unknown
    with pytest.raises(NoReplica, match="empty"):
        choose([])


def test_models() -> None:
    fleet = [replica("a", models=frozenset({"m"})), replica("b", 4, models=frozenset({"n"}))]
    assert choose(fleet, needs=RequestNeeds("chat", model="m")).replica == "a"
    with pytest.raises(NoReplica) as caught:
        choose(fleet, needs=RequestNeeds("chat", model="gpt"))
    assert caught.value.model_unknown
    unlisted = [*fleet, replica("c")]
    assert choose(unlisted, needs=RequestNeeds("chat", model="gpt")).replica == "c"


def test_acceptance_seen_on_a_replica_moves_its_price() -> None:
    """Live acceptance far below the policy's makes the drafter lose; far above, win."""
    fleet = [replica("spec", 4, load=6), replica("plain", load=6)]
    assert choose(fleet, "unsure").replica == "spec"
    fleet[0].acceptance_ratio = 0.3
    assert choose(fleet, "unsure").replica == "plain"


def test_a_decision_prints_as_plain_data() -> None:
    data = choose([replica("spec", 4), replica("plain"), replica("down", healthy=False)]).as_dict()
    assert set(data) == {"class", "replica", "pool", "gamma", "reason", "chosen", "runners_up", "excluded"}
    assert data["excluded"] == [{"replica": "down", "why": "unhealthy"}]
    assert set(data["chosen"]) == {"replica", "pool", "gamma", "load", "cost_s", "tpot_s", "cached_tokens"}
    assert [c["replica"] for c in data["runners_up"]] == ["plain"]


def test_least_loaded_knows_nothing_of_speculation() -> None:
    needs = RequestNeeds("chat")
    fleet = [replica("spec", 4, load=3), replica("plain", load=2), replica("down", load=0, healthy=False)]
    assert least_loaded(needs, fleet, now=50.0, tie_break=0.0).name == "plain"
    assert least_loaded(needs, fleet, now=50.0, tie_break=0.0, exclude={"plain"}).name == "spec"
    with pytest.raises(NoReplica):
        least_loaded(needs, [replica("a", draining=True)], now=50.0, tie_break=0.0)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [([], "start at 1"), ([(2, 4, 3)], "start at 1"), ([(1, 4, 3), (4, 8, 1)], "overlap"), ([(1, 4, -1)], "negative")],
)
def test_schedules_that_vllm_would_refuse(ranges: list[tuple[int, int, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GammaSchedule(ranges)


def test_a_gap_in_a_schedule_keeps_the_gamma_before_it() -> None:
    schedule = GammaSchedule([(8, 10, 1), (1, 4, 3)])
    assert [schedule.at(b) for b in (0, 1, 4, 5, 7, 8, 10, 500)] == [3, 3, 3, 3, 3, 1, 1, 1]
    assert schedule.largest == 3


def test_a_replica_found_slower_than_predicted_is_priced_so() -> None:
    """Of two alike, requests go to the other one until that carries the difference."""
    taken = []
    for load in range(12):
        states = [replica("slow", 4, load=4, step_time_ratio=1.5), replica("other", 4, load=4 + load)]
        decision = choose(states)
        taken.append(decision.replica)
        costs = {c.replica: c for c in (decision.chosen, *decision.runners_up)}
        plain = choose([replica("a", 4, load=4), replica("b", 4, load=60)]).chosen
        assert costs["slow"].cost_s == pytest.approx(1.5 * plain.cost_s)
        assert costs["slow"].tpot_s == pytest.approx(1.5 * plain.tpot_s)
    assert taken[0] == "other"
    assert taken[-1] == "slow"


def test_a_ratio_of_one_changes_nothing() -> None:
    for load in (0, 3, 20, 70):
        needs = RequestNeeds("chat", 4000, cached={"a": 2000})
        known = [replica("a", 4, load=load, step_time_ratio=1.0), replica("b", load=load)]
        unknown = [replica("a", 4, load=load), replica("b", load=load)]
        assert choose(known, needs=needs) == choose(unknown, needs=needs)
