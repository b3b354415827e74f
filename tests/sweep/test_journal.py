from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from adaptive_gamma.bench import Source, SweepRow, row_from_json
from adaptive_gamma.bench.sweep.journal import PLAN_SCHEMA, Journal, run_cell
from adaptive_gamma.errors import AdaptiveGammaError, SweepError

PLAN = {"schema": PLAN_SCHEMA, "id": "abc", "made_at": "now", "identity": {}, "arms": []}


def row(number: int) -> SweepRow:
    return SweepRow(
        source=Source("x"), format="adaptive-gamma", arm=f"arm-{number % 2}", concurrency_asked=8, request_class="code",
        run=f"abc-{number:03d}", completed=4, output_tokens_per_s=10.0 + number,
    )  # fmt: skip


def filled(folder: Path, count: int) -> None:
    with Journal(folder) as journal:
        journal.write_plan(PLAN)
        for number in range(count):
            journal.record(row(number), {"timeouts": number})


def test_what_is_recorded_is_there_again(tmp_path: Path) -> None:
    filled(tmp_path / "a" / "b", 3)
    with Journal(tmp_path / "a" / "b") as journal:
        assert journal.plan == PLAN
        assert [run_cell(item) for item in journal.rows] == [run_cell(row(number)) for number in range(3)]
        assert journal.finished() == {run_cell(row(number)) for number in range(3)}
        assert journal.details[run_cell(row(2))]["timeouts"] == 2
        assert [item.source.line for item in journal.rows] == [1, 2, 3]
    lines = (tmp_path / "a" / "b" / "rows.jsonl").read_text().splitlines()
    assert row_from_json(json.loads(lines[1]), Source("x")) == row(1), "the importer's form, nothing added"


@given(cut=st.integers(0, 2000))
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
def test_a_file_cut_anywhere_loses_at_most_what_was_being_written(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    filled(folder, 4)
    rows = folder / "rows.jsonl"
    content = rows.read_bytes()
    cut = min(cut, len(content))
    rows.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    with Journal(folder) as journal:
        assert len(journal.rows) == whole
        assert (journal.cut_bytes > 0) == (not content[:cut].endswith(b"\n") and cut > 0)
        journal.record(row(9), {})
    with Journal(folder) as journal:
        assert len(journal.rows) == whole + 1
        assert run_cell(journal.rows[-1]) == run_cell(row(9))


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with Journal(tmp_path), pytest.raises(SweepError, match="another sweep"), Journal(tmp_path):
        pass
    with Journal(tmp_path):
        pass


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rows.jsonl", b"{}\n", ["rows.jsonl:1", "schema"]),
        ("rows.jsonl", b"garbage\n", ["rows.jsonl:1", "not JSON"]),
        ("rows.jsonl", b"[]\n", ["rows.jsonl:1", "object"]),
        ("details.jsonl", b'{"arm": "x"}\n', ["details.jsonl:1", "concurrency_asked"]),
        ("plan.json", b"{", ["plan.json", "not JSON"]),
        ("details.jsonl", b'{"arm": []}\n', ["details.jsonl:1", "arm"]),
        ("plan.json", b'{"schema": "other"}', ["plan.json", "schema"]),
        ("plan.json", json.dumps(PLAN | {"id": 3}).encode(), ["plan.json: id"]),
        ("plan.json", json.dumps(PLAN | {"arms": [3]}).encode(), ["plan.json: arms[0].name"]),
    ],
)
def test_a_file_changed_by_others_is_named(tmp_path: Path, name: str, content: bytes, words: list[str]) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SweepError) as caught, Journal(tmp_path):
        pass
    assert all(word in str(caught.value) for word in words)


def test_rows_without_a_plan_are_refused(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    (tmp_path / "plan.json").unlink()
    with pytest.raises(SweepError, match=r"plan\.json"), Journal(tmp_path):
        pass


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SweepError, match="cannot hold results"), Journal(tmp_path / "file"):
        pass


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.write_plan(PLAN)
        (tmp_path / "details.jsonl").mkdir()
        with pytest.raises(AdaptiveGammaError, match=r"details\.jsonl"):
            journal.record(row(1), {})
        assert journal.rows == []
