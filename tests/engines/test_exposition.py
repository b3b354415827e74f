from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adaptive_gamma.engines import DIALECTS, EngineReading
from adaptive_gamma.engines._exposition import read_exposition
from adaptive_gamma.errors import ScrapeError

WANTED = frozenset({"load", "tokens_total", "tokens"})
REASONS = {"empty", "not_metrics", "truncated", "no_series"}


def value_of(line: str, name: str = "load") -> float:
    (sample,) = read_exposition(line + "\n", WANTED).samples(name)
    return sample.value


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("load 3", 3.0),
        ("load{} 3", 3.0),
        ('load{a="b"} 3.5', 3.5),
        ('load {a="b"} 3.5', 3.5),
        ('load{a="b",} 3.5', 3.5),
        ('load{ a = "b" , c="d" } 3.5', 3.5),
        ("  load\t 3  ", 3.0),
        ("load 1.7960099117056663e+09", 1796009911.7056663),
        ("load 1e3", 1000.0),
        ("load .5", 0.5),
        ("load -2.", -2.0),
        ("load +Inf", math.inf),
        ("load -Inf", -math.inf),
        ('load{le="+Inf"} 4 1395066363000', 4.0),
        ('load{a="b"} 3 # {trace_id="x"} 0.5', 3.0),
        ('load 3 1520879607.789 # {trace_id="}x"} 0.5 1520879607.1', 3.0),
        ("load 3\r", 3.0),
    ],
)
def test_values(line: str, value: float) -> None:
    assert value_of(line) == value


def test_nan_is_read_and_makes_every_sum_unknown() -> None:
    assert math.isnan(value_of("load NaN"))
    page = read_exposition('load{e="0"} NaN\nload{e="1"} 2\n', WANTED)
    assert page.total("load") is None
    assert page.highest("load") is None
    assert page.totals_by("e", "load") is None


def test_labels_with_escapes_and_line_separators() -> None:
    page = read_exposition('load{a="x\\"y\\\\z\\nw\\q",b="}{ ,=\u2028\x0b"} 1\n', WANTED)
    (sample,) = page.samples("load")
    assert sample.labels == {"a": 'x"y\\z\nw\\q', "b": "}{ ,=\u2028\x0b"}


@pytest.mark.parametrize(
    "line",
    [
        "load",
        "load x",
        "load 1_000",
        "load ３",
        "load 0x10",
        "load{ 3",
        'load{a="b} 3',
        'load{a="b"',
        "load{a=b} 3",
        'load{a="b" c="d"} 3',
        'load{1a="b"} 3',
        "load 3 yesterday",
        "load 3 4 5",
    ],
)
def test_a_wanted_line_that_is_not_well_formed_fails_the_page(line: str) -> None:
    with pytest.raises(ScrapeError) as caught:
        read_exposition(f"tokens_total 1\n{line}\ntokens_total 2\n", WANTED)
    assert caught.value.reason == "not_metrics"
    assert "line 2" in caught.value.detail


def test_unwanted_lines_are_not_looked_at() -> None:
    page = read_exposition('garbage{{{\nload 1\nother{a="\n', WANTED)
    assert page.total("load") == 1


def test_names_match_whole() -> None:
    page = read_exposition(
        'tokens_total_count 5\ntokens_total_sum 6\ntokens_total_bucket{le="1"} 2\ntokens_created 9\nload 1\n', WANTED
    )
    assert "tokens_total" not in page
    assert page.total("tokens_total", "tokens") is None


def test_with_and_without_total() -> None:
    assert read_exposition("tokens 4\n", WANTED).total("tokens_total", "tokens") == 4
    assert read_exposition("tokens_total 5\ntokens 4\n", WANTED).total("tokens_total", "tokens") == 5


def test_a_label_set_that_occurs_twice_counts_once() -> None:
    page = read_exposition('load{a="1",b="2"} 4\nload{b="2",a="1"} 5\nload{a="1"} 1\n', WANTED)
    assert page.total("load") == 6


def test_negative_parts_make_a_total_unknown() -> None:
    assert read_exposition('load{e="0"} -1\nload{e="1"} 3\n', WANTED).total("load") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \r\n\t\n", "empty"),
        ("<!DOCTYPE html>\n<html>load 1\n</html>\n", "not_metrics"),
        ('{"load": 1}\n', "not_metrics"),
        ("[1]", "not_metrics"),
        ("Bad gateway", "not_metrics"),
        ("Bad gateway\n", "not_metrics"),
        ("# HELP load", "truncated"),
        ("load 1", "truncated"),
        ('load 1\ntokens_total{engine="0', "truncated"),
        ("load 1\ntokens_total 12", "truncated"),
        ("# TYPE other counter\nother 1\n", "no_series"),
        ("other 1\n", "no_series"),
        ("# EOF\n", "no_series"),
    ],
)
def test_reasons(text: str, reason: str) -> None:
    with pytest.raises(ScrapeError) as caught:
        read_exposition(text, WANTED)
    assert caught.value.reason == reason


def test_every_cut_inside_a_line_is_found() -> None:
    text = "".join(f'load{{engine="{i}",model_name="a b"}} {i}.25\n# HELP x y\n' for i in range(3))
    for end in range(1, len(text)):
        cut = text[:end]
        if cut.endswith("\n"):
            read_exposition(cut, WANTED)
        else:
            with pytest.raises(ScrapeError) as caught:
                read_exposition(cut, WANTED)
            assert caught.value.reason in ("truncated", "not_metrics")
            assert "\n" not in cut or caught.value.reason == "truncated"


def test_eof_without_line_end_is_complete() -> None:
    assert read_exposition("load 1\n# EOF", WANTED).total("load") == 1


PIECES = st.sampled_from(
    [
        *("vllm:num_requests_running", "llamacpp:requests_processing"),
        *("vllm:spec_decode_num_accepted_tokens_per_pos_total", "engine", "position", 'position="0"'),
        *'{}"\\,= \n\r#1-.\x00',
        *("NaN", "e+9"),
    ]
)


@pytest.mark.parametrize("name", sorted(DIALECTS))
@given(st.one_of(st.binary(max_size=400), st.lists(PIECES, max_size=40).map(lambda parts: "".join(parts).encode())))
@example(b'vllm:num_requests_running{engine="0"} 1e999\n')
@example(b"vllm:num_requests_running 1" + b"0" * 400 + b"\n")
@example(b'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="\xd9\xa1"} 1\n')
def test_bytes_give_a_reading_or_a_scrape_error(name: str, data: bytes) -> None:
    dialect = DIALECTS[name]
    text = data.decode("utf-8", errors="replace")
    pages = dict.fromkeys(dialect.metrics_paths, text)
    reason = None
    try:
        reading = dialect.read(pages)
    except ScrapeError as error:
        reason = error.reason
        reading = EngineReading()
    assert reason is None or reason in REASONS
    for number in (reading.running, reading.waiting):
        assert number is None or number >= 0
    assert reading.kv_usage is None or 0 <= reading.kv_usage <= 1


@given(st.text(alphabet='{}"\\, =abload', max_size=60))
def test_long_broken_lines_take_no_time_out_of_proportion(text: str) -> None:
    line = ("load{" + text * 50).replace("\n", "")
    with pytest.raises(ScrapeError):
        read_exposition(f"load x\n{line}\n", WANTED)


@pytest.mark.parametrize("value", ["1.7e308", "1e16"])
def test_sums_that_overflow_or_cannot_be_counts_are_unknown(value: str) -> None:
    page = read_exposition(f'load{{e="0",r="0"}} {value}\nload{{e="0",r="1"}} {value}\n', WANTED)
    assert page.total("load") is None
    assert page.highest("load") is None
    assert page.totals_by("e", "load") is None


def test_a_sum_beyond_what_a_float_counts_is_unknown_though_its_parts_are_not() -> None:
    page = read_exposition('load{e="0",r="0"} 9e15\nload{e="0",r="1"} 9e15\n', WANTED)
    assert page.total("load") is None
    assert page.totals_by("e", "load") is None
    assert page.highest("load") == 9e15


@pytest.mark.parametrize("name", sorted(DIALECTS))
@given(st.lists(st.floats(), min_size=1, max_size=3), st.lists(st.floats(), min_size=1, max_size=3))
@example([1.7e308, 1.7e308], [1.7e308, 1.7e308])
@example([1e6, 0.0], [1.01])
def test_any_numbers_give_a_bounded_reading(name: str, gauges: list[float], totals: list[float]) -> None:
    prefix = f"{name}:"
    stems = ["num_requests_running", "num_requests_waiting", "requests_processing", "requests_deferred"]
    stems += ["kv_cache_usage_perc", "num_running_reqs", "num_queue_reqs", "token_usage"]
    stems += ["spec_num_steps", "spec_num_draft_tokens", "spec_accept_length"]
    lines = [f'{prefix}{stem}{{engine="{rank}"}} {v!r}' for stem in stems for rank, v in enumerate(gauges)]
    for stem in ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos"):
        lines += [
            f'{prefix}spec_decode_num_{stem}_total{{engine="{rank}",position="0"}} {v!r}'
            for rank, v in enumerate(totals)
        ]
    dialect = DIALECTS[name]
    reading = dialect.read({dialect.metrics_paths[0]: "\n".join(lines) + "\n"})
    for number in (reading.running, reading.waiting):
        assert number is None or 0 <= number <= 1_000_000
    assert reading.kv_usage is None or 0 <= reading.kv_usage <= 1
    assert reading.gamma is None or 0 < reading.gamma <= 64
    if reading.speculation is not None:
        counted = reading.speculation
        numbers = [counted.drafts or 0.0, counted.draft_tokens, counted.accepted_tokens]
        assert all(0 <= n <= 2**53 for n in (*numbers, *counted.accepted_per_position))
