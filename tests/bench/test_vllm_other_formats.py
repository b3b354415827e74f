from __future__ import annotations

from pathlib import Path

import pytest

from adaptive_gamma.bench.importers import Arm, read_sweep
from adaptive_gamma.errors import ConfigurationError
from tests.bench.shapes import DATA, DRAFTING, bench_serve, counters, engine_start, forward_case, iteration, write


def sweep_folder(root: Path) -> Path:
    for gamma in (0, 3):
        folder = root / "20261130_101500" / f"SERVE--speculative={gamma}-BENCH--max_concurrency=4"
        overrides = {"speculative_config": {"num_speculative_tokens": 3}} if gamma else {"speculative_config": None}
        runs = [
            bench_serve(**(counters() if gamma else {}), **overrides, run_number=run, duration=6.0 + 0.1 * run)
            for run in range(3)
        ]
        for run, values in enumerate(runs):
            write(folder / f"run={run}.json", values)
            write(folder / f"run={run}.pytorch.json", [{"benchmark": {"name": "x"}, "metric": {"name": "y"}}])
        write(folder / "summary.json", runs)
        write(folder / "warmup.json", bench_serve(run_number=-1))
        (folder / "summary.csv").write_text("a,b\n1,2\n")
    failure = {
        "run_number": 2,
        "error_type": "RuntimeError",
        "error": "boom",
        "serve_overrides": {},
        "bench_overrides": {},
    }
    write(root / "20261130_101500" / "SERVE-x" / "run=2.failure.json", failure)
    return root


def test_a_sweep_folder_gives_each_run_once(tmp_path: Path) -> None:
    sweep = read_sweep([sweep_folder(tmp_path)])
    assert sorted((row.gamma, row.speculative, row.run) for row in sweep.rows) == [
        (gamma, speculative, f"run {run}") for gamma, speculative in ((0, False), (3, True)) for run in range(3)
    ]
    said = [f.problem for f in sweep.findings]
    assert sum("is the same run as" in problem for problem in said) == 6
    assert sum("warm-up" in problem for problem in said) == 2
    assert sum("repeats a run" in problem for problem in said) == 6
    (failed,) = [f for f in sweep.findings if f.kind == "refused"]
    assert "RuntimeError: 'boom'" in failed.problem


def test_a_summary_alone_gives_its_runs(tmp_path: Path) -> None:
    runs = [bench_serve(label="k3", run_number=n, duration=6.0 + n) for n in range(3)]
    runs.append(bench_serve(label="k3", run_number=3, completed=0))
    sweep = read_sweep([write(tmp_path / "summary.json", runs)])
    assert [row.run for row in sweep.rows] == ["run 0", "run 1", "run 2"]
    assert [f.field for f in sweep.findings if f.kind == "refused"] == ["completed"]


def test_folders_name_arms(tmp_path: Path) -> None:
    write(tmp_path / "sweep" / "baseline" / "c4.json", bench_serve())
    write(tmp_path / "sweep" / "eagle" / "c4.json", bench_serve(duration=5.0))
    arms = {"baseline": Arm(0, False), "eag*": Arm(5, True)}
    rows = read_sweep([tmp_path / "sweep"], arms=arms).rows
    assert [(row.gamma, row.speculative) for row in rows] == [(0, False), (5, True)]
    with pytest.raises(ConfigurationError, match="did you mean 'eagle'"):
        read_sweep([tmp_path / "sweep"], arms={"eagl": Arm(5, True)})
    two = read_sweep([tmp_path / "sweep"], arms={"c4": Arm(3, True), "eagle": Arm(5, True)})
    assert [row.gamma for row in two.rows] == [3]
    assert "several arms fit" in two.findings[-1].problem


def test_server_info_beside_the_results_tells_the_arm(tmp_path: Path) -> None:
    config = {"model_config": {"model": "/models/target"}}
    speculative = {"method": "draft_model", "num_speculative_tokens": 5}
    environment = {"vllm_version": "0.32.0"}
    for name, found in (("plain-server", None), ("other", speculative)):
        page = {"vllm_config": {**config, "speculative_config": found}, "system_env": environment}
        write(tmp_path / name / "info.json", page)
        write(tmp_path / name / "runs" / "c4.json", bench_serve(duration=6.0 + len(name)))
    rows = {Path(row.source.file).parts[-3]: row for row in read_sweep([tmp_path]).rows}
    assert (rows["plain-server"].gamma, rows["plain-server"].speculative) == (0, False)
    assert (rows["other"].gamma, rows["other"].speculative, rows["other"].drafter) == (5, True, "draft_model")
    assert rows["other"].engine_version == "0.32.0"


def test_two_server_infos_in_a_folder_are_not_guessed_between(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.json", {"vllm_config": {"speculative_config": None}})
    write(tmp_path / "run.json", bench_serve())
    sweep = read_sweep([tmp_path])
    assert sweep.rows[0].gamma is None
    assert any("not known which of a.json, b.json" in f.problem for f in sweep.findings)


@pytest.mark.skipif(not (DATA / "server_info").is_dir(), reason=f"no real server_info in {DATA}")
def test_real_server_info(tmp_path: Path) -> None:
    for name in ("plain", "draft"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "server_info.json").write_bytes((DATA / "server_info" / f"{name}.json").read_bytes())
        write(folder / "c4.json", bench_serve(duration=6.0 + len(name)))
    rows = {Path(row.source.file).parent.name: row for row in read_sweep([tmp_path]).rows}
    assert (rows["plain"].gamma, rows["plain"].speculative) == (0, False)
    assert (rows["draft"].gamma, rows["draft"].engine_version) == (5, "0.32.0")


def test_forward_cases_are_steps(tmp_path: Path) -> None:
    cases = [
        forward_case(),
        forward_case(drafts=0, query=1, median_us=20000.0),
        forward_case(sequences=4, requests=[*forward_case(sequences=4)["requests"], {"query_len": 512, "kv_len": 512}]),
        forward_case(case="prefill", requests=[{"query_len": 512, "kv_len": 512, "num_draft_tokens": 0}]),
        forward_case(case="mixed", requests=[*forward_case()["requests"], {"query_len": 1, "kv_len": 9}]),
        forward_case(case="odd", requests=[{"query_len": 9, "kv_len": 9, "num_draft_tokens": 3}]),
        forward_case(case="never", median_us=0),
    ]
    sweep = read_sweep([write(tmp_path / "f.json", cases)])
    verify, plain, chunked = sweep.rows
    assert verify.step is not None
    assert (verify.gamma, verify.speculative) == (3, True)
    assert verify.step.seconds == pytest.approx(0.0215)
    assert (verify.step.sequences, verify.step.tokens_per_sequence, verify.step.scheduled_tokens) == (16, 4, 64)
    assert (verify.step.context_tokens, verify.step.includes_drafter) == (4096, True)
    assert (plain.gamma, plain.speculative) == (None, None)
    assert chunked.step is not None
    assert (chunked.step.prefill_tokens, chunked.step.scheduled_tokens) == (512, 528)
    said = {f.field: f.problem for f in sweep.findings}
    assert "no decoding requests" in said["[3].requests"]
    assert "mixes drafts of 0, 3" in said["[4].requests"]
    assert "3 drafts in a query of 9" in said["[5].requests[0].num_draft_tokens"]
    assert "got 0" in said["[6].median_us"]
    assert "--exclude-drafter" in said["median_us"]


@pytest.mark.parametrize("newer", [True, False])
def test_iteration_lines_are_grouped_by_kind(tmp_path: Path, newer: bool) -> None:
    lines = [engine_start(DRAFTING), "KV cache size: 232,960 tokens"]
    lines += [iteration(7, 42, ms, newer=newer) for ms in (12.0, 12.4, 90.0)]
    lines += [iteration(7, 42, 30.0, prefill=512, newer=newer)]
    lines += ["Engine 000: Iteration(99): 0 context requ"]
    path = tmp_path / "server.log"
    path.write_text("\n".join(lines))
    sweep = read_sweep([path])
    (row,) = sweep.rows
    assert row.step is not None
    assert row.step.seconds == pytest.approx(0.0124)
    assert (row.step.sequences, row.step.tokens_per_sequence, row.step.scheduled_tokens) == (7, 6, 42)
    assert (row.gamma, row.speculative, row.engine_version, row.model, row.drafter) == (
        5,
        True,
        "0.32.0",
        "tiny",
        "draft_model",
    )
    assert row.source.line == 3
    assert row.completed == 3
    assert row.step.context_tokens == (pytest.approx(0.125 * 232960 / 7) if newer else None)
    said = [str(f) for f in sweep.findings]
    assert any("1 steps of kinds seen fewer than 3 times" in problem for problem in said)
    assert any(f"{path}:7: Iteration: is an iteration line that cannot be read" in problem for problem in said)


def test_plain_servers_say_so_in_their_log(tmp_path: Path) -> None:
    steps = [iteration(7, 7, 9.0)] * 3
    path = tmp_path / "a.log"
    path.write_text("\n".join([engine_start("None"), *steps]))
    (row,) = read_sweep([path]).rows
    assert (row.gamma, row.speculative) == (0, False)
    path.write_text("\n".join(steps))
    (row,) = read_sweep([path]).rows
    assert (row.gamma, row.speculative) == (None, None)
    path.write_text("\n".join([engine_start(DRAFTING), *steps]))
    (row,) = read_sweep([path]).rows
    assert (row.gamma, row.speculative) == (0, True)


def test_steps_of_uneven_drafts_have_no_gamma(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("\n".join([iteration(7, 30, 9.0)] * 3))
    (row,) = read_sweep([path]).rows
    assert row.step is not None
    assert row.gamma is None
    assert row.step.tokens_per_sequence == pytest.approx(30 / 7)


@pytest.mark.skipif(not (DATA / "startup_logs").is_dir(), reason=f"no real logs in {DATA}")
def test_real_start_of_a_log_with_steps_behind_it(tmp_path: Path) -> None:
    for name, expected in (("plain", (0, False)), ("spec_draft_trained", (5, True))):
        log = (DATA / "startup_logs" / f"{name}.log").read_text()
        tokens = 4 * (expected[0] + 1)
        path = tmp_path / f"{name.partition('_')[0]}-server.txt"
        path.write_text(log + "\n" + "\n".join([iteration(4, tokens, 9.0)] * 3))
        (row,) = read_sweep([path]).rows
        assert (row.gamma, row.speculative) == expected
        assert row.engine_version == "0.32.0"
