"""Benchmark results of every known tool, with odd values in them: rows that make sense, or findings that say why."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from adaptive_gamma.bench import read_sweep, sweep_cells
from adaptive_gamma.bench.row import SweepRow, row_from_json, row_to_json
from adaptive_gamma.bench.source import Source
from adaptive_gamma.errors import ConfigurationError, SweepError
from tests.bench import shapes
from tests.fuzz.shapes import altered, edited_bytes
from tests.fuzz.target import Target

__all__ = ["TARGETS"]

DOCUMENTS: list[dict[str, Any]] = [
    shapes.bench_serve(),
    shapes.bench_serve(**shapes.counters()),
    shapes.bench_serve(**shapes.detailed()),
    shapes.sglang(),
    shapes.guidellm(shapes.guidellm_benchmark()),
    shapes.aiperf(),
    shapes.server_metrics(),
]
LINES = "\n".join(shapes.iteration(n, 4 * n, 12.5, prefill=n % 2) for n in range(1, 5))
LOG = "\n".join([shapes.engine_start(shapes.DRAFTING), LINES, ""]).encode()
RAW = [
    *(json.dumps(document).encode() for document in DOCUMENTS),
    LOG,
    b"\n".join(json.dumps(d).encode() for d in DOCUMENTS[:3]),
]
TOKENS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b",",
    b":",
    b"null",
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"9" * 5000,
    b"-1",
    b"[" * 3000,
    b"\n",
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b'"a":1,"a":2',
    b"\\ud800",
    b"Iteration(",
    b"SpeculativeConfig(",
    b" ms",
    b"0x1",
]


def _read(named: list[tuple[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, raw in named:
            Path(folder, name).write_bytes(raw)
        try:
            sweep = read_sweep([Path(folder)])
            cells = sweep_cells(sweep.rows)
        except (SweepError, ConfigurationError) as error:
            assert len(str(error)) < 20_000
            return
    for row in sweep.rows:
        _makes_sense(row)
    for finding in (*sweep.findings, *cells.findings):
        shown = str(finding)
        assert shown.isprintable(), repr(shown)
        assert len(shown) < 20_000
    for cell in cells.cells:
        assert cell.tpot_s.low <= cell.tpot_s.median <= cell.tpot_s.high


def _makes_sense(row: SweepRow) -> None:
    for field in fields(row):
        value = getattr(row, field.name)
        if isinstance(value, float | int) and not isinstance(value, bool):
            assert math.isfinite(value), field.name
            assert value >= 0, field.name
    again = row_from_json(json.loads(json.dumps(row_to_json(row))), Source(row.source.file))
    assert row_to_json(again) == row_to_json(row)


def check_documents(documents: list[Any]) -> None:
    named = []
    for number, document in enumerate(documents):
        try:
            named.append((f"run-{number}.json", json.dumps(document).encode()))
        except ValueError:  # a number of more digits than Python writes
            named.append((f"run-{number}.json", b"[" + b"9" * 5000 + b"]"))
    _read(named)


def check_bytes(raw: bytes) -> None:
    _read([("run.json", raw)])


TARGETS = [
    Target("results", st.lists(altered(DOCUMENTS, 4), min_size=1, max_size=3), check_documents),
    Target("results-bytes", edited_bytes(RAW, TOKENS), check_bytes),
]
