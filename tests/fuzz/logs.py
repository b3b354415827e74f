"""The doctor's reading of logs: any bytes are a log with evidence, or a reason why not, and the checks take either."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from adaptive_gamma.doctor import (
    Gathered,
    LogEvidence,
    Unreadable,
    assemble,
    cut_short,
    diagnose,
    diagnosis_text,
    read_log,
)
from adaptive_gamma.doctor.engines.vllm.literals import graph_mode, literal_after, number_after, text_after, truth_after
from tests.doctor.labelled import LOGS
from tests.fuzz.shapes import edited, edited_bytes
from tests.fuzz.target import Target

__all__ = ["TARGETS"]

TEXTS = sorted(path.read_bytes() for path in LOGS.glob("0.*.log"))
LINES = sorted({line for text in TEXTS for line in text.split(b"\n") if line})
TOKENS = [
    b"\n",
    b"\r",
    b"\x1b[31m",
    b"\x1b[" + b"0" * 50,
    b"\x00",
    b"\xff",
    b"=" * 300,
    b"{" * 300,
    b"(" * 5000,
    b"'",
    b'"',
    b"\\",
    b"9" * 30,
    b"9" * 5000,
    b"0",
    b"-1",
    b"1e999",
    b"None",
    b"True",
    b"%",
    b"/0",
    b" reqs",
    b"inf",
    b"nan",
    b", " * 1000,
    b"SpecDecoding metrics: ",
    *LINES[:: max(1, len(LINES) // 40)],
]


@st.composite
def _logs(draw: st.DrawFn) -> bytes:
    if draw(st.booleans()):
        return draw(edited_bytes(TEXTS, TOKENS))
    lines = draw(st.lists(st.sampled_from(LINES), max_size=25))
    return draw(edited_bytes([b"\n".join([*lines, b""])], TOKENS, 4))


def check_log(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vllm.log")
        path.write_bytes(raw)
        read = read_log(path)
        again = read_log(path)
    assert read == again
    if isinstance(read, Unreadable):
        assert len(read.reason) < 500
        return
    assert isinstance(read, LogEvidence)
    case, unseen = assemble(Gathered(logs=(read,)))
    short = cut_short(read)
    diagnosis = diagnose(case, () if short is None else (short,), unseen)
    json.dumps(diagnosis.to_json(), allow_nan=False).encode()
    text = diagnosis_text(diagnosis)
    assert "\x1b" not in text
    assert "\x00" not in text
    for finding in diagnosis.findings:
        assert all(len(each.text) < 1000 for each in finding.evidence)


def check_literals(text: str) -> None:
    """Settings as vLLM prints them."""
    for key in ("cudagraph_mode", "num_speculative_tokens", "speculative_config", "a", "enforce_eager"):
        for read in (graph_mode, literal_after, number_after, text_after, truth_after):
            value: Any = read(text, key)
            assert (
                value is None
                or isinstance(value, str | int | bool | list | dict | float | tuple | set | bytes | complex)
                or value is ...
            )


CONFIG_LINES = [line.decode("utf-8", "replace") for line in LINES if b"config" in line or b"args" in line]
WORDS = [
    "cudagraph_mode",
    "=",
    ": ",
    "<CUDAGraphMode.FULL: 2>",
    "'",
    '"',
    "{",
    "}",
    "[2,1]",
    "(",
    ")",
    "\\",
    "None",
    "True",
    "9" * 5000,
    "(" * 3000,
    "-" * 3000,
    "b''",
    "...",
    "{**{}}",
    "1 if 1 else 2",
    "f''",
    "0x",
    "{'a': " * 200,
    "\x00",
    "\ud800",
    "# ",
    "'\\N{x}'",
]

TARGETS = [
    Target("doctor-log", _logs(), check_log),
    Target("doctor-literals", edited(CONFIG_LINES, WORDS), check_literals),
]
