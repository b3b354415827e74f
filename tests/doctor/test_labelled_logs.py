"""Every planted cause is found, and nothing in clean logs: the confusion table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from adaptive_gamma.doctor import CHECKS

from .labelled import REAL, Labelled, found_in, labelled_logs

_STARTS = REAL / "startup_logs"
_REAL = (
    Labelled("real plain", _STARTS / "plain.log", (), ()),
    Labelled("real plain, compiled", _STARTS / "plain_compile_cold.log", (), ()),
    Labelled(
        "real draft model",
        _STARTS / "spec_draft_trained.log",
        ("gamma_too_long", "kv_lost_to_drafter"),
        ("scheduled_tokens_cut",),
        plain=_STARTS / "plain.log",
    ),
    Labelled(
        "real n-gram",
        _STARTS / "spec_ngram.log",
        (),
        ("acceptance_reads_low", "scheduled_tokens_cut"),
    ),
    Labelled(
        "real engine that died",
        _STARTS / "spec_synthetic_FAILED_no_plugin.log",
        ("engine_died",),
        ("scheduled_tokens_cut",),
    ),
)
_MISSED = "(missed)"
_CLEAN = "(clean)"


def _table(logs: list[Labelled]) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Counts of (planted, found), and what is off the diagonal in words.

    A planted code is found, or missed; a found one that was not planted stands in the row of the log's planted code, or
    in that of clean logs.
    """
    cells: Counter[tuple[str, str]] = Counter()
    wrong = []
    for log in logs:
        _, codes, notes, _ = found_in(log)
        planted, found = Counter((*log.codes, *log.notes)), Counter((*codes, *notes))
        for code in (planted & found).elements():
            cells[code, code] += 1
        for code in (planted - found).elements():
            cells[code, _MISSED] += 1
            wrong.append(f"{log.name}: {code} was missed")
        for code in (found - planted).elements():
            cells[next(iter(planted), _CLEAN), code] += 1
            wrong.append(f"{log.name}: {code} was found and is not there")
        if not planted and not found:
            cells[_CLEAN, _CLEAN] += 1
        if (codes, notes) != (sorted(log.codes), sorted(log.notes)) and planted == found:
            wrong.append(f"{log.name}: as severe as {codes} and {notes}, not {log.codes} and {log.notes}")
    return cells, wrong


def _print(title: str, cells: Counter[tuple[str, str]]) -> None:
    print(f"\n{title}: planted (rows) against found (numbered columns); {sum(cells.values())} in all")
    rows = sorted({planted for planted, _ in cells})
    columns = sorted({found for _, found in cells} | set(rows))
    width = max(map(len, rows))
    print(f"{'':{width + 4}}" + "".join(f"{number:>4}" for number in range(1, len(columns) + 1)))
    for row in rows:
        counts = "".join(f"{cells[row, column] or '.':>4}" for column in columns)
        print(f"{columns.index(row) + 1:>3} {row:{width}}{counts}")


def test_confusion_table() -> None:
    logs = [log for log in labelled_logs() if log.exit_code is None]
    cells, wrong = _table(logs)
    _print("Logs of vLLM 0.8 to 0.33", cells)
    assert not wrong, "\n".join(wrong)
    assert {code for code, _ in cells} - {_CLEAN} <= {code for check in CHECKS for code in check.codes}


def test_confusion_table_of_real_logs() -> None:
    if not _STARTS.is_dir():
        pytest.skip("logs of real servers are not here")
    cells, wrong = _table(list(_REAL))
    _print("Logs of real servers (vLLM 0.32 on CPUs)", cells)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("log", labelled_logs(), ids=lambda log: log.name)
def test_exit_code_and_what_each_finding_holds(log: Labelled) -> None:
    code, _, _, said = found_in(log)
    assert code == log.expected_exit, said
    assert said["verdict"] == {0: "clean", 1: "findings", 2: "could_not_look"}[code]
    for finding in said["findings"]:
        assert finding["title"]
        assert finding["cause"]
        assert finding["evidence"], finding["code"]
        for evidence in finding["evidence"]:
            assert evidence["text"]
            if evidence["kind"] == "line":
                file, _, number = evidence["where"].rpartition(":")
                assert 1 <= int(number) <= len(Path(file).read_bytes().split(b"\n"))
    if code == 2:
        assert all(each["reason"] for each in said["unreadable"])


def test_every_log_is_labelled() -> None:
    logs = labelled_logs()
    assert {log.path.name for log in logs} == {path.name for path in logs[0].path.parent.glob("*.log")}


def test_lines_are_quoted_where_they_stand() -> None:
    log = next(log for log in labelled_logs() if log.name == "0.13.0-flashinfer-piecewise")
    *_, said = found_in(log)
    (finding,) = said["findings"]
    where, text = finding["evidence"][0]["where"], finding["evidence"][0]["text"]
    line = log.path.read_bytes().split(b"\n")[int(where.rpartition(":")[2]) - 1]
    assert text in line.decode()
    assert "FlashInferBackend" in finding["cause"]
    assert finding["fix"]["flags"] == ["--attention-backend FLASH_ATTN", "--attention-backend TRITON_ATTN"]


def test_flags_are_those_of_the_version() -> None:
    log = next(log for log in labelled_logs() if log.name == "0.11.0-flashinfer-piecewise")
    *_, said = found_in(log)
    assert said["findings"][0]["fix"]["flags"][0] == "VLLM_ATTENTION_BACKEND=FLASH_ATTN"
