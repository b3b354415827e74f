from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.fleet import HealthMonitor


def test_three_failures_down_two_successes_up() -> None:
    health = HealthMonitor()
    assert health.up
    assert [health.probed(False) for _ in range(4)] == [False, False, True, False]
    assert not health.up
    assert [health.probed(True) for _ in range(3)] == [False, True, False]
    assert health.up
    assert health.changes == 2


def test_a_success_ends_the_row_of_failures() -> None:
    health = HealthMonitor()
    for _ in range(20):
        health.probed(False)
        health.probed(False)
        health.probed(True)
    assert health.up
    assert health.changes == 0


def test_a_failure_ends_the_row_of_successes() -> None:
    health = HealthMonitor()
    for _ in range(3):
        health.probed(False)
    for _ in range(20):
        health.probed(True)
        health.probed(False)
    assert not health.up


def test_refused_connections_add_to_failed_probes() -> None:
    health = HealthMonitor()
    health.probed(False)
    assert not health.connect_failed()
    assert health.connect_failed()
    assert not health.up


def test_an_answer_clears_refused_connections_but_not_failed_probes() -> None:
    health = HealthMonitor()
    health.connect_failed()
    health.connect_failed()
    health.answered()
    assert health.failures == 0
    health.probed(False)
    health.probed(False)
    health.answered()
    assert health.failures == 2
    assert health.probed(False)


def test_answers_do_not_bring_a_replica_up() -> None:
    health = HealthMonitor(down_after=1, up_after=2)
    health.probed(False)
    for _ in range(10):
        health.answered()
    assert not health.up
    health.probed(True)
    health.connect_failed()
    health.probed(True)
    assert not health.up, "a refused connection ends the row of successes"


@pytest.mark.parametrize("limits", [(0, 2), (3, 0)])
def test_limits(limits: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        HealthMonitor(down_after=limits[0], up_after=limits[1])


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 5), st.integers(1, 5))
def test_against_the_words_of_the_rule(probes: list[bool], down_after: int, up_after: int) -> None:
    health = HealthMonitor(down_after=down_after, up_after=up_after)
    up, changes = True, 0
    row: list[bool] = []
    for ok in probes:
        row = [*row, ok] if not row or row[-1] == ok else [ok]
        if up and not ok and len(row) >= down_after:
            up, row, changes = False, [], changes + 1
        elif not up and ok and len(row) >= up_after:
            up, row, changes = True, [], changes + 1
        health.probed(ok)
        assert (health.up, health.changes) == (up, changes)


def test_failed_answers_in_a_row_take_it_down() -> None:
    health = HealthMonitor()
    assert [health.answer_failed() for _ in range(4)] == [False, False, True, False]
    assert not health.up
    assert [health.probed(True), health.probed(True)] == [False, True]
    assert [health.answer_failed() for _ in range(2)] == [False, False], "the row starts anew"


def test_any_other_answer_ends_the_row_of_failed_ones() -> None:
    health = HealthMonitor()
    for _ in range(20):
        health.answer_failed()
        health.answer_failed()
        health.answered()
    assert health.up


def test_a_good_health_page_does_not_end_the_row_of_failed_answers() -> None:
    health = HealthMonitor()
    for _ in range(3):
        health.answer_failed()
        health.probed(True)
    assert not health.up


def test_failed_answers_and_failed_probes_are_two_rows() -> None:
    health = HealthMonitor()
    for _ in range(2):
        health.probed(False)
        health.answer_failed()
    assert (health.up, health.failures) == (True, 2)


def test_a_failed_answer_ends_the_row_of_successes() -> None:
    health = HealthMonitor(down_after=1)
    health.probed(False)
    health.probed(True)
    health.answer_failed()
    health.probed(True)
    assert not health.up


def test_limits_may_change() -> None:
    health = HealthMonitor(down_after=100)
    for _ in range(5):
        health.probed(False)
    health.set_limits(down_after=3, up_after=1)
    assert health.up, "nothing has happened since"
    assert health.probed(False)
    assert health.probed(True)
    with pytest.raises(ValueError, match="at least 1"):
        health.set_limits(down_after=0, up_after=1)
