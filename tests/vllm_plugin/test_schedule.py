"""What is a schedule: the rules of vLLM 0.32's own check, and no silent clamping."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.vllm_plugin.schedule import ScheduleError, parse_schedule


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "a schedule is a list"),
        ([], "a schedule is a list"),
        ({"1-4": 3}, "a schedule is a list"),
        ([[1, 4]], "a range is"),
        ([[1, 4, 3, 2]], "a range is"),
        ([[1, 4, 2.0]], "three whole numbers"),
        ([[1, 4, True]], "three whole numbers"),
        ([["1", 4, 2]], "three whole numbers"),
        ([[0, 4, 2]], "from 0 to 4"),
        ([[4, 1, 2]], "from 4 to 1"),
        ([[2, 4, 3]], "must start at batch 1, not at 2"),
        ([[1, 4, 3], [4, 8, 1]], "two ranges hold batch 4"),
        ([[1, 4, -1]], "gamma -1 is not within 0 to 5"),
        ([[1, 4, 6]], "gamma 6 is not within 0 to 5"),
        ([[1, 1, 1]] * 5000, "4096 ranges at most"),
    ],
)
def test_what_is_none_is_refused_in_words(value: object, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        parse_schedule(value, max_gamma=5)


def test_ranges_come_in_any_order_and_may_have_gaps() -> None:
    assert parse_schedule([[9, 64, 0], [1, 4, 2]], max_gamma=5) == ((1, 4, 2), (9, 64, 0))


@st.composite
def schedules(draw: st.DrawFn) -> list[list[int]]:
    edges = sorted(draw(st.sets(st.integers(1, 300), min_size=1, max_size=8)) | {1})
    ends = [*(each - 1 for each in edges[1:]), edges[-1] + draw(st.integers(0, 50))]
    return [[first, last, draw(st.integers(0, 5))] for first, last in zip(edges, ends, strict=True)]


@given(schedules(), st.randoms(use_true_random=False))
def test_what_is_one_comes_out_sorted(schedule: list[list[int]], random: Any) -> None:
    shuffled = list(schedule)
    random.shuffle(shuffled)
    assert parse_schedule(shuffled, max_gamma=5) == tuple(map(tuple, schedule))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
        max_leaves=12,
    )
)
def test_nothing_else_ends_otherwise_than_in_a_refusal(value: object) -> None:
    try:
        found = parse_schedule(value, max_gamma=5)
    except ScheduleError:
        return
    assert found[0][0] == 1
