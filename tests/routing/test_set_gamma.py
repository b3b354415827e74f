"""When gamma changes and when it does not: dwell, margin, limits, back-off, probes."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.policy import load_policy
from adaptive_gamma.routing import GammaInputs, GammaMemory, GammaPilot, GammaRules, LoadTrack, choose_gamma

from .flights import Flight, Prices, fly, most_in_a_minute

FORCED = ("capture_limit", "slo")
PRICES = Prices()


def inputs(**more: object) -> GammaInputs:
    given: dict[str, object] = {
        "replica": "r", "now": 1000.0, "gamma": 4, "largest": 8, "load": 8.0, "peak": 8, "policy": PRICES,
        "mix": {"chat": 1.0}, "smallest": 0,
    }  # fmt: skip
    return GammaInputs(**{**given, **more})  # type: ignore[arg-type]  # each test gives the fields it is about


def best_at(load: float, prices: Prices, request_class: str = "chat", largest: int = 8) -> int:
    """By the definition, over whole numbers of gamma."""

    def rate(gamma: int) -> float:
        return load * prices.expected_tokens(request_class, gamma) / prices.step_seconds(int(load), gamma)

    return max(range(largest + 1), key=rate)


# -- what is wanted ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [1, 4, 16, 32, 64, 128])
@pytest.mark.parametrize("request_class", ["structured", "chat"])
def test_the_best_gamma_is_the_one_with_most_tokens_per_second(load: int, request_class: str) -> None:
    decision = choose_gamma(inputs(load=float(load), peak=load, mix={request_class: 1.0}))
    assert decision.best == best_at(load, PRICES, request_class)
    by_gamma = {c.gamma: c for c in decision.candidates}
    assert decision.gain == pytest.approx(by_gamma[decision.best].tokens_per_s / by_gamma[4].tokens_per_s - 1)


def test_a_mix_lies_between_its_classes() -> None:
    found = {
        name: choose_gamma(inputs(mix=mix)).candidates[4].tokens_per_s
        for name, mix in {
            "structured": {"structured": 3.0}, "chat": {"chat": 1.0}, "both": {"structured": 10.0, "chat": 30.0},
            "none": {}, "unsure": {"unsure": 1.0}, "code": {"code": 1.0},
        }.items()
    }  # fmt: skip
    assert found["both"] == pytest.approx(0.25 * found["structured"] + 0.75 * found["chat"])
    assert found["none"] == found["unsure"]
    assert found["code"] == found["structured"]


def test_acceptance_seen_scales_what_is_expected() -> None:
    low = choose_gamma(inputs(acceptance_ratio=0.1))
    assert (low.best, low.wanted, low.reason) == (0, 0, "gain")
    assert low.candidates[1].tokens_per_s == pytest.approx(8 * (1 + 0.55 * 0.1) / PRICES.step_seconds(8, 1))


def test_the_engine_and_the_policy_bound_gamma() -> None:
    rich = Prices(alpha={"chat": 0.99, "unsure": 0.99}, per_token=1e-6)
    assert choose_gamma(inputs(policy=rich)).best == 8
    assert choose_gamma(inputs(policy=rich, largest=3)).best == 3
    assert choose_gamma(inputs(policy=replace(rich, max_gamma=5))).best == 5
    poor = Prices(alpha={"chat": 0.0, "unsure": 0.0})
    assert choose_gamma(inputs(policy=poor)).best == 0
    assert choose_gamma(inputs(policy=poor, smallest=1)).best == 1
    assert choose_gamma(inputs(policy=replace(poor, min_gamma=2), smallest=1)).best == 2


def test_the_capture_limit_counts_at_the_highest_load() -> None:
    prices = Prices(capture_tokens=128)
    decision = choose_gamma(inputs(policy=prices, load=8.0, peak=40))
    assert (decision.wanted, decision.reason) == (2, "capture_limit")
    assert [c.forbidden for c in decision.candidates] == [None] * 3 + ["capture_limit"] * 6


def test_the_slo_counts_for_the_slowest_class_at_the_highest_load() -> None:
    mix = {"structured": 0.9, "chat": 0.1}
    free = choose_gamma(inputs(gamma=8, mix=mix))
    slowest = {c.gamma: c.tpot_s for c in free.candidates}
    assert slowest[8] == pytest.approx(PRICES.step_seconds(8, 8) / PRICES.expected_tokens("chat", 8))
    limit = (slowest[8] + min(slowest.values())) / 2
    decision = choose_gamma(inputs(gamma=8, mix=mix, slo_tpot_s=limit))
    assert decision.reason == "slo"
    assert decision.wanted is not None
    assert slowest[decision.wanted] <= limit < slowest[8]
    impossible = choose_gamma(inputs(gamma=8, mix=mix, slo_tpot_s=1e-6))
    assert impossible.best == free.best, "where no gamma meets it, the fastest is the best there is"
    assert choose_gamma(inputs(gamma=8, mix=mix, slo_tpot_s=limit, step_time_ratio=2.0)).best == free.best


@pytest.mark.parametrize("missing", ["gamma", "largest", "load", "peak"])
def test_what_is_not_known_changes_nothing(missing: str) -> None:
    decision = choose_gamma(inputs(**{missing: None}))
    assert (decision.reason, decision.changes, decision.gain) == ("unknown", False, None)


# -- whether now ------------------------------------------------------------------------------------------------------


def test_the_margin_is_twice_the_noise() -> None:
    gain = choose_gamma(inputs(gamma=8, load=48.0, peak=48)).gain
    assert gain is not None
    for noise, reason in ((gain / 2 - 0.01, "gain"), (gain / 2 + 0.01, "within_margin")):
        decision = choose_gamma(inputs(gamma=8, load=48.0, peak=48, noise=noise))
        assert decision.reason == reason
        assert decision.margin == pytest.approx(2 * noise)
        assert decision.changes == (reason == "gain")


def _edges() -> dict[str, tuple[Prices, int]]:
    """Prices whose best gamma changes between 31 and 33, by a hair or by much, and the gamma in force at first."""
    linear = Prices(alpha={"chat": 0.7, "unsure": 0.7})
    fixed = next(
        f / 10_000 for f in range(1, 3000) if best_at(31, p := replace(linear, fixed=f / 10_000)) != best_at(33, p)
    )
    captured = Prices(alpha={"chat": 0.9, "unsure": 0.9}, per_token=1e-5, capture_tokens=32 * 6)
    return {
        "costs": (replace(linear, fixed=fixed), best_at(31, replace(linear, fixed=fixed))),
        "capture limit": (captured, 5),
    }


@pytest.mark.parametrize("edge", ["costs", "capture limit"])
@pytest.mark.parametrize("smallest", [0, 1])
def test_a_load_to_and_fro_over_an_edge_changes_gamma_at_most_once_a_minute(edge: str, smallest: int) -> None:
    prices, gamma = _edges()[edge]

    def alternating(second: int) -> int:
        return 31 if second % 2 == 0 else 33

    def by_the_table(second: int) -> int:
        load = alternating(second)
        limit = prices.largest_gamma(load)
        return best_at(load, prices, largest=8 if limit is None else limit)

    table = [by_the_table(second) for second in range(3600)]
    flight = fly(prices, 3600, alternating, gamma=gamma, smallest=smallest)
    switches = sum(a != b for a, b in itertools.pairwise(table))
    print(
        f"31/33 every second over an edge of the {edge}, one hour, gamma {smallest} the least: "
        f"{len(flight.changes)} changes, at most {most_in_a_minute(flight)} a minute; "
        f"the table by itself: {switches} changes, 60 a minute"
    )
    assert switches == 3599
    assert most_in_a_minute(flight) <= 1
    assert len(flight.changes) <= 1


def test_the_same_over_an_edge_of_a_shipped_policy() -> None:
    policy = load_policy("h200-llama3-70b-fp8")
    for name in ("structured", "chat"):
        edges = [
            b for b in range(2, policy.max_batch) if policy.best_gamma(name, b - 1) != policy.best_gamma(name, b + 1)
        ]
        worst = total = 0
        for edge in edges:
            flight = fly(policy, 240, lambda s, edge=edge: edge - 1 + 2 * (s % 2), gamma=policy.best_gamma(name, edge))  # type: ignore[misc]
            worst, total = max(worst, most_in_a_minute(flight)), total + len(flight.changes)
        print(f"{policy.name}, {name}: {len(edges)} edges, 4 minutes each: {total} changes, at most {worst} a minute")
        assert worst <= 1


loads = st.lists(st.tuples(st.integers(5, 90), st.integers(0, 120) | st.none()), min_size=1, max_size=12)
ratios = st.dictionaries(st.integers(1, 8), st.floats(0.05, 1.5), max_size=8)


def _of_steps(steps: list[tuple[int, int | None]]) -> list[int | None]:
    return [load for length, load in steps for _ in range(length)]


@settings(max_examples=80, deadline=None)
@given(
    loads, ratios, st.sampled_from([None, 96, 256]), st.integers(0, 12), st.floats(0, 0.2), st.integers(0, 1),
    st.lists(st.booleans(), min_size=1, max_size=7), st.sampled_from([None, 0.012, 0.02]), st.integers(0, 8),
)  # fmt: skip
def test_rules_that_hold_for_any_load_and_any_acceptance(
    steps: list[tuple[int, int | None]],
    seen: dict[int, float],
    capture: int | None,
    takes_s: int,
    noise: float,
    smallest: int,
    taken: list[bool],
    slo: float | None,
    gamma: int,
) -> None:
    by_second = _of_steps(steps)
    prices = Prices(capture_tokens=capture)
    flight = fly(
        prices,
        len(by_second),
        lambda second: by_second[second],
        gamma=gamma,
        smallest=smallest,
        rules=GammaRules(dwell_s=30.0, probe_every_s=60.0),
        ratio=lambda second, gamma: seen.get(gamma),
        takes=lambda second: taken[second % len(taken)],
        takes_s=takes_s,
        noise=noise,
        slo_tpot_s=slo,
    )
    last = -22.5  # the first change may come after a quarter of the dwell
    for change in flight.changes:
        assert change.reason in ("gain", "probe", "probe_over", *FORCED)
        if change.reason not in FORCED:
            assert change.at - last >= 30.0, "a change within the dwell of the one before"
        if change.reason == "gain":
            assert change.gain >= change.margin >= max(0.01, 2 * noise)
        if change.reason == "capture_limit":
            assert change.gamma < change.before
        if change.reason == "probe":
            assert change.before == 0
        assert change.gamma >= smallest
        last = change.at + takes_s


def test_an_engine_that_never_takes_a_change_is_asked_ever_more_rarely() -> None:
    day = 24 * 3600
    flight = fly(PRICES, day, lambda second: 64, gamma=8, takes=lambda second: False, every_s=20)
    waits = [b - a for a, b in zip(flight.asked, flight.asked[1:], strict=False)]
    print(f"an engine that takes nothing, one day: {len(flight.asked)} tries, waits {waits[:8]} ... s")
    assert flight.changes == []
    assert set(flight.gammas) == {8}
    assert waits == [min(60.0 * 2**n, 3600.0) for n in range(len(waits))]


_STEEP = Prices(draft=0.004, alpha={"chat": 0.8, "unsure": 0.8})


def _misleading(second: int, gamma: int) -> float:
    """A drafter good at its first token only: the ratio seen with gamma 1 promises much of more."""
    accepted = 0.9 + sum(0.9 * 0.05**k for k in range(1, gamma))
    return accepted / (_STEEP.expected_tokens("chat", gamma) - 1.0)


def test_a_curve_of_the_wrong_shape_does_not_make_gamma_swing() -> None:
    seconds = 12 * 3600
    flight = fly(_STEEP, seconds, lambda second: 12, gamma=1, ratio=_misleading, every_s=20)
    raises = [change.at for change in flight.changes if change.gamma > change.before]
    waits = [int(b - a) for a, b in itertools.pairwise(raises)]
    share = sum(gamma > 1 for gamma in flight.gammas) / len(flight.gammas)
    print(
        f"misleading first position, 12 hours: {len(raises)} raises, waits {waits} s, "
        f"{share:.1%} of the time too high; by dwell alone it would be {seconds // 120} raises and half of the time"
    )
    assert waits[:5] == [360, 660, 1260, 2460, 3660], "twice the wait before, and the dwell of the raise"
    assert len(raises) <= 18
    assert share < 0.03


def test_a_much_lower_load_is_worth_another_try() -> None:
    def load(second: int) -> int:
        return 12 if second < 4200 else 1

    flight = fly(_STEEP, 7800, load, gamma=1, ratio=_misleading, every_s=20)
    raises = [change.at for change in flight.changes if change.gamma > change.before]
    assert raises == [20.0, 380.0, 1040.0, 2300.0, pytest.approx(4200.0, abs=60)]


def _dead_until(recovery: int) -> Flight:
    def ratio(second: int, gamma: int) -> float:
        return 0.02 if second < recovery else 1.0

    return fly(_STEEP, 6 * 3600, lambda second: 8, gamma=3, ratio=ratio, every_s=20)


def test_a_drafter_that_accepts_nothing_is_probed_ever_more_rarely() -> None:
    flight = _dead_until(6 * 3600)
    probes = [change.at for change in flight.changes if change.reason == "probe"]
    waits = [int(b - a) for a, b in itertools.pairwise(probes)]
    share = sum(gamma > 0 for gamma in flight.gammas[6:]) / len(flight.gammas[6:])
    print(f"acceptance gone for 6 hours: {len(probes)} probes, waits {waits} s, drafting {share:.1%} of the time")
    assert flight.changes[0].gamma == 0
    assert waits[:3] == [660, 1260, 2460], "twice the wait before, and the dwell of the probe"
    assert share < 0.03


@pytest.mark.parametrize("recovery", [600, 3000, 9000])
def test_acceptance_that_comes_back_is_found_by_a_probe(recovery: int) -> None:
    flight = _dead_until(recovery)
    looks = recovery // 20
    found = next(look for look in range(looks, len(flight.gammas)) if flight.gammas[look] >= 2)
    print(f"acceptance back after {recovery} s: gamma is up again {(found - looks) * 20} s later")
    assert (found - looks) * 20 <= max(recovery, 300) + 180
    assert set(flight.gammas[found + 6 :]) == {best_at(8, _STEEP)}


def test_no_probe_where_even_full_acceptance_would_not_pay() -> None:
    dear = Prices(draft=0.2)
    flight = fly(dear, 7200, lambda second: 8, gamma=0, every_s=20)
    assert flight.changes == []
    assert set(flight.reasons) == {"best", "dwell"}


def test_a_load_that_rises_is_no_reason_to_distrust_a_raise() -> None:
    """Low, high, low, ... every five minutes: gamma follows each time, without a wait that grows."""

    def load(second: int) -> int:
        return 2 if (second // 300) % 2 == 0 else 110

    flight = fly(PRICES, 7200, load, gamma=2, ratio=lambda second, gamma: 1.0, every_s=5)
    raises = [change.at % 600 for change in flight.changes if change.gamma > change.before]
    assert len(raises) >= 10
    assert max(raises) - min(raises) <= 5


# -- the pieces -------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(0, 500)), min_size=1, max_size=60), st.floats(0.5, 80))
def test_the_peak_is_the_highest_of_the_window(steps: list[tuple[float, int]], later: float) -> None:
    track, seen, now = LoadTrack(40.0), [], 0.0
    for pause, load in steps:
        now += pause
        seen.append((now, load))
        track.saw(load, now)
        assert track.peak(now) == max(load for at, load in seen if at >= now - 40.0)
        usual = track.usual(now)
        assert usual is not None
        most = max(load for _, load in seen)
        assert min(load for _, load in seen) * (1 - 1e-6) - 1e-9 <= usual <= most * (1 + 1e-6) + 1e-9
    now += later
    recent = [load for at, load in seen if at >= now - 40.0]
    assert track.peak(now) == (max(recent) if recent else None)
    assert (track.usual(now) is None) == (now - seen[-1][0] > 40.0)


def test_the_usual_load_is_the_mean_over_sequences() -> None:
    """Half of the time 30 sequences, half of the time 2: 30 of 32 tokens are computed among 30."""
    track = LoadTrack(4000.0)
    for second in range(20_000):
        track.saw(30 if second % 2 else 2, float(second))
    assert track.usual(20_000.0) == pytest.approx((30 * 30 + 2 * 2) / 32, rel=0.01)
    steady = LoadTrack(40.0)
    for second in range(100):
        steady.saw(7, float(second))
    assert steady.usual(100.0) == pytest.approx(7.0)


def test_a_load_that_has_fallen_is_the_usual_one_after_a_quarter_of_the_window() -> None:
    track = LoadTrack(40.0)
    for second in range(100):
        track.saw(70, float(second))
    for second in range(100, 130):
        track.saw(3, float(second))
        assert track.usual(float(second)) == (3.0 if second > 109 else pytest.approx(70.0, abs=4))
        track.saw(0, second + 0.5)
    for second in range(130, 145):
        track.saw(0, float(second))
    assert track.usual(144.0) == 0.0


def test_a_gamma_that_nobody_chose_waits_for_a_quarter_of_the_dwell_only() -> None:
    flight = fly(PRICES, 300, lambda second: 64 if second < 100 else 1, gamma=8)
    first, second = flight.changes
    assert (first.at, first.reason) == (15, "gain")
    assert second.at - first.at >= 60


def test_memory_knows_what_is_under_way() -> None:
    decision = choose_gamma(inputs(gamma=8, load=64.0, peak=64))
    assert decision.changes
    asked = decision.asked(1000.0)
    assert choose_gamma(inputs(gamma=8, load=64.0, peak=64, memory=asked)).reason == "in_flight"
    assert asked.applied(1003.0).changed_at == 1003.0
    rules = GammaRules()
    memory, waits = decision.memory, []
    for _ in range(4):
        memory = replace(decision, memory=memory).asked(1000.0).failed(1000.0, rules)
        waits.append(memory.retry_at - 1000.0)
    assert waits == [60.0, 120.0, 240.0, 480.0]
    assert choose_gamma(inputs(gamma=8, load=64.0, peak=64, memory=memory)).reason == "failed"
    assert asked.applied(1003.0).failures == 0
    for wrong in (GammaMemory().applied, lambda at: GammaMemory().failed(at, rules)):
        with pytest.raises(ValueError, match="pending"):
            wrong(1.0)
    with pytest.raises(ValueError, match="nothing"):
        choose_gamma(inputs(gamma=None)).asked(0.0)


def test_a_pilot_keeps_the_ratio_while_nothing_is_drafted_and_forgets_with_policy_or_engine() -> None:
    def gamma_of(pilot: GammaPilot, now: float, policy: Prices, ratio: float | None = None) -> int | None:
        return pilot.decide(now, policy, gamma=0, largest=8, smallest=0, batch=8, acceptance_ratio=ratio).best

    pilot = GammaPilot("r", GammaRules(), 0.0)
    assert gamma_of(pilot, 1.0, PRICES) not in (0, None)
    assert gamma_of(pilot, 2.0, PRICES, ratio=0.01) == 0
    assert gamma_of(pilot, 3.0, PRICES) == 0
    assert gamma_of(pilot, 4.0, replace(PRICES)) not in (0, None)
    assert gamma_of(pilot, 5.0, PRICES, ratio=0.01) == 0
    pilot.forget(6.0)
    assert gamma_of(pilot, 7.0, PRICES) not in (0, None)
    assert pilot.memory == GammaMemory(changed_at=6.0 - 45.0)


def test_as_plain_data() -> None:
    data = choose_gamma(inputs()).as_dict()
    assert data["candidates"][0]["gamma"] == 0
    assert data["wanted"] == choose_gamma(inputs()).wanted
    assert math.isfinite(data["gain"])
