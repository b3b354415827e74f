from __future__ import annotations

import pytest

from adaptive_gamma.bench.sweep.counters import counter_gain, fell
from adaptive_gamma.engines import EngineReading, LatencySum, SpeculationCounters


def reading(
    drafts: float, tokens: float, accepted: float, positions: tuple[float, ...], generated: float = 0.0
) -> EngineReading:
    counters = SpeculationCounters(drafts, tokens, accepted, positions)
    return EngineReading(speculation=counters, generation_tokens=generated)


def test_acceptance_is_what_the_counters_gained() -> None:
    before = reading(1000, 3000, 900, (500, 250, 150), generated=2000)
    gain = counter_gain(before, reading(1100, 3300, 1070, (580, 310, 180), generated=2300))
    assert gain.acceptance is not None
    assert gain.acceptance.drafts == 100
    assert gain.acceptance.mean_length == pytest.approx(2.7)
    assert gain.acceptance.per_position == pytest.approx((0.8, 0.6, 0.3))
    assert gain.acceptance.cumulative is False
    assert (gain.draft_length, gain.varies, gain.generated_tokens) == (3.0, False, 300)


def test_positions_that_appear_with_the_first_draft_counted_from_zero() -> None:
    before = reading(0, 0, 0, ())
    gain = counter_gain(before, reading(10, 20, 9, (6, 3)))
    assert gain.acceptance is not None
    assert gain.acceptance.per_position == pytest.approx((0.6, 0.3))
    gain = counter_gain(EngineReading(), reading(10, 20, 9, (6, 3)))
    assert gain.acceptance is not None
    assert gain.acceptance.mean_length == pytest.approx(1.9)


def test_drafts_that_vary_in_length_give_no_rates_by_position() -> None:
    gain = counter_gain(reading(0, 0, 0, (0, 0, 0, 0)), reading(20, 52, 52, (20, 12, 12, 8)))
    assert gain.varies
    assert gain.acceptance is not None
    assert gain.acceptance.per_position is None
    assert gain.acceptance.mean_length == pytest.approx(3.6)


def test_drafts_cut_at_the_end_of_answers_do_not_vary() -> None:
    gain = counter_gain(reading(0, 0, 0, (0, 0, 0, 0)), reading(100, 390, 200, (80, 60, 40, 20)))
    assert not gain.varies


@pytest.mark.parametrize(
    "after",
    [
        EngineReading(),
        EngineReading(speculation=SpeculationCounters(None, 10, 5)),
        reading(1000, 3000, 900, (500, 250, 150)),
    ],
)
def test_nothing_drafted_or_nothing_told_is_unknown_not_zero(after: EngineReading) -> None:
    assert counter_gain(reading(1000, 3000, 900, (500, 250, 150)), after).acceptance is None


def test_the_engines_own_time_between_events() -> None:
    before = EngineReading(inter_token_latency=LatencySum(10.0, 1000))
    after = EngineReading(inter_token_latency=LatencySum(12.0, 1400))
    assert counter_gain(before, after).step_s == pytest.approx(0.005)
    assert counter_gain(before, before).step_s is None
    assert counter_gain(EngineReading(), after).step_s is None


@pytest.mark.parametrize(
    ("before", "after", "started_anew"),
    [
        (reading(5, 10, 5, (4, 1), 90), reading(5, 10, 5, (4, 1), 90), False),
        (reading(5, 10, 5, (4, 1), 90), reading(6, 12, 6, (4, 2), 89), True),
        (reading(5, 10, 5, (4, 1), 90), reading(4, 12, 6, (4, 2), 91), True),
        (reading(5, 10, 5, (4, 1), 90), reading(6, 12, 6, (3, 3), 91), True),
        (reading(5, 10, 5, (4, 1), 90), reading(6, 12, 6, (9,), 91), True),
        (reading(0, 0, 0, (), 90), reading(6, 12, 6, (4, 2), 91), False),
        (EngineReading(), reading(6, 12, 6, (4, 2), 91), False),
        (EngineReading(prompt_tokens=5), EngineReading(prompt_tokens=4), True),
    ],
)
def test_a_total_that_fell_is_a_start_anew(before: EngineReading, after: EngineReading, started_anew: bool) -> None:
    assert fell(before, after) is started_anew
