"""Schedules: valid for the engine always, plain, within the limits, and changed only when that pays."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.policy import load_policy
from adaptive_gamma.policy.dead_band import edge_on_load
from adaptive_gamma.routing import (
    GammaInputs,
    GammaPilot,
    GammaPrices,
    GammaRules,
    GammaSchedule,
    GammaScores,
    GammaSetting,
    Loads,
    choose_schedule,
    make_schedule,
)

from .flights import Prices

PRICES = Prices()
MIX = {"chat": 1.0}


def scores(prices: GammaPrices = PRICES, **more: float | None) -> GammaScores:
    return GammaScores(prices, MIX, **more)


def made(
    prices: GammaPrices = PRICES, loads: Loads = ((8.0, 1.0),), batches: int = 128, largest: int = 8, **more: float
) -> GammaSchedule:
    return make_schedule(scores(prices, **more), range(largest + 1), batches, loads)


def inputs(**more: object) -> GammaInputs:
    given: dict[str, object] = {
        "replica": "r", "now": 1000.0, "gamma": 4, "largest": 8, "largest_batch": 128, "load": 8.0, "peak": 8,
        "loads": ((8.0, 1.0),), "policy": PRICES, "mix": MIX, "smallest": 0,
    }  # fmt: skip
    return GammaInputs(**{**given, **more})  # type: ignore[arg-type]  # each test gives the fields it is about


@dataclass
class Flight:
    """What a pilot of schedules did, second by second."""

    changes: list[tuple[int, str, GammaSetting]] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    setting: GammaSetting = 4
    settings: list[GammaSetting] = field(default_factory=list)


def fly(
    seconds: int,
    load: Callable[[int], int],
    setting: GammaSetting = 4,
    prices: Callable[[int], GammaPrices] = lambda second: PRICES,
    *,
    ratio: Callable[[int, GammaSetting], float | None] = lambda second, setting: None,
    rules: GammaRules | None = None,
    noise: float | None = None,
    batches: int = 128,
    every_s: int = 1,
) -> Flight:
    pilot, flight = GammaPilot("r", rules or GammaRules(), 0.0, schedules=True), Flight(setting=setting)
    for second in range(0, seconds, every_s):
        decision = pilot.decide(
            float(second), prices(second), gamma=flight.setting, largest=8, smallest=0, largest_batch=batches,
            batch=load(second), mix=MIX, acceptance_ratio=ratio(second, flight.setting), noise=noise,
        )  # fmt: skip
        flight.reasons[decision.reason] = flight.reasons.get(decision.reason, 0) + 1
        if decision.changes:
            assert decision.setting is not None
            pilot.asked(decision, float(second))
            pilot.applied(float(second))
            flight.setting = decision.setting
            flight.changes.append((second, decision.reason, decision.setting))
        flight.settings.append(flight.setting)
    return flight


# -- the schedule -----------------------------------------------------------------------------------------------------

prices_of_any_kind = st.builds(
    Prices,
    fixed=st.floats(0.001, 0.1),
    per_token=st.floats(1e-6, 2e-3),
    draft=st.floats(0, 0.01),
    alpha=st.fixed_dictionaries({"chat": st.floats(0, 0.99), "unsure": st.just(0.5)}),
    capture_tokens=st.none() | st.integers(8, 600),
    max_gamma=st.integers(1, 10),
    min_gamma=st.integers(1, 3),
)
loads_of_any_kind = st.lists(
    st.tuples(st.integers(1, 200), st.floats(0.01, 1.0)), min_size=1, max_size=6, unique_by=lambda each: each[0]
).map(lambda given: tuple((float(load), share / sum(s for _, s in given)) for load, share in sorted(given)))


@settings(max_examples=50, deadline=None)
@given(
    prices_of_any_kind, loads_of_any_kind, st.integers(1, 150), st.integers(0, 10),
    st.none() | st.floats(0.002, 0.2), st.none() | st.floats(0.05, 1.5),
)  # fmt: skip
def test_what_holds_for_any_schedule(
    prices: Prices, loads: Loads, batches: int, largest: int, slo: float | None, ratio: float | None
) -> None:
    given_ = inputs(
        policy=prices, loads=loads, largest=largest, largest_batch=batches, slo_tpot_s=slo, acceptance_ratio=ratio
    )
    decision = choose_schedule(given_)
    schedule = decision.best_schedule
    if schedule is None:  # as the one gamma in force is best everywhere
        assert decision.best == 4
        return
    starts = [first for first, _, _ in schedule.ranges]
    ends = [last for _, last, _ in schedule.ranges]
    assert starts == [1, *(last + 1 for last in ends[:-1])]
    assert ends[-1] == batches
    assert all(a[2] != b[2] for a, b in itertools.pairwise(schedule.ranges)), "neighbours that are equal are one range"
    priced = GammaScores(prices, MIX, acceptance_ratio=ratio, slo_tpot_s=slo)
    for batch in range(1, batches + 1):
        gamma = schedule.at(batch)
        assert 0 <= gamma <= min(largest, prices.max_gamma)
        limit = prices.largest_gamma(batch)
        assert limit is None or gamma <= limit, "0 is always captured, so no limit is ever passed"
        if slo is not None and any(
            priced.candidate(batch, batch, each).forbidden is None
            for each in (0, *range(prices.min_gamma, min(largest, prices.max_gamma) + 1))
        ):
            assert priced.candidate(batch, batch, gamma).forbidden is None
    again = choose_schedule(given_)
    assert again == decision, "the same inputs, the same schedule"
    kept = choose_schedule(replace(given_, gamma=schedule))
    assert kept.best_schedule == schedule
    assert kept.reason in ("best", "probe")
    assert kept.gain == pytest.approx(0.0)


@settings(max_examples=25, deadline=None)
@given(prices_of_any_kind, st.integers(2, 150))
def test_no_batch_loses_more_than_the_tolerance_and_no_range_is_idle(prices: Prices, batches: int) -> None:
    """Where no edge is at the usual load. Fewer ranges would lose more than 1 % at some batch."""
    priced, gammas = scores(prices), [0, *range(prices.min_gamma, prices.max_gamma + 1)]
    schedule = make_schedule(priced, gammas, batches, ())

    def loss(batch: int, gamma: int) -> float:
        column = {each: priced.column([batch], each)[0] for each in gammas}
        rate, forbidden = column[gamma]
        top = max(rate for rate, forbidden in column.values() if forbidden is None)
        return 1.0 if forbidden is not None else 1.0 - rate / top

    for batch in range(1, batches + 1):
        assert loss(batch, schedule.at(batch)) <= 0.01 + 1e-9
    for (first, _, _), (_, last, _) in itertools.pairwise(schedule.ranges):
        for gamma in gammas:
            assert any(loss(batch, gamma) > 0.01 - 1e-9 for batch in range(first, last + 1))


def test_the_gammas_are_those_of_the_costs() -> None:
    schedule = made(batches=200)
    print("linear prices, chat:", schedule.ranges)
    assert schedule.at(1) > schedule.at(16) > schedule.at(200)
    policy = load_policy("h200-llama3-70b-fp8")
    for name in ("structured", "chat"):
        found = make_schedule(GammaScores(policy, {name: 1.0}), range(policy.max_gamma + 1), 256, ((40.0, 1.0),))
        print(policy.name, name, found.ranges)
        assert 1 <= len(found.ranges) <= 6


def test_a_gamma_that_is_best_at_one_batch_by_a_hair_has_no_range() -> None:
    class Flickering(Prices):
        def step_seconds(
            self, batch: int, gamma: int, context_tokens: float | None = None, speculative: bool = True
        ) -> float:
            seconds = super().step_seconds(batch, gamma, context_tokens, speculative)
            return seconds * (0.995 if batch == 20 and gamma == 1 else 1.0)

    rich = {"alpha": {"chat": 0.9, "unsure": 0.9}, "per_token": 1e-5}
    assert made(Flickering(**rich), batches=40) == made(Prices(**rich), batches=40)  # type: ignore[arg-type]  # test data


def test_no_edge_stands_on_the_usual_load_unless_it_is_worth_it() -> None:
    free = made()
    edges = [first for first, _, _ in free.ranges[1:]]
    moved = 0
    for edge in edges:
        usual = float(edge)
        found = made(loads=((usual, 1.0),))
        on_it = [first for first, _, _ in found.ranges[1:] if edge_on_load(first, usual)]
        print(f"edge at {edge}, usual load {usual:g}: edges {[first for first, _, _ in found.ranges[1:]]}")
        moved += not on_it
    assert moved == len(edges)
    captured = Prices(alpha={"chat": 0.9, "unsure": 0.9}, per_token=1e-5, capture_tokens=32 * 3)
    edge = next(first for first, _, gamma in made(captured, batches=64).ranges if gamma == 1)
    worth = made(captured, loads=((float(edge), 1.0),), batches=64)
    assert edge in [first for first, _, _ in worth.ranges], "a third of the tokens is more than a quiet edge is worth"


def test_only_gammas_that_the_engine_takes() -> None:
    decision = choose_schedule(inputs(settable=frozenset({1, 5}), smallest=0))
    assert decision.best_schedule is not None
    assert {gamma for _, _, gamma in decision.best_schedule.ranges} <= {1, 5}
    assert choose_schedule(inputs(settable=frozenset({99}))).reason == "unknown"


# -- whether now ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["gamma", "largest", "largest_batch", "load", "peak", "loads"])
def test_what_is_not_known_changes_nothing(missing: str) -> None:
    decision = choose_schedule(inputs(**{missing: None}))
    assert (decision.reason, decision.changes, decision.gain) == ("unknown", False, None)


def test_the_decision_tells_the_gamma_at_the_mean_load_and_the_schedules() -> None:
    best = made(loads=((64.0, 1.0),))
    decision = choose_schedule(inputs(load=64.0, peak=64, loads=((64.0, 1.0),)))
    assert (decision.gamma, decision.schedule) == (4, None)
    assert (decision.best, decision.best_schedule) == (best.at(64), best)
    assert (decision.wanted, decision.wanted_schedule, decision.setting) == (best.at(64), best, best)
    data = decision.as_dict()
    assert data["best_schedule"] == [list(part) for part in best.ranges]
    asked = decision.asked(1000.0)
    assert asked.pending is not None
    assert asked.pending.gamma == best
    assert choose_schedule(inputs(memory=asked)).reason == "in_flight"


def test_the_gain_is_over_the_loads_of_late() -> None:
    two: Loads = ((2.0, 0.5), (100.0, 0.5))
    decision = choose_schedule(inputs(gamma=8, load=51.0, peak=100, loads=two))
    priced, best = scores(), decision.best_schedule
    assert best is not None
    by_hand = sum(0.5 * priced.tokens_per_s(load, best.at(int(load))) for load in (2.0, 100.0)) / sum(
        0.5 * priced.tokens_per_s(load, 8) for load in (2.0, 100.0)
    )
    assert decision.gain == pytest.approx(by_hand - 1.0)
    assert choose_schedule(inputs(gamma=8, load=51.0, peak=100, loads=two, noise=decision.gain)).reason == (
        "within_margin"
    )


def _edge_between_31_and_33() -> Prices:
    linear = Prices(alpha={"chat": 0.7, "unsure": 0.7})
    for fixed in range(1, 3000):
        prices = replace(linear, fixed=fixed / 10_000)
        if 32 in [first for first, _, _ in make_schedule(scores(prices), range(9), 128, ()).ranges]:
            return prices
    raise AssertionError


@pytest.mark.parametrize("capture", [None, 32 * 6], ids=["costs", "capture limit"])
def test_a_load_to_and_fro_over_an_edge_changes_no_schedule(capture: int | None) -> None:
    prices = _edge_between_31_and_33()
    if capture is not None:
        prices = Prices(alpha={"chat": 0.9, "unsure": 0.9}, per_token=1e-5, capture_tokens=capture)
    free = make_schedule(scores(prices), range(9), 128, ())
    assert free.at(31) != free.at(33)
    starts: dict[str, GammaSetting] = {"the schedule": free, "its gamma at 31": free.at(31), "at 33": free.at(33)}
    for name, start in starts.items():
        flight = fly(900, lambda second: 31 if second % 2 else 33, start, lambda second: prices)
        print(f"31/33 every second for 15 minutes from {name}: {flight.changes}; looks by reason {flight.reasons}")
        if isinstance(start, GammaSchedule) or capture is None:
            assert flight.changes == []
        else:
            assert [why for _, why, _ in flight.changes] in ([], ["gain"], ["capture_limit"])


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(1, 120), min_size=1, max_size=8), st.integers(0, 8), st.none() | st.integers(60, 500))
def test_the_same_loads_again_and_again_change_it_once(cycle: list[int], gamma: int, capture: int | None) -> None:
    """Every load in turn, a second each: the first schedule stays for good. (No probes: they come and go by design.)"""
    prices, rules = Prices(capture_tokens=capture), GammaRules(probe_every_s=86_400.0)
    flight = fly(300, lambda second: cycle[second % len(cycle)], gamma, lambda second: prices, rules=rules)
    reasons = [why for _, why, _ in flight.changes]
    assert reasons in ([], ["gain"], ["capture_limit"], ["capture_limit", "gain"])
    assert all(at < 200 for at, _, _ in flight.changes)


def test_noise_in_what_was_accepted_changes_no_schedule() -> None:
    def ratio(second: int, setting: GammaSetting) -> float:
        return 0.95 + 0.1 * (second * 7919 % 101) / 101

    flight = fly(900, lambda second: 20 + second % 7, 4, ratio=ratio)
    print(f"acceptance ratio 0.95 to 1.05 at random, load 20 to 26, 15 minutes: {flight.changes}")
    assert len(flight.changes) <= 1


def test_a_load_that_swings_needs_one_schedule_where_one_gamma_needed_many_changes() -> None:
    def load(second: int) -> int:
        return 2 if (second // 300) % 2 == 0 else 110

    flight = fly(1800, load, 4)
    print(f"load 2 and 110 in turn, five minutes each, half an hour: {flight.changes}")
    assert len(flight.changes) == 1
    setting = flight.setting
    assert isinstance(setting, GammaSchedule)
    assert setting.at(2) > setting.at(110)


def test_an_edge_of_a_limit_at_a_load_never_seen_is_no_reason() -> None:
    prices = Prices(alpha={"chat": 0.9, "unsure": 0.9}, per_token=1e-5, capture_tokens=9 * 20)
    start = GammaSchedule([(1, 128, 8)])
    seen = fly(600, lambda second: 12, start, lambda second: prices)
    assert seen.changes == []
    rises = fly(600, lambda second: 12 if second < 30 else 30, start, lambda second: prices)
    assert [(at, why) for at, why, _ in rises.changes] == [(30, "capture_limit")], "and does not wait for the dwell"
    assert isinstance(rises.setting, GammaSchedule)
    assert all((gamma + 1) * batch <= 180 for batch in range(1, 91) for gamma in [rises.setting.at(batch)])


_STEEP = Prices(draft=0.004, alpha={"chat": 0.8, "unsure": 0.8})


def _dead_until(recovery: int) -> Flight:
    def ratio(second: int, setting: GammaSetting) -> float | None:
        drafts = setting > 0 if isinstance(setting, int) else setting.at(8) > 0
        return (0.02 if second < recovery else 1.0) if drafts else None

    return fly(6 * 3600, lambda second: 8, 3, lambda second: _STEEP, ratio=ratio, every_s=20)


def test_a_drafter_that_accepts_nothing_is_probed_ever_more_rarely() -> None:
    flight = _dead_until(6 * 3600)
    probes = [at for at, why, _ in flight.changes if why == "probe"]
    waits = [b - a for a, b in itertools.pairwise(probes)]
    drafting = sum((s if isinstance(s, int) else s.at(8)) > 0 for s in flight.settings[6:])
    print(f"acceptance gone for 6 hours: {len(probes)} probes, waits {waits} s, {drafting} of {len(flight.settings)}")
    assert waits[:3] == [660, 1260, 2460]
    assert drafting / len(flight.settings) < 0.03
    first = next(setting for _, why, setting in flight.changes if why == "probe")
    assert isinstance(first, GammaSchedule)
    assert first.ranges == ((1, 8, 1), (9, 128, 0)), "tried no further than the load has been"


@pytest.mark.parametrize("recovery", [600, 3000])
def test_acceptance_that_comes_back_is_found_by_a_probe(recovery: int) -> None:
    flight = _dead_until(recovery)
    found = next(
        at for at, why, s in flight.changes if at > recovery and why == "gain" and isinstance(s, GammaSchedule)
    )
    print(f"acceptance back after {recovery} s: the schedule is back {found - recovery} s later")
    assert found - recovery <= max(recovery, 300) + 180
    assert isinstance(flight.setting, GammaSchedule)
    assert flight.setting.at(8) >= 2
