"""Logs of any size and any content: read in bounded memory, and never the end of the doctor."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adaptive_gamma.doctor import Gathered, LogEvidence, Unreadable, assemble, diagnose, read_log
from adaptive_gamma.doctor.engines.vllm.literals import (
    graph_mode,
    literal_after,
    number_after,
    text_after,
    truth_after,
)
from adaptive_gamma.doctor.engines.vllm.log import VllmLog

from .labelled import LOGS, doctor

_TEXTS = sorted(path.read_bytes() for path in LOGS.glob("0.*.log"))
_LINES = sorted({line for text in _TEXTS for line in text.split(b"\n") if line})
_ACCESS = b'INFO:     10.0.0.7:50392 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
_MEBI = 1 << 20


def _growth(path: Path) -> tuple[int, str]:
    """Bytes by which a process grows that reads the log, and what it says of it."""
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from adaptive_gamma.doctor import read_log\n"
        "rss = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "before = rss()\n"
        "read = read_log(Path(sys.argv[1]))\n"
        "print(rss() - before, getattr(read, 'reason', None) or (len(read.starts), read.starts_seen))\n"
    )
    arguments = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    grown, _, said = done.stdout.strip().partition(" ")
    return int(grown), said


def test_200_megabytes_are_streamed(tmp_path: Path) -> None:
    """A start-up, and days of requests after it."""
    path = tmp_path / "long.log"
    start = (LOGS / "0.33.0-restarted.log").read_bytes()
    load = (
        "(APIServer pid=1) INFO 06-01 10:00:01 [loggers.py:335] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg "
        "generation throughput: 26.3 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 2.1%\n"
    )
    running = _ACCESS * 60 + load.encode()
    block = running * (_MEBI // len(running))
    with path.open("wb") as file:
        file.write(start)
        while file.tell() < 200 * 1000 * 1000:
            file.write(block)
    grown, said = _growth(path)
    assert said == "(2, 2)"
    assert grown < 32 * _MEBI


def test_very_many_starts_and_one_line_without_end_stay_small(tmp_path: Path) -> None:
    path = tmp_path / "crash-loop.log"
    with path.open("wb") as file:
        for _ in range(1000):
            file.write((LOGS / "0.22.0-died-at-start.log").read_bytes())
        file.write(b"Initializing a V1 LLM engine (v0.33.0) with config: " + b"x" * (32 * _MEBI))
    grown, said = _growth(path)
    assert said.endswith(", 1001)"), said
    assert grown < 32 * _MEBI


def test_a_gzipped_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress((LOGS / "0.13.0-flashinfer-piecewise.log").read_bytes()))
    code, said = doctor("--log", str(path))
    assert (code, said["findings"][0]["code"]) == (1, "graph_mode_downgraded")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\x00\x01\x02" * 1000, "is no text"),
        (b"<html><body>404</body></html>", "is HTML or XML"),
        (b"hello\nworld\n", "holds no line that vLLM writes"),
        (gzip.compress(b"a" * 100, mtime=0)[:-12], "cannot be read"),
        (b"\x1f\x8bnot gzip", "cannot be read"),
    ],
)
def test_what_is_no_log(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    code, said = doctor("--log", str(path))
    assert code == 2
    assert reason in said["unreadable"][0]["reason"]


def test_no_file_and_no_file_to_read(tmp_path: Path) -> None:
    assert (
        doctor("--log", str(tmp_path / "none"))[1]["unreadable"][0]["reason"]
        == "cannot be read: No such file or directory"
    )
    assert doctor("--log", str(tmp_path))[1]["unreadable"][0]["reason"] == "is no file"


def test_a_truncated_log_gives_what_it_proves(tmp_path: Path) -> None:
    """Cut anywhere, a clean log gives no finding, and never looks clean before the server is up."""
    whole = (LOGS / "0.33.0-dflash-clean.log").read_bytes()
    up = whole.index(b"Application startup complete") + len(b"Application startup complete")
    path = tmp_path / "cut.log"
    for end in range(1, len(whole), 97):
        path.write_bytes(whole[:end])
        code, said = doctor("--log", str(path))
        assert not [each for each in said["findings"] if each["severity"] != "note"], end
        assert code == (2 if end < up else 0), end


def test_cut_after_the_cause_the_cause_is_found(tmp_path: Path) -> None:
    whole = (LOGS / "0.30.0-v2-skip-mla.log").read_bytes()
    end = whole.index(b"Skipping encoder and decoder") + 200
    path = tmp_path / "cut.log"
    path.write_bytes(whole[:end])
    code, said = doctor("--log", str(path))
    assert (code, said["findings"][0]["code"]) == (1, "no_cuda_graphs")
    assert "ends before the server is up" in said["unreadable"][0]["reason"]


def _judged(path: Path) -> None:
    read = read_log(path)
    if isinstance(read, Unreadable):
        assert read.reason
        return
    case, unseen = assemble(Gathered(logs=[read]))
    assert diagnose(case, (), unseen).to_json()


_MUTATIONS = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@_MUTATIONS
@given(st.binary(max_size=2000))
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "any.log"
    path.write_bytes(content)
    _judged(path)


@_MUTATIONS
@given(
    st.lists(
        st.one_of(
            st.sampled_from(_LINES),
            st.tuples(st.sampled_from(_LINES), st.integers(0, 400), st.binary(max_size=20)).map(
                lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + 3 :]
            ),
            st.binary(max_size=60),
        ),
        max_size=40,
    )
)
def test_lines_in_any_order_and_damaged(tmp_path: Path, lines: list[bytes]) -> None:
    path = tmp_path / "mixed.log"
    path.write_bytes(b"\n".join(lines))
    _judged(path)


@settings(deadline=None)
@given(st.lists(st.text(max_size=200), max_size=20))
def test_any_text_line_by_line(lines: list[str]) -> None:
    log = VllmLog("x")
    for number, line in enumerate(lines, 1):
        log.take(number, line)
    assert len(log.starts()) >= 1


@given(st.text(max_size=300), st.sampled_from(["a", "cudagraph_mode", "speculative_config"]))
def test_any_value(text: str, key: str) -> None:
    for prefix in ("", f"{key}=", f"'{key}': ", f'"{key}":'):
        for reader in (literal_after, number_after, text_after, truth_after, graph_mode):
            reader(prefix + text, key)


@pytest.mark.parametrize(
    "text", ["[" * 20_000, "{'a':" * 5000, "'" + "\\" * 20_000, "[" + "9" * 10_000 + "]", "(" * 300]
)
def test_nesting_without_end(text: str) -> None:
    """Gives no value, or one; and comes back."""
    literal_after("a=" + text, "a")


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>,", "FULL_AND_PIECEWISE"),
        ('"cudagraph_mode":[2,0],', "FULL_DECODE_ONLY"),
        ('"cudagraph_mode":0,', "NONE"),
        ('"cudagraph_mode":"piecewise"', "PIECEWISE"),
        ("cudagraph_mode=<CUDAGraphMode.NONE: 0>", "NONE"),
        ('"cudagraph_mode":[7,7]', None),
        ("no such thing", None),
    ],
)
def test_graph_modes(text: str, mode: str | None) -> None:
    assert graph_mode(text) == mode


def test_a_log_is_evidence_of_its_engine() -> None:
    read = read_log(LOGS / "0.33.0-restarted.log")
    assert isinstance(read, LogEvidence)
    assert [start.line for start in read.starts] == [1, 20]
    assert read.starts[0].died_of is not None
    assert "OutOfMemoryError" in read.starts[0].died_of.text
