"""Drafts of different lengths, on an engine that counts them by position: acceptance is what it is."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.engines import SpeculationCounters
from adaptive_gamma.fleet import AcceptanceWindow, DraftCounts
from adaptive_gamma.fleet.accepted import acceptance_ratio
from tests.fleet.scene import Prior


class Engine:
    """Drafts of any length; ``told``: whether it counts them by position."""

    def __init__(self, positions: int, *, told: bool = True, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.told = told
        self.drafts = 0
        self.drafted = [0] * positions
        self.accepted = [0] * positions

    def draft(self, count: int, length: int, rates: list[float]) -> None:
        for _ in range(count):
            self.drafts += length > 0
            alive = True
            for position in range(length):
                self.drafted[position] += 1
                alive = alive and self.random.random() < rates[position]
                self.accepted[position] += alive

    def counters(self) -> SpeculationCounters:
        return SpeculationCounters(
            self.drafts, sum(self.drafted), sum(self.accepted), tuple(self.accepted),
            tuple(self.drafted) if self.told else (),
        )  # fmt: skip


RATES = [0.8, 0.6, 0.7, 0.5, 0.9]


def test_a_schedule_biases_nothing() -> None:
    engine, blind, window, other = Engine(5), Engine(5, told=False), AcceptanceWindow(), AcceptanceWindow()
    window.update(engine.counters(), 0.0)
    other.update(blind.counters(), 0.0)
    for second in range(1, 61):
        for length in (5, 1, 2, 0):
            engine.draft(500, length, RATES)
            blind.draft(500, length, RATES)
        window.update(engine.counters(), float(second))
        other.update(blind.counters(), float(second))
    naive = [blind.accepted[0] / blind.drafts] + [
        b / a for a, b in zip(blind.accepted, blind.accepted[1:], strict=False)
    ]
    assert window.conditional is not None
    print("true", RATES, "seen", [round(r, 3) for r in window.conditional], "naive", [round(r, 3) for r in naive])
    assert window.conditional == pytest.approx(RATES, abs=0.02)
    assert max(abs(a - b) for a, b in zip(naive, RATES, strict=True)) > 0.15
    assert (window.variable_draft_length, window.drafted_by_position) == (True, True)
    assert (other.conditional, other.drafted_by_position) == (None, False)
    lengths = window.drafts_by_length()
    assert lengths is not None
    assert set(lengths) == {1, 2, 5}
    assert other.drafts_by_length() is None


def test_a_change_of_the_schedule_is_no_change_of_acceptance() -> None:
    engine, window = Engine(5), AcceptanceWindow()
    window.update(engine.counters(), 0.0)
    for second in range(1, 61):
        engine.draft(1000, 5 if second % 20 < 10 else 2, RATES)
        assert not window.update(engine.counters(), float(second)).changed
    for second in range(61, 64):
        engine.draft(1000, 2, [0.4, 0.4])
        window.update(engine.counters(), float(second))
    assert window.conditional is not None
    assert window.conditional[:2] == pytest.approx((0.4, 0.4), abs=0.05), "a change of acceptance is"


def test_full_drafts_as_before() -> None:
    told, blind, window, other = Engine(3), Engine(3, told=False), AcceptanceWindow(), AcceptanceWindow()
    for second in range(30):
        window.update(told.counters(), float(second))
        other.update(blind.counters(), float(second))
        told.draft(200, 3, RATES)
        blind.draft(200, 3, RATES)
    assert window.conditional == pytest.approx(other.conditional)
    rates, others = window.position_rates() or (), other.position_rates() or ()
    assert [trials for _, trials in rates] == pytest.approx([trials for _, trials in others])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 300), st.floats(0, 1)), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_rates_are_rates_whatever_is_drafted(looks: list[tuple[int, int, float]], chance: random.Random) -> None:
    """Also where the length of a draft depends on how it will fare."""
    engine, window = Engine(6, seed=chance.randrange(1000)), AcceptanceWindow()
    window.update(engine.counters(), 0.0)
    for second, (length, count, rate) in enumerate(looks, 1):
        engine.draft(count, length, [rate] * 6)
        if rate > 0.5:
            engine.draft(count // 2, max(length - 2, 0), [0.0] * 6)
        window.update(engine.counters(), float(second))
    for rate, trials in window.position_rates() or ():
        assert 0 <= rate <= 1
        assert 0 <= trials <= engine.drafts + 1e-6


def test_counts_that_begin_or_end_start_the_window_anew() -> None:
    window = AcceptanceWindow()
    plain = SpeculationCounters(100, 200, 100, (60, 40))
    window.update(SpeculationCounters(0, 0, 0, (0, 0)), 0.0)
    window.update(plain, 1.0)
    assert window.weight == 100
    assert window.update(SpeculationCounters(200, 300, 150, (100, 50), (200, 100)), 2.0).changed
    assert window.weight == 0
    window.update(SpeculationCounters(300, 400, 200, (140, 60), (300, 100)), 3.0)
    assert (window.weight, window.conditional) == (100, (0.4,))
    assert window.update(SpeculationCounters(400, 500, 250, (180, 70)), 4.0).changed
    assert window.weight == 0
    window = AcceptanceWindow()
    window.update(SpeculationCounters(300, 400, 200, (140, 60), (300, 100)), 3.0)
    assert window.update(SpeculationCounters(310, 410, 210, (145, 65), (290, 120)), 4.0).restarted


def test_what_learning_is_told_is_as_of_full_drafts() -> None:
    counts = DraftCounts(100, 360, 150, [80, 40, 30], {"chat": 100}, 100, [100, 80, 40])
    accepted, tokens = counts.full_drafts()
    assert accepted == pytest.approx([80, 50])
    assert tokens == 200
    blind = DraftCounts(100, 260, 150, [80, 40, 30], {"chat": 100}, 100)
    assert blind.full_drafts() == ([80, 40, 30], 260)


def test_the_ratio_counts_drafts_by_their_length() -> None:
    engine, window = Engine(4), AcceptanceWindow()
    window.update(engine.counters(), 0.0)
    engine.draft(40_000, 4, [0.5] * 4)
    engine.draft(40_000, 1, [0.5] * 4)
    window.update(engine.counters(), 1.0)
    assert acceptance_ratio(window, Prior(), None) == pytest.approx(1.0, abs=0.02)
    assert acceptance_ratio(window, None, None) is None
