from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adaptive_gamma.bench.importers import Arm, parse_arms, read_sweep
from adaptive_gamma.bench.importers.documents import MOST_BYTES
from adaptive_gamma.errors import ConfigurationError, SweepError
from tests.bench.shapes import (
    DRAFTING,
    aiperf,
    bench_serve,
    counters,
    detailed,
    engine_start,
    forward_case,
    guidellm,
    iteration,
    server_metrics,
    sglang,
    write,
)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"\xff\xfe\x00", "is not UTF-8 text (byte 0)"),
        (b"\x89PNG\r\n\x1a\n", "is not UTF-8"),
        (b"{\n \"a\": 1,\n \"b\":", "half-written or broken JSON"),
        (b"[1, 2", "half-written or broken JSON"),
        (b"[" * 100_000, "nested too deep"),
        (b"9" * 5000, "is of no known format"),
        (b"{\"a\": " + b"9" * 5000 + b"}", "broken JSON: Exceeds the limit"),
        (b"hello\nworld", "is of no known format"),
        (b"a,b\n1,2\n", "is of no known format"),
        (b"{\"a\": 1}", "is of no known format"),
        (b"[]", "is of no known format"),
        (b"null", "is of no known format"),
    ],
)  # fmt: skip
def test_files_that_hold_no_results_are_skipped_by_name(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    sweep = read_sweep([path])
    assert not sweep.rows
    (finding,) = sweep.findings
    assert finding.kind == "skipped"
    assert words in finding.problem
    assert finding.source.file == str(path)


def test_the_line_of_broken_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(bench_serve(), indent=1)[:-50])
    (finding,) = read_sweep([path]).findings
    assert finding.source.line is not None
    assert finding.source.line > 20


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    (finding,) = read_sweep([path]).findings
    assert "bytes" in finding.problem


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.json", bench_serve())
    path.chmod(0)
    (finding,) = read_sweep([path]).findings
    assert "cannot be read" in finding.problem


def test_a_path_that_is_not_there_stops_the_import(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="no such file"):
        read_sweep([tmp_path / "nothing"])
    with pytest.raises(SweepError, match="no files"):
        read_sweep([tmp_path])


def test_what_is_no_file_is_skipped_by_name(tmp_path: Path) -> None:
    write(tmp_path / "in" / "run.json", bench_serve(label="plain"))
    (tmp_path / "elsewhere").mkdir()
    os.mkfifo(tmp_path / "in" / "pipe.json")
    (tmp_path / "in" / "gone.json").symlink_to(tmp_path / "nothing")
    (tmp_path / "in" / "loop.json").symlink_to(tmp_path / "in" / "loop.json")
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "elsewhere")
    sweep = read_sweep([tmp_path / "in"])
    assert len(sweep.rows) == 1
    said = {Path(f.source.file).name: f.problem for f in sweep.findings if f.kind == "skipped"}
    assert said.keys() == {"pipe.json", "gone.json", "loop.json", "folder"}
    assert "named pipe" in said["pipe.json"]
    assert "link to nothing" in said["gone.json"]
    assert "back to itself" in said["loop.json"]
    assert "not followed" in said["folder"]
    with pytest.raises(SweepError, match="named pipe"):
        read_sweep([tmp_path / "in" / "pipe.json"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    write(tmp_path / "run.json", bench_serve(label="plain"))
    (tmp_path / "closed").mkdir(mode=0)
    (finding,) = [f for f in read_sweep([tmp_path]).findings if f.kind == "skipped"]
    assert finding.source.file == str(tmp_path / "closed")
    assert "cannot be read" in finding.problem


@pytest.mark.parametrize("garbage", ["Starting benchmark", '{"half": '])
def test_a_line_of_garbage_does_not_take_the_others_with_it(tmp_path: Path, garbage: str) -> None:
    path = write(tmp_path / "all.json", bench_serve(label="k3", duration=5.0), bench_serve(label="k3"))
    path.write_text(garbage + "\n" + path.read_text())
    sweep = read_sweep([path])
    assert [row.source.line for row in sweep.rows] == [2, 3]
    (finding,) = [f for f in sweep.findings if f.kind == "skipped"]
    assert str(finding.source) == f"{path}:1"


def test_a_key_given_twice_is_refused_by_name(tmp_path: Path) -> None:
    text = json.dumps(bench_serve(label="k3"))
    path = tmp_path / "x.json"
    path.write_text(text[:-1] + ', "median_tpot_ms": 9.0}')
    (finding,) = read_sweep([path]).findings
    assert (finding.kind, finding.field) == ("refused", "median_tpot_ms")
    path.write_text(path.read_text() + "\n" + text)
    sweep = read_sweep([path])
    assert [row.source.line for row in sweep.rows] == [2]
    assert [(f.field, f.source.line) for f in sweep.findings if f.kind == "refused"] == [("median_tpot_ms", 1)]


def test_the_key_that_a_run_lacks_is_named(tmp_path: Path) -> None:
    run = bench_serve()
    del run["model_id"]
    (finding,) = read_sweep([write(tmp_path / "x.json", run)]).findings
    assert (finding.kind, finding.field, finding.problem) == ("refused", "model_id", "is missing")


def test_the_name_of_a_file_does_not_decide_its_format(tmp_path: Path) -> None:
    write(tmp_path / "benchmarks.csv", sglang())
    write(tmp_path / "profile_export_aiperf.json", bench_serve(label="k3"))
    write(tmp_path / "run=0.txt", guidellm())
    formats = {Path(row.source.file).name: row.format for row in read_sweep([tmp_path]).rows}
    assert formats == {
        "benchmarks.csv": "sglang-bench-serving",
        "profile_export_aiperf.json": "vllm-bench-serve",
        "run=0.txt": "guidellm",
    }


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(bench_serve(label="plain")).encode())
    assert len(read_sweep([path]).rows) == 1


def test_hidden_files_and_files_given_twice_count_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a" / "x.json", bench_serve(label="plain"))
    write(tmp_path / ".cache" / "y.json", bench_serve(label="plain"))
    write(tmp_path / ".y.json", bench_serve(label="plain"))
    sweep = read_sweep([tmp_path, path, path])
    assert len(sweep.rows) == 1
    assert not any(f.kind == "skipped" for f in sweep.findings)


def test_copies_of_a_run_count_once(tmp_path: Path) -> None:
    write(tmp_path / "a.json", bench_serve(label="plain"))
    write(tmp_path / "b.json", bench_serve(label="plain"))
    sweep = read_sweep([tmp_path])
    assert len(sweep.rows) == 1
    assert any("the same run as" in f.problem for f in sweep.findings)


def test_models_are_not_mixed(tmp_path: Path) -> None:
    write(tmp_path / "a.json", bench_serve(label="plain"))
    write(tmp_path / "b.json", bench_serve(label="plain", model_id="meta/Llama-3.1-8B", duration=7.0))
    write(tmp_path / "c.json", bench_serve(label="plain", model_id="/models/qwen3-8b", duration=8.0))
    with pytest.raises(SweepError, match=r"Llama-3.1-8B.*Qwen3-8B.*one policy is for one model") as caught:
        read_sweep([tmp_path])
    assert caught.value.source == str(tmp_path / "b.json")
    sweep = read_sweep([tmp_path], only_model="Qwen3-8B")
    assert len(sweep.rows) == 2
    assert [f.field for f in sweep.findings if f.kind == "skipped"] == ["model"]
    with pytest.raises(SweepError, match="there are Qwen/Qwen3-8B"):
        read_sweep([tmp_path / "a.json"], only_model="Gemma")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["a=plain"], {"a": Arm(0, False)}),
        (["a=0", "b = 5"], {"a": Arm(0, True), "b": Arm(5, True)}),
        (["SERVE-x=1=3"], {"SERVE-x=1": Arm(3, True)}),
    ],
)
def test_arms_are_parsed(texts: list[str], expected: dict[str, Arm]) -> None:
    assert parse_arms(texts) == expected


@pytest.mark.parametrize("texts", [["a"], ["=3"], ["a="], ["a=spec"], ["a=-1"], ["a=65"], ["a=٣"], ["a=1", "a=2"]])
def test_arms_that_say_nothing_are_refused(texts: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="--arm"):
        parse_arms(texts)


def test_names_that_are_no_unicode_can_be_printed(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json"))
    path.write_text('{"schema": "adaptive-gamma/sweep-row/v1", "\\ud800": 1}')
    (finding,) = read_sweep([path]).findings
    assert str(finding).encode().endswith(b"\\udcff.json: \\ud800: is not a key of a sweep row")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([10**400, -1, 0, 1e308, "5", "inf", "plain"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
SHAPES: list[Any] = [
    bench_serve(**counters(), num_speculative_tokens=3),
    detailed(**counters()),
    [bench_serve(), bench_serve()],
    [forward_case(sequences=2), forward_case(sequences=2, drafts=0, query=1)],
    sglang(),
    guidellm(),
    aiperf(),
    server_metrics(),
    {"vllm_config": {"speculative_config": {"num_speculative_tokens": 3}}, "system_env": {"vllm_version": "0.32"}},
    {"schema": "adaptive-gamma/sweep-row/v1", "format": "own", "completed": 3, "step": {"seconds": 0.1}},
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, down to the leaves."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*path, key))
    return found


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    value = json.loads(json.dumps(draw(st.sampled_from(SHAPES))))
    for path in draw(st.lists(st.sampled_from(places(value)), min_size=1, max_size=3)):
        place = value
        try:
            for key in path[:-1]:
                place = place[key]
            if draw(st.booleans()):
                place[path[-1]] = draw(json_values)
            else:
                del place[path[-1]]
        except (LookupError, TypeError):
            continue  # an earlier change took the place away
    return value


def import_bytes(content: bytes) -> None:
    """What no file may do: raise anything but an error with a name, or vanish without a row or a finding."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.json")
        path.write_bytes(content)
        try:
            sweep = read_sweep([path])
        except ConfigurationError:
            return
        for row in sweep.rows:
            assert row.source.file == str(path)
            for seconds in (row.tpot_p50_s, row.tpot_p99_s, row.tpot_mean_s, row.ttft_p50_s, row.duration_s):
                assert seconds is None or 0 <= seconds < float("inf")
        for finding in sweep.findings:
            assert finding.source.file.startswith(str(path))
            str(finding).encode()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged())
def test_no_damaged_document_crashes_the_import(value: Any) -> None:
    import_bytes(json.dumps(value).encode())


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_bytes_crash_the_import(content: bytes) -> None:
    import_bytes(content)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SHAPES), st.integers(0, 4000), st.binary(max_size=4))
def test_no_cut_file_crashes_the_import(value: Any, cut: int, tail: bytes) -> None:
    import_bytes(json.dumps(value).encode()[:cut] + tail)


LOG = "\n".join([engine_start(DRAFTING), "KV cache size: 232,960 tokens", *[iteration(7, 42, 12.0)] * 3])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(LOG)), st.integers(0, 40), st.text(max_size=20))
def test_no_damaged_log_crashes_the_import(start: int, length: int, patch: str) -> None:
    import_bytes((LOG[:start] + patch + LOG[start + length :]).encode("utf-8", "surrogatepass"))
