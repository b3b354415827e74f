from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adaptive_gamma.bench import SweepRow, row_to_json
from adaptive_gamma.bench.importers import Sweep, read_sweep
from adaptive_gamma.bench.row import Source, SpeculationSeen
from tests.bench.shapes import aiperf, guidellm, guidellm_benchmark, metric, server_metrics, sglang, write


def refusals(sweep: Sweep) -> dict[str, str]:
    return {f.field: f.problem for f in sweep.findings if f.kind == "refused"}


def test_sglang_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "out.jsonl", sglang(), sglang(duration=21.0))
    assert "Infinity" in path.read_text()
    sweep = read_sweep([path])
    row, other = sweep.rows
    assert (row.format, row.engine, row.engine_version, row.drafter) == (
        "sglang-bench-serving",
        "sglang",
        "0.5.9",
        "eagle3",
    )
    assert (row.gamma, row.speculative) == (3, True)
    assert (row.concurrency_asked, row.concurrency) == (8, 7.5)
    assert (row.input_tokens, row.output_tokens) == (300, 200)
    assert (row.completed, row.failed) == (100, 2)
    assert row.tpot_p50_s == pytest.approx(0.007)
    assert other.source.line == 2


def test_sglang_accept_length_is_the_servers_and_not_the_runs(tmp_path: Path) -> None:
    sweep = read_sweep([write(tmp_path / "out.jsonl", sglang())])
    assert sweep.rows[0].acceptance == SpeculationSeen(mean_length=2.9, cumulative=True)
    assert any(f.field == "accept_length" and "last reset" in f.problem for f in sweep.findings)


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"speculative_algorithm": None}, (0, False)),
        ({"speculative_algorithm": "EAGLE", "speculative_num_steps": 5}, (5, True)),
        ({"speculative_algorithm": "NGRAM"}, (None, None)),
        ({"version": "0.5"}, (None, None)),
        (None, (None, None)),
    ],
)
def test_sglang_servers_state_their_drafter(
    tmp_path: Path, info: Any, expected: tuple[int | None, bool | None]
) -> None:
    run = sglang(server_info=info, accept_length=None)
    (row,) = read_sweep([write(tmp_path / "out.jsonl", run)]).rows
    assert (row.gamma, row.speculative) == expected


def test_sglang_trees_are_refused(tmp_path: Path) -> None:
    info = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_num_draft_tokens": 16}
    sweep = read_sweep([write(tmp_path / "out.jsonl", sglang(server_info=info))])
    assert "tree" in refusals(sweep)["server_info.speculative_num_draft_tokens"]


def test_sglang_counts_what_failed(tmp_path: Path) -> None:
    without = sglang(num_prompts=130)
    assert read_sweep([write(tmp_path / "a.jsonl", without)]).rows[0].failed == 30
    nothing = sglang()
    del nothing["errors"]
    sweep = read_sweep([write(tmp_path / "b.jsonl", nothing)])
    assert sweep.rows[0].failed == 0
    assert any(f.field == "failed" for f in sweep.findings)
    assert "completed" in refusals(read_sweep([write(tmp_path / "c.jsonl", sglang(completed=0))]))


def test_sglang_random_data_is_refused_for_acceptance(tmp_path: Path) -> None:
    sweep = read_sweep([write(tmp_path / "a.jsonl", sglang(dataset_name="random"))])
    assert "'random' says 'random'" in refusals(sweep)["acceptance"]


def test_guidellm_report(tmp_path: Path) -> None:
    sweep = read_sweep([write(tmp_path / "benchmarks.json", guidellm())])
    (row,) = sweep.rows
    assert (row.format, row.model, row.concurrency_asked, row.concurrency) == ("guidellm", "Qwen/Qwen3-8B", 8, 7.8)
    assert (row.tpot_p50_s, row.tpot_p99_s, row.tpot_mean_s) == pytest.approx((0.0085, 0.012, 0.009))
    assert row.ttft_p50_s == pytest.approx(0.11)
    assert (row.input_tokens, row.output_tokens, row.output_tokens_per_s) == (300, 200, 800)
    assert (row.completed, row.failed, row.duration_s) == (40, 1, 30)
    assert row.gamma is None
    assert row.acceptance == SpeculationSeen(mean_length=2.5)
    assert any("per streamed chunk" in f.problem for f in sweep.findings)


def test_guidellm_pools_the_requests_counters(tmp_path: Path) -> None:
    speculation = {"acceptance_histogram": [1, 1, 0, 3], "num_draft_tokens": 15, "num_spec_tokens": 3}
    requests = [{"response_metrics": {"speculative_decoding": speculation}}] * 4 + [{"response_metrics": None}]
    benchmark = guidellm_benchmark(requests={"successful": requests})
    (row,) = read_sweep([write(tmp_path / "b.json", guidellm(benchmark))]).rows
    assert (row.gamma, row.speculative, row.engine) == (3, True, "vllm")
    assert row.acceptance is not None
    assert row.acceptance.histogram == (4, 4, 0, 12)
    assert row.acceptance.mean_length == pytest.approx(3.0)
    assert row.acceptance.draft_tokens == 60


def test_guidellm_other_versions_are_refused(tmp_path: Path) -> None:
    sweep = read_sweep([write(tmp_path / "b.json", guidellm(version=1))])
    assert "only version 2" in refusals(sweep)["metadata.version"]


def test_guidellm_bad_benchmarks_do_not_take_the_others_with_them(tmp_path: Path) -> None:
    nothing = {"measure_start_time": 1.0, "measure_end_time": 2.0, "requests_made": {"successful": 0, "errored": 7}}
    report = guidellm(
        guidellm_benchmark(), guidellm_benchmark(scheduler_metrics=nothing), guidellm_benchmark(metrics=None)
    )
    sweep = read_sweep([write(tmp_path / "b.json", report)])
    assert len(sweep.rows) == 1
    assert "(7 failed)" in refusals(sweep)["benchmarks[1].scheduler_metrics.requests_made.successful"]
    assert "missing" in refusals(sweep)["benchmarks[2].metrics"]


def test_guidellm_made_up_data(tmp_path: Path) -> None:
    report = guidellm(config={"data": ["prompt_tokens=256,output_tokens=128"]})
    assert "made up" in refusals(read_sweep([write(tmp_path / "b.json", report)]))["acceptance"]


def test_aiperf_run(tmp_path: Path) -> None:
    (row,) = read_sweep([write(tmp_path / "profile_export_aiperf.json", aiperf())]).rows
    assert (row.format, row.model, row.arm, row.gamma) == ("aiperf", "Qwen/Qwen3-8B", "k3", 3)
    assert row.concurrency_asked == 8
    assert row.concurrency == pytest.approx(8.0)
    assert (row.tpot_p50_s, row.ttft_p50_s, row.duration_s) == pytest.approx((0.008, 0.09, 30.0))
    assert (row.completed, row.failed) == (120, 3)
    assert row.acceptance is not None
    assert row.acceptance.histogram == (200, 150, 0, 650)
    assert row.acceptance.mean_length == pytest.approx(3.1)


def test_aiperf_units_are_read(tmp_path: Path) -> None:
    (row,) = read_sweep([write(tmp_path / "a.json", aiperf(inter_token_latency=metric("us", 8000.0)))]).rows
    assert row.tpot_p50_s == pytest.approx(0.008)
    sweep = read_sweep([write(tmp_path / "a.json", aiperf(inter_token_latency=metric("tokens", 8.0)))])
    assert "unit of time" in refusals(sweep)["inter_token_latency.unit"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"was_cancelled": True}, "was_cancelled"),
        ({"is_complete": False, "incomplete_reason": "time"}, "is_complete"),
        ({"request_count": metric("requests", 0)}, "request_count"),
        ({"schema_version": "2.0"}, "schema_version"),
        ({"pooled_spec_decode_acceptance_histogram": {"x": 1}}, "pooled_spec_decode_acceptance_histogram.x"),
        ({"total_draft_tokens": metric("tokens", 10)}, "pooled_spec_decode_acceptance_histogram"),
    ],
)
def test_aiperf_runs_that_must_not_count(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    sweep = read_sweep([write(tmp_path / "a.json", aiperf(**changes))])
    assert not sweep.rows
    assert field in refusals(sweep)


def test_aiperf_server_metrics_fill_in_the_acceptance(tmp_path: Path) -> None:
    run = aiperf(run_info={})
    del run["pooled_spec_decode_acceptance_histogram"]
    write(tmp_path / "k" / "profile_export_aiperf.json", run)
    write(tmp_path / "k" / "server_metrics_export.json", server_metrics())
    write(tmp_path / "k" / "sweep.json", {"aggregation_type": "sweep", "num_profile_runs": 2})
    record = {"metadata": {"request_start_ns": 1}, "metrics": {}, "error": None}
    write(tmp_path / "k" / "profile_export.jsonl", record, record)
    sweep = read_sweep([tmp_path])
    (row,) = sweep.rows
    assert (row.gamma, row.speculative, row.engine) == (3, True, "vllm")
    assert row.acceptance is not None
    assert row.acceptance.per_position == pytest.approx((0.8, 0.6, 0.4))
    assert sum(f.kind == "skipped" for f in sweep.findings) == 2


def own_row(**changes: Any) -> SweepRow:
    values: dict[str, Any] = {"format": "own", "gamma": 3, "speculative": True, "completed": 5, "tpot_p50_s": 0.01}
    return SweepRow(source=Source("x"), **(values | changes))


def test_own_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [own_row(run="1"), own_row(run="2", gamma=0, speculative=False), own_row(run="3", completed=0, failed=4)]
    path.write_text("\n".join(json.dumps(row_to_json(row)) for row in rows) + '\n{"schema": "adaptive-gamma/sw')
    sweep = read_sweep([path])
    assert [(row.gamma, row.speculative, row.run) for row in sweep.rows] == [(3, True, "1"), (0, False, "2")]
    assert [(str(f.source), f.kind) for f in sweep.findings] == [(f"{path}:4", "skipped"), (f"{path}:3", "refused")]


def test_own_rows_of_a_later_version_are_refused(tmp_path: Path) -> None:
    sweep = read_sweep([write(tmp_path / "a.json", {"schema": "adaptive-gamma/sweep-row/v9", "format": "own"})])
    assert "v1" in refusals(sweep)["schema"]
