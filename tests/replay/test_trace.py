from __future__ import annotations

import io
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.errors import ConfigurationError, TraceError
from adaptive_gamma.simulation.replay import (
    SHAPES,
    ClassedTrace,
    Trace,
    merge,
    read_trace,
    read_trace_lines,
    synthetic_trace,
    write_trace,
)
from tests.replay.worlds import azure_trace, trace_of

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
FIRST = "2023-11-16 18:17:03.9799600,4808,10\n"


def read(text: str) -> Trace:
    return read_trace_lines(io.StringIO(text, newline=""), "t.csv")


def test_the_public_format() -> None:
    trace = read(HEADER + FIRST + "2023-11-16 18:17:04.0319600,3180,8\n")
    assert trace.arrival_s == [0.0, 0.052]
    assert trace.prompt_tokens == [4808, 3180]
    assert trace.output_tokens == [10, 8]


@pytest.mark.parametrize(
    "text",
    [
        HEADER.replace("\n", "\r\n") + FIRST.replace("\n", "\r\n") + "2023-11-16 18:17:05,1,2\r\n",
        "TIMESTAMP , ContextTokens,GeneratedTokens\n" + FIRST + "\n2023-11-16T18:17:05,1,2",
        '"TIMESTAMP","ContextTokens","GeneratedTokens"\n' + FIRST + '"2023-11-16 18:17:05","1","2"\n',
        "GeneratedTokens,Model,ContextTokens,TIMESTAMP\n10,x,4808,2023-11-16 18:17:03.97996\n"
        "2,y,1,2023-11-16 18:17:05\n",
        HEADER + "2023-11-16 18:17:03.97996+00:00,4808,10\n2023-11-16 20:17:05+02:00,1,2\n",
        HEADER + "2023-11-16 18:17:03.97996Z,4808,10\n2023-11-16 13:17:05-05:00, 1 , 2 \n",
        HEADER + "3.97996,4808,10\n5,1,2\n",
        HEADER + "2023-11-16 23:59:59,4808,10\n2023-11-17 00:00:00.02004,1,2\n",
    ],
    ids=["crlf", "blanks", "quoted", "columns", "offset", "zulu", "seconds", "midnight"],
)
def test_variants_of_the_format(text: str) -> None:
    trace = read(text)
    assert trace.arrival_s == [0.0, 1.02004]
    assert (trace.prompt_tokens, trace.output_tokens) == ([4808, 1], [10, 2])


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "bom.csv"
    path.write_bytes(b"\xef\xbb\xbf" + (HEADER + FIRST).encode())
    assert len(read_trace(path)) == 1


@pytest.mark.parametrize(
    ("text", "line", "field", "says"),
    [
        ("", 1, "TIMESTAMP", "empty"),
        ("\n\n", 1, "TIMESTAMP", "empty"),
        (HEADER, 2, "TIMESTAMP", "no request"),
        ("TIMESTAMP,ContextToken,GeneratedTokens\n" + FIRST, 1, "ContextTokens", "'ContextToken'"),
        ("TIMESTAMP,TIMESTAMP,ContextTokens,GeneratedTokens\n", 1, "TIMESTAMP", "more than once"),
        (FIRST, 1, "TIMESTAMP", "no such column"),
        (HEADER + FIRST + "2023-11-16 18:17:03.9799599,1,2\n", 3, "TIMESTAMP", "before the line above"),
        (HEADER + FIRST + "yesterday,1,2\n", 3, "TIMESTAMP", "'yesterday'"),
        (HEADER + FIRST + "2023-02-30 18:17:03,1,2\n", 3, "TIMESTAMP", "no date"),
        (HEADER + FIRST + "2023-11-16 25:17:03,1,2\n", 3, "TIMESTAMP", "no time of day"),
        (HEADER + FIRST + "2023-11-16 18:17:05,-1,2\n", 3, "ContextTokens", "negative, found -1"),
        (HEADER + FIRST + "2023-11-16 18:17:05,1,-2\n", 3, "GeneratedTokens", "negative, found -2"),
        (HEADER + FIRST + "2023-11-16 18:17:05,1.5,2\n", 3, "ContextTokens", "'1.5'"),
        (HEADER + FIRST + "2023-11-16 18:17:05,1,\n", 3, "GeneratedTokens", "an empty field"),
        (HEADER + FIRST + "2023-11-16 18:17:05,1,nan\n", 3, "GeneratedTokens", "'nan'"),
        (HEADER + FIRST + "2023-11-16 18:17:05,١,2\n", 3, "ContextTokens", "found"),
        (HEADER + FIRST + f"2023-11-16 18:17:05,{'9' * 5000},2\n", 3, "ContextTokens", "999..."),
        (HEADER + FIRST + "2023-11-16 18:17:05,1,99999999999\n", 3, "GeneratedTokens", "more than"),
        (HEADER + FIRST + "2023-11-16 18:17:05,1\n", 3, "GeneratedTokens", "2 fields"),
        (HEADER + FIRST + "\n\n2023-11-16 18:17:05\n", 5, "ContextTokens", "1 fields"),
        (HEADER + FIRST + '"2023-11-16 18:17:05,1,2\n', 3, "the line", "not CSV"),
        (HEADER + FIRST + '2023-11-16 18:17:05,"1"x,2\n', 3, "the line", "not CSV"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text: str, line: int, field: str, says: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(text)
    assert (caught.value.source, caught.value.line, caught.value.field) == ("t.csv", line, field)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"t.csv: line {line}: ")


def test_bytes_that_are_not_text_are_an_error_of_their_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes((HEADER + FIRST).encode() + b"2023-11-16 18:17:05,\xff\xfe,2\n")
    with pytest.raises(TraceError, match="line 3: ContextTokens"):
        read_trace(path)


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_a_line(body: str) -> None:
    refused: TraceError | None = None
    try:
        read(HEADER + FIRST + body)
    except TraceError as error:
        refused = error
    assert refused is None or refused.line >= 2


def test_merged_traces_share_one_clock_that_starts_at_their_first_lines() -> None:
    one = ClassedTrace(trace_of([(0.0, 1, 1), (4.0, 2, 2), (8.0, 3, 3)]), "a")
    two = ClassedTrace(trace_of([(0.0, 10, 10), (3.0, 20, 20), (4.0, 30, 30)]), "b")
    merged = merge([one, two], ("a", "b"), scale=2.0)
    assert merged.arrival_s == [0.0, 0.0, 1.5, 2.0, 2.0, 4.0]
    assert merged.prompt_tokens == [1, 10, 20, 2, 30, 3]
    assert merged.class_of == [0, 1, 1, 0, 1, 0]
    assert merge([one, two], ("a", "b"), limit=3).prompt_tokens == [1, 10, 20]
    assert merge([one, two], ("a", "b"), duration_s=4.0, scale=2.0).arrival_s == [0.0, 0.0, 1.5]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(0, 100), min_size=1, max_size=20), min_size=1, max_size=4), st.floats(0.1, 10))
def test_merging_keeps_every_request_in_order(gaps: list[list[float]], scale: float) -> None:
    traces = [
        ClassedTrace(trace_of([(float(t), which, line) for line, t in enumerate(np.cumsum(g) - g[0])]), "a")
        for which, g in enumerate(gaps)
    ]
    merged = merge(traces, ("a",), scale=scale)
    assert merged.arrival_s == sorted(merged.arrival_s)
    assert len(merged) == sum(len(g) for g in gaps)
    for which in range(len(gaps)):
        lines = [n for n, p in zip(merged.output_tokens, merged.prompt_tokens, strict=True) if p == which]
        assert lines == list(range(len(gaps[which])))


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_synthetic_traces_have_the_published_statistics(name: str) -> None:
    shape, trace = SHAPES[name], synthetic_trace(name, 7)
    assert len(trace) == shape.requests
    assert trace.span_s == pytest.approx(shape.span_s, rel=0.4)
    gaps = np.diff(trace.arrival_s)
    assert gaps.std() / gaps.mean() == pytest.approx(shape.gap_variation, rel=0.35)
    for values, length in ((trace.prompt_tokens, shape.prompt), (trace.output_tokens, shape.output)):
        assert np.percentile(values, 50) == pytest.approx(length.median, rel=0.05)
        assert np.percentile(values, 95) == pytest.approx(length.p95, rel=0.1)
        assert length.shortest <= min(values) <= max(values) <= length.longest


def test_synthetic_traces_are_seeded_and_a_longer_one_begins_with_the_shorter() -> None:
    assert synthetic_trace("code", 3) == synthetic_trace("code", 3)
    assert synthetic_trace("code", 3) != synthetic_trace("code", 4)
    long, short = synthetic_trace("code", 3, 20_000), synthetic_trace("code", 3, 500)
    assert long.arrival_s[:500] == short.arrival_s
    assert long.output_tokens[:500] == short.output_tokens
    assert long.arrival_s == sorted(long.arrival_s)


def test_an_unknown_synthetic_trace_names_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="conversation"):
        synthetic_trace("conversatoin", 0)


def test_a_written_trace_reads_back() -> None:
    trace = synthetic_trace("conversation", 1, 300)
    file = io.StringIO(newline="")
    write_trace(trace, file, datetime(2023, 11, 16, 23, 59, 58))
    back = read(file.getvalue())
    assert (back.arrival_s, back.prompt_tokens, back.output_tokens) == (
        trace.arrival_s,
        trace.prompt_tokens,
        trace.output_tokens,
    )


@pytest.mark.parametrize(("name", "requests"), [("conv", 19_366), ("code", 8_819)])
def test_the_azure_traces_read_whole(name: str, requests: int) -> None:
    trace = read_trace(azure_trace(name))
    assert len(trace) == requests
    assert trace.span_s == pytest.approx(3_500, rel=0.03)
