"""Measured tables, and the staircase and cliff of captured steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.roofline import (
    CapturedStep,
    CaptureSizes,
    Interpolation,
    LinearStep,
    MeasuredTableStep,
    ModelShare,
    PlainPoolStep,
)

POINTS = [(1, 5.109e-3), (16, 5.592e-3), (64, 7.9e-3), (256, 11.297e-3), (1024, 20.634e-3)]
TABLE = MeasuredTableStep.from_points(POINTS)
LOG_TABLE = MeasuredTableStep.from_points(POINTS, "log")
rising = st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=12)


@pytest.mark.parametrize("table", [TABLE, LOG_TABLE])
def test_a_table_gives_what_was_measured(table: MeasuredTableStep) -> None:
    for tokens, seconds in POINTS:
        assert table.seconds(tokens, 1, 0) == pytest.approx(seconds)
        assert table.seconds(1, tokens, 0) == pytest.approx(seconds)
        assert table.seconds(1, 1, 0, tokens - 1) == pytest.approx(seconds)


def test_between_the_points() -> None:
    assert TABLE.seconds(40, 1, 0) == pytest.approx((5.592e-3 + 7.9e-3) / 2)
    assert LOG_TABLE.seconds(128, 1, 0) == pytest.approx(math.sqrt(7.9e-3 * 11.297e-3))


def test_beyond_the_points() -> None:
    slope = (20.634e-3 - 11.297e-3) / 768
    assert TABLE.seconds(2048, 1, 0) == pytest.approx(20.634e-3 + 1024 * slope)
    assert LOG_TABLE.seconds(4096, 1, 0) == pytest.approx(20.634e-3 * (20.634 / 11.297))
    below = MeasuredTableStep.from_points([(8, 0.01), (16, 0.02)])
    assert below.seconds(1, 1, 0) == pytest.approx(0.01)
    assert TABLE.last_tokens == 1024


@given(rising, st.sampled_from(["linear", "log"]), st.integers(1, 4096), st.integers(1, 9))
def test_it_never_falls(increments: list[float], interpolation: Interpolation, batch: int, width: int) -> None:
    seconds = np.cumsum(increments)
    tokens = 2.0 ** np.arange(seconds.size)
    table = MeasuredTableStep(tuple(tokens.tolist()), (tuple(seconds.tolist()),), interpolation=interpolation)
    here = table.seconds(batch, width, 0)
    assert here > 0
    assert table.seconds(batch + 1, width, 0) >= here * (1 - 1e-12)
    assert table.seconds(batch, width + 1, 0) >= here * (1 - 1e-12)


LINE = LinearStep(5e-3, 2e-5, 1e-8)
TOKENS, CONTEXTS = (1.0, 8.0, 64.0, 512.0), (0.0, 1000.0, 8000.0)


class TestContexts:
    table = MeasuredTableStep(
        TOKENS, tuple(tuple(float(LINE.seconds(t, 1, c)) for t in TOKENS) for c in CONTEXTS), CONTEXTS
    )

    @given(st.integers(1, 512), st.floats(0, 8000))
    def test_plain_steps(self, batch: int, context: float) -> None:
        assert self.table.seconds(batch, 1, context) == pytest.approx(float(LINE.seconds(batch, 1, context)))

    def test_a_verify_step_reads_each_context_once(self) -> None:
        assert self.table.seconds(64, 4, 4000) == pytest.approx(float(LINE.seconds(64, 4, 4000)))
        pooled = PlainPoolStep(self.table, kv_read_once=True)
        assert pooled.seconds(64, 4, 4000) == pytest.approx(float(LINE.seconds(64, 4, 4000)))

    def test_outside_the_contexts_the_nearest_row_holds(self) -> None:
        assert self.table.seconds(8, 1, 20_000) == self.table.seconds(8, 1, 8000)

    def test_arrays_broadcast(self) -> None:
        grid = self.table.seconds(np.asarray([1, 8, 64])[:, None, None], np.asarray([1, 4])[:, None], [0, 500, 9000])
        assert grid.shape == (3, 2, 3)
        assert grid[1, 1, 1] == self.table.seconds(8, 4, 500)
        assert isinstance(self.table.seconds(8, 4, 500), float)


def test_a_share_of_a_table() -> None:
    found = TABLE.seconds(16, 4, 0, share=ModelShare(0.2, 0.5, 0.0))
    assert found == pytest.approx(0.2 * 5.109e-3 + 0.5 * (7.9e-3 - 5.109e-3))


@pytest.mark.parametrize(
    ("tokens", "rows", "contexts", "says"),
    [
        ((1.0,), ((0.1,),), (0.0,), "two token counts"),
        ((2.0, 1.0), ((0.1, 0.2),), (0.0,), "rise"),
        ((1.0, 2.0), ((0.2, 0.1),), (0.0,), "must not fall"),
        ((1.0, 2.0), ((0.0, 0.1),), (0.0,), "> 0"),
        ((1.0, 2.0), ((0.1, math.inf),), (0.0,), "> 0"),
        ((1.0, 2.0), ((0.1,),), (0.0,), "2 times"),
        ((1.0, 2.0), ((0.1, 0.2),), (0.0, 5.0), "each of 2 contexts"),
        ((1.0, 2.0), ((0.1, 0.2), (0.1, 0.2)), (5.0, 5.0), "rise"),
    ],
)
def test_impossible_tables(
    tokens: tuple[float, ...], rows: tuple[tuple[float, ...], ...], contexts: tuple[float, ...], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        MeasuredTableStep(tokens, rows, contexts)


class TestCapturedStep:
    line = LinearStep(5e-3, 2e-5, 1e-9)
    sizes = CaptureSizes((1, 2, 4, 8, 16))
    step = CapturedStep(line, sizes, uncaptured_seconds=0.08)

    def test_a_staircase_below_the_limit(self) -> None:
        assert self.step.seconds(5, 1, 100) == pytest.approx(5e-3 + 8 * 2e-5 + 500e-9)
        assert self.step.seconds(2, 4, 100, 3) == pytest.approx(5e-3 + 11 * 2e-5 + 200e-9)

    def test_a_cliff_beyond_it(self) -> None:
        assert self.step.limit == 16
        assert self.step.seconds(16, 1, 0) == self.line.seconds(16, 1, 0)
        assert self.step.seconds(17, 1, 0) == pytest.approx(0.08 + float(self.line.seconds(17, 1, 0)))
        assert self.step.seconds(4, 4, 0, 999) == pytest.approx(float(self.line.seconds(4, 4, 0, 999)))

    def test_without_sizes_nothing_is_padded(self) -> None:
        plain = CapturedStep(self.line, limit_tokens=64, uncaptured_seconds=0.08)
        assert plain.seconds(5, 1, 0) == self.line.seconds(5, 1, 0)
        assert plain.seconds([64, 65], 1, 0)[1] > 0.08
        assert CapturedStep(self.line).seconds(9999, 1, 0) == self.line.seconds(9999, 1, 0)
        assert CapturedStep(self.line).limit is None

    @given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 4096))
    def test_more_work_never_takes_less_time(self, batch: int, width: int, context: int) -> None:
        here = self.step.seconds(batch, width, context)
        assert self.step.seconds(batch + 1, width, context) >= here
        assert self.step.seconds(batch, width + 1, context) >= here
        assert here >= self.line.seconds(batch, width, context)

    def test_impossible_ones(self) -> None:
        with pytest.raises(ValueError, match="uncaptured_seconds"):
            CapturedStep(self.line, uncaptured_seconds=-1)
        with pytest.raises(ValueError, match="limit_tokens"):
            CapturedStep(self.line, self.sizes, 8)
