from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.engines import SpeculationCounters
from adaptive_gamma.fleet import AcceptanceWindow


class Engine:
    """Counters that grow by random drafts of fixed length with a given conditional acceptance."""

    def __init__(self, positions: int, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.drafts = 0
        self.per_position = [0] * positions

    def draft(self, drafts: int, rate: float) -> SpeculationCounters:
        self.drafts += drafts
        for _ in range(drafts):
            for position in range(len(self.per_position)):
                if self.random.random() >= rate:
                    break
                self.per_position[position] += 1
        return self.counters()

    def counters(self) -> SpeculationCounters:
        return SpeculationCounters(
            drafts=self.drafts,
            draft_tokens=self.drafts * len(self.per_position),
            accepted_tokens=sum(self.per_position),
            accepted_per_position=tuple(self.per_position),
        )


def counters(drafts: float, *per_position: float, draft_tokens: float | None = None) -> SpeculationCounters:
    return SpeculationCounters(
        drafts=drafts,
        draft_tokens=drafts * len(per_position) if draft_tokens is None else draft_tokens,
        accepted_tokens=sum(per_position),
        accepted_per_position=per_position,
    )


def test_no_data_before_a_draft() -> None:
    window = AcceptanceWindow()
    assert window.conditional is None
    assert window.accepted_per_draft is None
    assert window.variable_draft_length is None
    window.update(counters(1000, 900, 800), 0.0)
    assert window.conditional is None, "how old the first totals are is not known"
    assert window.update(counters(1000, 900, 800), 1.0).drafts == 0
    assert window.conditional is None, "a window without drafts is no data, not acceptance 0"


def test_rates_are_conditional() -> None:
    window = AcceptanceWindow()
    window.update(counters(0, 0, 0, 0), 0.0)
    window.update(counters(100, 80, 40, 30), 1.0)
    assert window.conditional == pytest.approx((0.8, 0.5, 0.75))
    assert window.accepted_per_draft == pytest.approx(1.5)
    rates = window.position_rates()
    assert rates is not None
    assert [trials for _, trials in rates] == pytest.approx([100, 80, 40])


def test_nothing_accepted_is_data() -> None:
    window = AcceptanceWindow()
    window.update(counters(0, 0, 0), 0.0)
    window.update(counters(50, 0, 0), 1.0)
    assert window.conditional == (0.0,), "no draft reached position 1"
    assert window.accepted_per_draft == 0.0


def test_half_life_counts_seconds_with_traffic_only() -> None:
    window = AcceptanceWindow(half_life_s=30.0)
    window.update(counters(0, 0), 0.0)
    window.update(counters(1000, 500), 1.0)
    for second in range(2, 3600):
        window.update(counters(1000, 500), float(second))
    assert window.weight == pytest.approx(1000)
    window.update(counters(1001, 500.5), 3600.0)
    assert window.weight == pytest.approx(1000 * 0.5 ** (1 / 30) + 1)
    window.update(counters(1002, 501), 3630.0)
    assert window.weight == pytest.approx((1000 * 0.5 ** (1 / 30) + 1) / 2 + 1)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("before", "after"), [(0.85, 0.45), (0.45, 0.85), (0.9, 0.3), (0.7, 0.5)])
def test_a_change_is_followed_within_three_scrapes_of_100_drafts(seed: int, before: float, after: float) -> None:
    engine = Engine(3, seed)
    window = AcceptanceWindow()
    now = 0.0
    window.update(engine.counters(), now)
    for _ in range(300):
        now += 1.0
        window.update(engine.draft(100, before), now)
    assert window.conditional is not None
    assert window.conditional[0] == pytest.approx(before, abs=0.12)
    start = engine.counters()
    for _ in range(3):
        now += 1.0
        window.update(engine.draft(100, after), now)
    rates = window.conditional
    assert rates is not None
    reached = engine.drafts - (start.drafts or 0)
    for position, rate in enumerate(rates):
        hits = engine.per_position[position] - start.accepted_per_position[position]
        assert rate == pytest.approx(hits / reached, abs=0.02 if (before, after) != (0.7, 0.5) else 0.08)
        noise = 3 * (after * (1 - after) / reached) ** 0.5
        assert abs(rate - after) < 0.08 + noise
        reached = hits


def test_the_statement_of_the_design_without_sampling_noise() -> None:
    """0.85 to 0.45: within 0.08 after three scrapes of 100 drafts."""
    window = AcceptanceWindow()
    now = total = first = second = 0.0
    window.update(counters(0, 0, 0), now)
    for rate, scrapes in ((0.85, 600), (0.45, 3)):
        for _ in range(scrapes):
            now += 1.0
            total, first, second = total + 100, first + 100 * rate, second + 100 * rate * rate
            window.update(counters(total, first, second), now)
    assert window.conditional == pytest.approx((0.45, 0.45), abs=0.001)


def test_a_change_in_the_middle_of_a_scrape_is_followed_too() -> None:
    window = AcceptanceWindow()
    now = total = hits = 0.0
    window.update(counters(0, 0), now)
    for rate, scrapes in ((0.85, 600), (0.65, 1), (0.45, 3)):
        for _ in range(scrapes):
            now += 1.0
            total, hits = total + 100, hits + 100 * rate
            window.update(counters(total, hits), now)
    assert window.conditional == pytest.approx((0.45,), abs=0.08)


def test_small_scrapes_are_put_together() -> None:
    """Engines whose counters move when a request ends bring a few drafts at a time."""
    window = AcceptanceWindow()
    now = total = hits = 0.0
    window.update(counters(0, 0), now)
    for rate, scrapes in ((0.8, 2000), (0.4, 40)):
        for _ in range(scrapes):
            now += 1.0
            total, hits = total + 10, hits + 10 * rate
            window.update(counters(total, hits), now)
    assert window.conditional == pytest.approx((0.4,), abs=0.05)


def test_a_steady_engine_keeps_its_long_window() -> None:
    """The price of the test for change: needless forgetting is rare."""
    forgotten = scrapes = 0
    for seed in range(10):
        engine, window = Engine(4, seed), AcceptanceWindow()
        window.update(engine.counters(), 0.0)
        for second in range(1, 301):
            forgotten += window.update(engine.draft(100, 0.7), float(second)).changed
            scrapes += 1
    assert forgotten / scrapes < 0.02


def test_a_restart_takes_the_new_totals_and_forgets_the_old() -> None:
    window = AcceptanceWindow()
    window.update(counters(0, 0), 0.0)
    window.update(counters(1000, 900), 1.0)
    update = window.update(counters(50, 10), 2.0)
    assert update.restarted
    assert update.drafts == 50
    assert window.conditional == pytest.approx((0.2,))


def test_a_restart_shown_elsewhere() -> None:
    window = AcceptanceWindow()
    window.update(counters(0, 0), 0.0)
    window.update(counters(10, 5), 1.0)
    assert window.update(counters(40, 4), 2.0, restarted=True)[:3] == (40, True, False)
    assert window.conditional == pytest.approx((0.1,))


def test_an_engine_that_stops_speculating_leaves_no_acceptance() -> None:
    window = AcceptanceWindow()
    window.update(counters(0, 0), 0.0)
    window.update(counters(100, 50), 1.0)
    window.update(None, 2.0)
    assert window.conditional is None
    window.update(counters(100, 50), 3.0)
    assert window.conditional is None


def test_positions_that_appear_with_the_first_request_counted_from_zero() -> None:
    window = AcceptanceWindow()
    window.update(counters(0, draft_tokens=0), 0.0)
    window.update(counters(100, 60, 30), 1.0)
    assert window.conditional == pytest.approx((0.6, 0.5))


def test_another_number_of_positions_starts_anew() -> None:
    window = AcceptanceWindow()
    window.update(counters(0, 0), 0.0)
    window.update(counters(100, 60), 1.0)
    assert window.update(counters(300, 90, 30), 2.0).changed
    assert window.conditional is None
    window.update(counters(400, 140, 60), 3.0)
    assert window.conditional == pytest.approx((0.5, 0.6))


def test_drafts_of_varying_length_give_no_rates() -> None:
    """A real n-gram server: 20 drafts, 52 tokens, all accepted, 20/12/12/8 by position."""
    window = AcceptanceWindow()
    window.update(counters(0, 0, 0, 0, 0), 0.0)
    window.update(counters(20, 20, 12, 12, 8, draft_tokens=52), 1.0)
    assert window.variable_draft_length is True
    assert window.conditional is None
    assert window.position_rates() is None
    assert window.accepted_per_draft == pytest.approx(2.6)
    assert window.token_acceptance == pytest.approx(1.0)


def test_drafts_cut_at_the_end_of_requests_are_forgiven() -> None:
    """A real llama.cpp server with synthetic acceptance 0.8, 0.6, 0.4, 0.2, on requests of 32 tokens."""
    window = AcceptanceWindow()
    window.update(counters(0, 0, 0, 0, 0), 0.0)
    window.update(counters(253, 196, 148, 95, 43, draft_tokens=960), 1.0)
    assert window.variable_draft_length is False
    assert window.conditional == pytest.approx((0.8, 0.75, 2 / 3, 0.5), abs=0.06)
    window.update(counters(506, 392, 296, 190, 86, draft_tokens=1860), 1.0)
    assert window.variable_draft_length is True
    assert window.conditional is None


def test_engines_that_count_neither_drafts_nor_positions() -> None:
    window = AcceptanceWindow()
    window.update(SpeculationCounters(None, 1000, 600), 0.0)
    window.update(SpeculationCounters(None, 2000, 1300), 1.0)
    assert window.conditional is None
    assert window.accepted_per_draft is None
    assert window.variable_draft_length is None
    assert window.token_acceptance == pytest.approx(0.7)
    for second in range(3):
        window.update(SpeculationCounters(None, 2100 + 100 * second, 1320 + 20 * second), 2.0 + second)
    assert window.token_acceptance == pytest.approx(0.2)


def test_drafts_are_shared_among_classes() -> None:
    window = AcceptanceWindow()
    window.update(counters(0, 0), 0.0)
    window.update(counters(100, 50), 1.0, {"structured": 3.0, "chat": 1.0, "none": 0.0})
    window.update(counters(200, 100), 1.0)
    assert window.drafts_by_class() == pytest.approx({"structured": 75.0, "chat": 25.0, None: 100.0})


def test_seconds_of_any_length_share_drafts_without_overflow() -> None:
    window = AcceptanceWindow()
    shares = {"a": 1e300, "b": 3e300}
    for total in (0.0, 1e15):
        window.update(SpeculationCounters(total, total, total, (total,)), 0.0, shares)
    assert window.drafts_by_class() == pytest.approx({"a": 0.25e15, "b": 0.75e15})


def test_a_clock_that_stands_still_or_goes_back() -> None:
    window = AcceptanceWindow()
    window.update(counters(0, 0), 10.0)
    window.update(counters(100, 50), 10.0)
    window.update(counters(200, 100), 5.0)
    assert window.weight == pytest.approx(200)


@pytest.mark.parametrize("half_life", [0.0, -1.0, float("nan")])
def test_half_life_must_be_positive(half_life: float) -> None:
    with pytest.raises(ValueError, match="half_life_s"):
        AcceptanceWindow(half_life)


totals = st.floats(min_value=0, max_value=1e12, allow_nan=False)
any_counters = st.one_of(
    st.none(),
    st.builds(
        SpeculationCounters,
        drafts=st.one_of(st.none(), totals),
        draft_tokens=totals,
        accepted_tokens=totals,
        accepted_per_position=st.lists(totals, max_size=5).map(tuple),
    ),
)


@given(st.lists(st.tuples(any_counters, st.floats(min_value=-1e6, max_value=1e6)), max_size=30))
def test_any_counters_give_rates_in_range(looks: list[tuple[SpeculationCounters | None, float]]) -> None:
    window = AcceptanceWindow()
    for counted, at in looks:
        update = window.update(counted, at)
        assert update.drafts >= 0
        assert window.weight >= 0
        assert window.conditional is None or all(0 <= rate <= 1 for rate in window.conditional)
        assert window.accepted_per_draft is None or window.accepted_per_draft >= 0
        assert window.token_acceptance is None or 0 <= window.token_acceptance <= 1
        assert all(drafts >= 0 for drafts in window.drafts_by_class().values())


@given(
    st.lists(st.tuples(st.integers(0, 400), st.floats(0, 1), st.floats(0, 30)), min_size=1, max_size=40),
    st.integers(1, 5),
)
def test_a_window_never_holds_more_than_was_drafted(steps: list[tuple[int, float, float]], positions: int) -> None:
    engine, window, now = Engine(positions), AcceptanceWindow(), 0.0
    window.update(engine.counters(), now)
    for drafts, rate, pause in steps:
        now += pause
        update = window.update(engine.draft(drafts, rate), now)
        assert update.drafts == drafts
        assert not update.restarted
    assert window.weight <= engine.drafts * (1 + 1e-9)
    assert window.weight >= 0
    assert sum(window.drafts_by_class().values()) == pytest.approx(window.weight, abs=1e-3)


def test_a_busy_engine_keeps_its_long_window_through_small_swings() -> None:
    window = AcceptanceWindow()
    total = hits = 0.0
    window.update(counters(0, 0), 0.0)
    for second in range(1, 301):
        total, hits = total + 10_000, hits + 10_000 * (0.68 if second % 7 < 3 else 0.72)
        assert not window.update(counters(total, hits), float(second)).changed
    assert window.weight > 300_000
    assert window.conditional == pytest.approx((0.703,), abs=0.005)
