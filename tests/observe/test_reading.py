"""Observations as lines, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.observe import Observation, Place, parse_since, read_lines, read_log

from .making import START, observation

FINITE = st.floats(0, 1e6, allow_nan=False)
PLACES = st.builds(
    Place,
    st.text(min_size=1, max_size=9),
    st.sampled_from(["plain", "speculative"]),
    st.none() | st.integers(0, 64),
    st.integers(0, 1000),
    st.floats(1e-6, 10),
    FINITE,
    FINITE,
)
COUNTS = st.none() | st.integers(0, 10**6)
OBSERVATIONS = st.builds(
    Observation,
    FINITE.map(lambda x: round(x, 3)), st.text(), st.text(), st.text(), st.text(), PLACES, PLACES, COUNTS,
    st.integers(1, 200), st.sampled_from(["ok", "client_closed"]), COUNTS, st.booleans(),
    st.none() | FINITE.map(lambda x: round(x, 6)), FINITE.map(lambda x: round(x, 6)), COUNTS,
)  # fmt: skip


@given(OBSERVATIONS)
def test_an_observation_comes_back_from_its_line(made: Observation) -> None:
    line = made.line()
    assert b"\n" not in line
    assert read_lines([line], 0.0).observations == [made]


@given(st.binary(max_size=200))
def test_any_bytes_are_a_line_that_is_counted(text: bytes) -> None:
    found = read_lines(text.split(b"\n"), 0.0)
    assert found.observations == []


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2}, {"v": None}, {"total_s": None}, {"total_s": -1}, {"total_s": "long"}, {"expected_tokens": 0},
        {"sent": None}, {"sent": {}}, {"output_tokens": -1}, {"output_tokens": True}, {"output_tokens": 1.5},
        {"time_s": float("nan")}, {"time_s": float("inf")}, {"time_s": 1e12}, {"total_s": 1e300},
        {"output_tokens": 10**400}, {"expected_tokens": 10**400}, {"v": None, "dropped": 7},
    ],
)  # fmt: skip
def test_a_wrong_line_is_no_observation(change: dict[str, Any]) -> None:
    row = {**json.loads(observation().line()), **change}
    found = read_lines([json.dumps(row).encode(), observation().line()], 0.0)
    assert (len(found.observations), found.unreadable) == (1, 1)


@pytest.mark.parametrize("dropped", ["1e400", "NaN", "null", '"many"', "[]"])
def test_a_wrong_number_of_dropped_lines_is_a_line_that_is_counted(dropped: str) -> None:
    found = read_lines([b'{"dropped":%b}' % dropped.encode(), b'{"dropped":2}'], 0.0)
    assert (found.dropped, found.unreadable) == (2, 1)


def test_wrong_places() -> None:
    wrong: list[dict[str, Any]] = [{"tpot_s": value} for value in (0, -1, 1e300)]
    for change in (*wrong, {"pool": "other"}, {"cost_s": None}, {"gamma": "4"}):
        row = json.loads(observation().line())
        row["decided"].update(change)
        assert read_lines([json.dumps(row).encode()], 0.0).unreadable == 1


def test_a_log_is_read_with_what_was_put_aside_of_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for name, at in (("log.2", 0), ("log.1", 10), ("log", 20)):
        lines = [observation(at=at + n).line() for n in range(3)]
        (tmp_path / name).write_bytes(b"\n".join([*lines, b'{"dropped":2}', b""]))
    with log.open("ab") as file:
        file.write(b'{"v":1,"time')
    (tmp_path / "log.4").write_bytes(observation(at=99).line())
    found = read_log(log, START + 2)
    assert [each.time_s - START for each in found.observations] == [2, 10, 11, 12, 20, 21, 22]
    assert (found.earlier, found.dropped, found.unreadable) == (2, 6, 1)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_log(tmp_path / "none", 0.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", 970.0), ("15m", 100.0), ("1h", -2600.0), ("1.5h", -4400.0), ("2 d", -171_800.0), ("1w", -603_800.0),
        ("2026-05-01T12:00:00Z", 1_777_636_800.0), ("2026-05-01 12:00", 1_777_636_800.0),
        ("2026-05-01T14:00:00+02:00", 1_777_636_800.0), ("2026-05-01", 1_777_593_600.0),
        ("1777636800.5", 1_777_636_800.5),
    ],
)  # fmt: skip
def test_since(text: str, expected: float) -> None:
    assert parse_since(text, 1000.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text", ["", "1", "h", "1y", "yesterday", "-1h", "12:00", "2026-13-01", "1e3s", "9" * 400 + "d"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a length of time"):
        parse_since(text, 1000.0)
