from __future__ import annotations

from pathlib import Path

import pytest

from adaptive_gamma.bench.importers import Arm, read_sweep
from tests.bench.shapes import DATA, bench_serve, counters, detailed, write

VARYING = {"spec_decode_draft_tokens": 900, "spec_decode_acceptance_rate": 80.0}


def problems(path: Path) -> list[str]:
    return [f"{finding.kind} {finding.field}: {finding.problem}" for finding in read_sweep([path]).findings]


def test_a_run_becomes_a_row(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.json", bench_serve(**counters(), label="chat", vllm_version="0.33.0", dataset="sharegpt")
    )
    (row,) = read_sweep([path]).rows
    assert (row.format, row.engine, row.engine_version) == ("vllm-bench-serve", "vllm", "0.33.0")
    assert (row.model, row.dataset, row.arm) == ("Qwen/Qwen3-8B", "sharegpt", "chat")
    assert (row.gamma, row.speculative) == (3, True)
    assert row.concurrency_asked == 4
    assert row.concurrency == pytest.approx(12 * 1.9 / 6.0)
    assert row.output_tokens == 100
    assert row.output_tokens_per_s == 200
    assert (row.tpot_p50_s, row.tpot_p99_s, row.tpot_mean_s) == pytest.approx((0.018, 0.022, 0.0182))
    assert row.ttft_p50_s == pytest.approx(0.1)
    assert (row.completed, row.failed, row.duration_s) == (12, 0, 6.0)
    assert row.source.file == str(path)


def test_acceptance_is_read_from_counts_and_not_from_the_percentage(tmp_path: Path) -> None:
    (row,) = read_sweep([write(tmp_path / "a.json", bench_serve(**counters()))]).rows
    assert row.acceptance is not None
    assert row.acceptance.mean_length == pytest.approx(2.8)
    assert row.acceptance.per_position == (0.8, 0.6, 0.4)
    assert (row.acceptance.drafts, row.acceptance.draft_tokens) == (400, 1200)


def test_the_load_is_not_max_concurrent_requests(tmp_path: Path) -> None:
    few = bench_serve(max_concurrent_requests=400)
    del few["latencies"]
    (row,) = read_sweep([write(tmp_path / "a.json", few)]).rows
    assert row.concurrency == pytest.approx(12 * (0.110 + 0.0182 * 99) / 6.0)


def test_keys_that_are_missing_do_not_make_a_server_plain(tmp_path: Path) -> None:
    sweep = read_sweep([write(tmp_path / "openai-infqps.json", bench_serve())])
    (row,) = sweep.rows
    assert row.gamma is None
    assert row.speculative is None
    assert [f.field for f in sweep.findings] == ["gamma"]
    assert "--arm" in sweep.findings[0].problem


def test_a_server_that_drafted_nothing_stays_speculative(tmp_path: Path) -> None:
    path = write(tmp_path / "ngram.json", bench_serve())
    (row,) = read_sweep([path], arms={"ngram": Arm(3, True)}).rows
    assert (row.gamma, row.speculative, row.acceptance) == (3, True, None)
    silent = write(tmp_path / "silent.json", bench_serve(spec_decode_num_drafts=0, spec_decode_draft_tokens=0))
    assert any("drafted nothing" in problem for problem in problems(silent))


def test_lines_of_append_result_are_rows_with_their_line(tmp_path: Path) -> None:
    lines = [bench_serve(label="plain", date=f"20261130-10150{i}", duration=6.0 + i) for i in range(3)]
    rows = read_sweep([write(tmp_path / "all.json", *lines)]).rows
    assert [row.source.line for row in rows] == [1, 2, 3]
    assert all(row.speculative is False for row in rows)


def test_a_half_written_line_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    path = write(tmp_path / "all.json", bench_serve(label="k3", duration=5.0), bench_serve(label="k3"))
    path.write_text(path.read_text()[:-40])
    sweep = read_sweep([path])
    assert len(sweep.rows) == 1
    (broken,) = [f for f in sweep.findings if f.kind == "skipped"]
    assert str(broken.source) == f"{path}:2"
    assert "half-written" in broken.problem


def test_drafts_of_varying_length_lose_their_rates_by_position(tmp_path: Path) -> None:
    seen = counters() | {"spec_decode_draft_tokens": 900, "spec_decode_acceptance_rate": 80.0}
    sweep = read_sweep([write(tmp_path / "a.json", bench_serve(**seen, num_speculative_tokens="3"))])
    (row,) = sweep.rows
    assert row.gamma == 3
    assert row.acceptance is not None
    assert row.acceptance.per_position is None
    assert row.acceptance.mean_length == pytest.approx(2.8)
    assert any("differed in length (2.25 of 3" in f.problem for f in sweep.findings)


def test_a_schedule_that_stood_at_one_length_is_that_gamma(tmp_path: Path) -> None:
    seen = counters(rates=(0.8, 0.6, 0.4, 0.0, 0.0))
    sweep = read_sweep([write(tmp_path / "a.json", bench_serve(**seen, num_speculative_tokens=5))])
    (row,) = sweep.rows
    assert row.gamma == 3
    assert row.acceptance is not None
    assert row.acceptance.per_position == (0.8, 0.6, 0.4)


@pytest.mark.parametrize(
    ("changes", "gamma", "speculative"),
    [
        ({"num_speculative_tokens": "5"}, 5, True),
        ({"speculative_config": '{"method": "eagle3", "num_speculative_tokens": 5}'}, 5, True),
        ({"speculative_config": {"method": "eagle3", "num_speculative_tokens": 5}}, 5, True),
        ({"--speculative-config.num-speculative-tokens": 5}, 5, True),
        ({"speculative_config": None}, 0, False),
        ({"speculative-config": "none"}, 0, False),
        ({"num_speculative_tokens": 0}, 0, None),
        ({"label": "k5"}, 5, True),
        ({"label": "gamma=5 code"}, 5, True),
        ({"label": "no-spec"}, 0, False),
        ({"label": "spec-1"}, None, None),
        ({"label": "eagle3"}, None, None),
        ({"label": "k3 against k5"}, None, None),
        ({"label": "plain or k5"}, None, None),
        ({"label": "top_k50"}, None, None),
        ({"label": "Qwen3-4k"}, None, None),
        ({"label": "k0"}, 0, None),
        ({"label": "k0", "num_speculative_tokens": 0}, 0, None),
        ({"label": "k5", "num_speculative_tokens": 5}, 5, True),
        ({"label": "plain", "speculative_config": None}, 0, False),
    ],
)
def test_gamma_comes_from_what_is_said(
    tmp_path: Path, changes: dict[str, object], gamma: int | None, speculative: bool | None
) -> None:
    (row,) = read_sweep([write(tmp_path / "a.json", bench_serve(**changes))]).rows
    assert (row.gamma, row.speculative) == (gamma, speculative)


def test_the_user_goes_before_the_file_and_the_counters_before_all(tmp_path: Path) -> None:
    path = write(tmp_path / "run.json", bench_serve(label="a", num_speculative_tokens=5))
    assert read_sweep([path], arms={"a": Arm(3, True)}).rows[0].gamma == 3
    counted = write(tmp_path / "run.json", bench_serve(label="a", **counters()))
    sweep = read_sweep([counted], arms={"a": Arm(5, True)})
    assert not sweep.rows
    assert "drafted 3 a step" in sweep.findings[-1].problem
    sweep = read_sweep([counted], arms={"a": Arm(0, False)})
    assert not sweep.rows
    assert "counted drafts" in sweep.findings[-1].problem


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"completed": 0, "failed": 12}, "completed", "no request completed (12 failed)"),
        ({"completed": 5, "failed": 0}, "num_prompts", "only 5 of 12 requests"),
        ({"median_tpot_ms": -1.0}, "median_tpot_ms", "negative"),
        ({"median_tpot_ms": float("nan")}, "median_tpot_ms", "not finite"),
        ({"median_tpot_ms": float("inf")}, "median_tpot_ms", "not finite"),
        ({"duration": 0}, "duration", "zero"),
        ({"duration": None}, "duration", "missing"),
        ({"latencies": [1.0, -2.0]}, "latencies[1]", "negative"),
        ({"latencies": "1.0"}, "latencies", "expected a list"),
        ({"completed": "12"}, "completed", "expected a number"),
        (counters() | {"spec_decode_acceptance_rate": 180.0}, "spec_decode_acceptance_rate", "above 100"),
        (counters() | {"spec_decode_accepted_tokens": 5000}, "spec_decode_accepted_tokens", "more tokens accepted"),
        (counters() | {"spec_decode_acceptance_length": 1.5}, "spec_decode_acceptance_length", "the counts give"),
        (counters(rates=(0.5, 0.9, 0.4)), "spec_decode_per_position_acceptance_rates", "rise"),
        ({"median_tpot_ms": 1e-300}, "median_tpot_ms", "expected a time per token of 0.001 to 600000, got 1e-300"),
        ({"median_tpot_ms": 1e10}, "median_tpot_ms", "got 1e+10"),
        ({"median_tpot_ms": 1e300}, "median_tpot_ms", "beyond 2**63"),
        ({"median_tpot_ms": 0}, "median_tpot_ms", "got 0"),
        ({"median_tpot_ms": 1.5}, "median_tpot_ms", "mean_tpot_ms says 0.0182 s: 12.1 times apart"),
        ({"max_concurrency": 0}, "max_concurrency", "expected requests at once of 1 to 1e+06, got 0"),
        ({"max_concurrency": 1e9}, "max_concurrency", "got 1e+09"),
        ({"output_throughput": 1e300}, "output_throughput", "beyond 2**63"),
        ({"output_throughput": 0}, "output_throughput", "got 0"),
        ({"output_throughput": 230.0}, "output_throughput", "1200 tokens (total_output_tokens) in 6 s are 200"),
        ({"max_concurrency": 2}, "median_tpot_ms", "3.56 requests decoding at once, but max_concurrency let in 2"),
        ({"total_input_tokens": 10**12}, "total_input_tokens", "tokens each"),
        ({"latencies": [1e17] * 12}, "latencies", "requests at once"),
        (counters() | {"spec_decode_acceptance_rate": 0.6}, "spec_decode_acceptance_rate", "written as a fraction"),
        (counters() | {"spec_decode_acceptance_rate": 57.5}, "spec_decode_acceptance_rate", "60.0 percent"),
        ({"num_speculative_tokens": "many"}, "num_speculative_tokens", "expected a number"),
        ({"num_speculative_tokens": 1000}, "num_speculative_tokens", "no gamma"),
        ({"num_speculative_tokens": 3, "gamma": 5}, "gamma", "but num_speculative_tokens says 3"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    tmp_path: Path, changes: dict[str, object], field: str, words: str
) -> None:
    sweep = read_sweep([write(tmp_path / "a.json", bench_serve(**changes))])
    assert not sweep.rows
    (finding,) = [f for f in sweep.findings if f.kind == "refused"]
    assert finding.field == field
    assert words in finding.problem
    assert str(finding.source) == str(tmp_path / "a.json")


def test_real_prompts_of_a_detailed_run_are_believed(tmp_path: Path) -> None:
    (row,) = read_sweep([write(tmp_path / "a.json", detailed(**counters()))]).rows
    assert row.acceptance is not None
    assert not row.acceptance.made_up_prompts


@pytest.mark.parametrize(
    "run",
    [
        detailed(**counters()) | {"input_lens": [512] * 12},
        bench_serve(**counters(), dataset="random"),
        bench_serve(**counters(), label="random-k3"),
    ],
)
def test_acceptance_of_random_tokens_is_refused_unless_forced(tmp_path: Path, run: dict[str, object]) -> None:
    path = write(tmp_path / "a.json", run)
    sweep = read_sweep([path])
    (row,) = sweep.rows
    assert row.acceptance is not None
    assert row.acceptance.made_up_prompts
    (finding,) = [f for f in sweep.findings if f.kind == "refused"]
    assert finding.field == "acceptance"
    assert "--force-random" in finding.problem
    (forced,) = read_sweep([path], force_random=True).rows
    assert forced.acceptance is not None
    assert not forced.acceptance.made_up_prompts


KIMI = "moonshotai/Kimi-K2-Instruct"


@pytest.mark.parametrize(
    ("name", "model", "gamma"),
    [
        ("openai-infqps-concurrency8-Kimi-K2-Instruct-20261130-101500.json", KIMI, None),
        ("k5/openai-infqps-concurrency8-Kimi-K2-Instruct-20261130-101500.json", KIMI, 5),
        ("kimi-k2/k3.json", KIMI, 3),
        ("Kimi_K2/run.json", KIMI, None),
        ("k2/run.json", KIMI, 2),
        ("k2/run.json", "/models/k2/", None),
        ("k3-k2-instruct.json", "Other", None),
    ],
)
def test_the_name_of_a_model_is_no_gamma(tmp_path: Path, name: str, model: str, gamma: int | None) -> None:
    write(tmp_path / "in" / name, bench_serve(model_id=model))
    (row,) = read_sweep([tmp_path / "in"]).rows
    assert row.gamma == gamma


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("plain/K2.json", {}, "the name 'plain' says plain, the name 'K2' gamma 2"),
        ("k5/run.json", {"label": "k3"}, "the name 'k5' says gamma 5, the name 'k3' gamma 3"),
        ("run.json", {"label": "plain"} | counters(), "the name 'plain' says plain, the draft counters gamma 3"),
        ("run.json", {"label": "k7"} | counters(), "the name 'k7' says gamma 7, the draft counters gamma 3"),
        ("k7.json", counters(), "the name 'k7' says gamma 7, the draft counters gamma 3"),
        ("run.json", {"label": "k5", "num_speculative_tokens": 3}, "says gamma 5, num_speculative_tokens gamma 3"),
        ("k5.json", {"speculative_config": None}, "the name 'k5' says gamma 5, speculative_config plain"),
        ("run.json", {"label": "plain"} | counters() | VARYING, "says that nothing is drafted, but the engine counted"),
        ("k2.json", counters() | VARYING, "the name 'k2' says gamma 2, but the engine drafted 2.25 tokens a step"),
    ],
)
def test_names_that_contradict_are_refused(tmp_path: Path, name: str, changes: dict[str, object], words: str) -> None:
    write(tmp_path / "in" / name, bench_serve(**changes))
    sweep = read_sweep([tmp_path / "in"])
    assert not sweep.rows
    (finding,) = [f for f in sweep.findings if f.kind == "refused"]
    assert finding.field == "gamma"
    assert words in finding.problem


def test_counters_that_were_read_one_after_the_other_contradict_no_name(tmp_path: Path) -> None:
    write(tmp_path / "in" / "k3.json", bench_serve(**counters() | {"spec_decode_draft_tokens": 1201}))
    (row,) = read_sweep([tmp_path / "in"]).rows
    assert row.gamma == 3
    assert row.speculative is True


@pytest.mark.skipif(not (DATA / "bench").is_dir(), reason=f"no real result files in {DATA}")
def test_real_files() -> None:
    sweep = read_sweep([DATA / "bench"])
    ngram, draft = sorted(sweep.rows, key=lambda row: row.source.file)
    assert (draft.gamma, draft.speculative, draft.concurrency_asked) == (5, True, 16)
    assert draft.concurrency == pytest.approx(14.91, abs=0.01)
    assert draft.tpot_p50_s == pytest.approx(0.0103046, abs=1e-7)
    assert draft.acceptance is not None
    assert draft.acceptance.mean_length == pytest.approx(2.0318, abs=1e-4)
    assert draft.acceptance.made_up_prompts
    assert (ngram.gamma, ngram.speculative, ngram.acceptance) == (None, None, None)
    assert ngram.concurrency == pytest.approx(3.805, abs=0.001)
    assert [f.field for f in sweep.findings if f.kind == "refused"] == ["acceptance"]
