"""SGLang's rule, against what its own class was seen to do (2,000 batches of 16 requests, independent acceptance)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from adaptive_gamma.simulation.control import AdaptiveSlot, AdaptiveTable, SlotRule
from adaptive_gamma.simulation.replay.gamma_choice import WatchingChoice


def walk(candidates: tuple[int, ...], acceptance: float, hysteresis: float = 0.0) -> tuple[Counter[int], int]:
    """Batches spent at each number of steps, and switches."""
    slot = AdaptiveSlot(SlotRule(candidates, down_hysteresis=hysteresis), candidates[-1])
    rng = np.random.Generator(np.random.PCG64(7))
    spent: Counter[int] = Counter()
    for _ in range(2000):
        spent[slot.steps] += 1
        runs = np.cumprod(rng.random((16, 8)) < acceptance, axis=1).sum(axis=1)
        slot.saw(float(np.minimum(runs, slot.steps).mean()))
    return spent, slot.switches


@pytest.mark.parametrize(("acceptance", "steps"), [(0.0, 1), (0.2, 1), (0.4, 3), (0.6, 3)])
def test_small_batches_settle_where_the_engine_settled(acceptance: float, steps: int) -> None:
    spent, _ = walk((1, 3, 5, 7), acceptance, -0.25)
    assert spent[steps] > 1900


def test_a_long_draft_that_is_too_long_is_left_for_good() -> None:
    spent, switches = walk((1, 3, 5, 7), 0.8, -0.25)
    assert spent[3] + spent[5] > 1900
    assert switches <= 2


@pytest.mark.parametrize("candidates", [(0, 1, 3), (0, 1)])
@pytest.mark.parametrize("acceptance", [0.0, 0.2])
def test_a_bad_drafter_is_probed_half_the_time(candidates: tuple[int, ...], acceptance: float) -> None:
    spent, switches = walk(candidates, acceptance)
    assert switches == 398
    assert spent[1] / 2000 == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(("candidates", "steps"), [((0, 1, 3), 3), ((0, 1), 1)])
def test_a_good_drafter_stays_at_the_longest(candidates: tuple[int, ...], steps: int) -> None:
    spent, _ = walk(candidates, 0.8)
    assert spent[steps] == 2000


def test_a_table_keeps_a_state_for_each_slot_and_stops_at_64() -> None:
    table = AdaptiveTable(start=5)
    assert isinstance(table, WatchingChoice)
    assert [table.at(batch, (), None) for batch in (1, 7, 8, 31, 32, 63, 64, 200)] == [5, 5, 3, 3, 1, 1, 0, 0]
    table.at(10, (), None)
    assert table.patience == 15
    assert not table.saw(np.zeros(14))
    assert table.patience == 1
    assert table.saw(np.zeros(1))
    assert table.at(10, (), None) == 0
    assert table.at(1, (), None) == 5
    table.at(10, (), None)
    assert table.patience == 5
    assert table.saw(np.zeros(5))
    assert table.at(10, (), None) == 1


@pytest.mark.parametrize("candidates", [(), (3, 1), (1, 1), (-1, 2)])
def test_candidates_must_rise(candidates: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rise"):
        SlotRule(candidates)


def test_a_table_begins_at_batch_1() -> None:
    with pytest.raises(ValueError, match="batch size 1"):
        AdaptiveTable(3, {2: SlotRule((1, 3))})
