"""``policy build --from`` and ``policy show --plot``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from adaptive_gamma.bench import row_to_json
from adaptive_gamma.cli.policy import command
from adaptive_gamma.cli.policy.plot import crossings, measured_speedups
from adaptive_gamma.errors import ConfigurationError, PolicyError, SweepError
from adaptive_gamma.policy import load_policy
from adaptive_gamma.policy.lint import _batches
from tests.bench.shapes import bench_serve, write
from tests.bench.synthetic import measured


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(command, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "rows.jsonl"
    path.write_text("".join(json.dumps(row_to_json(one)) + "\n" for one in measured()))
    return path


@pytest.fixture(scope="module")
def policy_file(sweep: Path) -> Path:
    path = sweep.parent / "policy.yaml"
    report = run(
        "build", "--from", sweep, "--step-time", "linear", "--drafter", "eagle3", "--slo-tpot-ms", "5", "-o", path
    ).output
    assert "96 rows from 1 files" in report
    assert "linear with autoregressive drafter: 96 observations, mean error" in report
    assert "token_seconds" in report
    assert "chat, context 400: cells 33 measured, 287 interpolated, 0 extrapolated" in report
    return path


def test_what_is_built_passes_the_check_and_shows_what_it_rests_on(policy_file: Path) -> None:
    assert run("check", policy_file).output.startswith("ok: the table follows from the inputs")
    shown = run("show", policy_file, "--class", "code").output
    assert "= measured nearby, ? extrapolated" in shown
    assert "within 5 ms a token up to batch" in shown
    data = json.loads(run("show", policy_file, "--json").output)
    assert data["classes"]["structured"]["400"]["within_slo"][1] == 0


def test_the_policy_goes_to_standard_output_and_the_report_beside_it(sweep: Path) -> None:
    result = run("build", "--from", sweep, "--step-time", "linear", "--drafter", "eagle3")
    assert result.stdout.startswith("schema: adaptive-gamma/policy/v1")
    assert "96 rows" in result.stderr


def test_models_are_compared_on_loads_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = measured(gammas=(None, 3), loads=(1, 4, 16, 64), classes=["chat"], runs=1)
    path.write_text("".join(json.dumps(row_to_json(one)) + "\n" for one in rows))
    report = run("build", "--from", path, "--drafter", "eagle3", "-o", tmp_path / "p.yaml").output
    assert "models by their error on loads left out:" in report
    assert "linear with autoregressive drafter: mean" in report


def test_classes_of_the_files_are_told_by_their_names_in_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [replace(one, request_class="code") if one.request_class == "structured" else one for one in measured()]
    path.write_text("".join(json.dumps(row_to_json(one)) + "\n" for one in rows))
    report = _build("--from", path, "-o", tmp_path / "p.yaml").output
    assert "note: runs of class code are class structured of the policy" in report
    assert "runs of class chat" not in report


def test_findings_are_said_once_for_each_kind(tmp_path: Path, sweep: Path) -> None:
    for index in range(5):
        write(tmp_path / f"x{index}.json", bench_serve(completed=0, model_id="Qwen3-8B"))
    report = run(
        "build",
        "--from",
        sweep,
        "--from",
        tmp_path,
        "--step-time",
        "linear",
        "--drafter",
        "eagle3",
        "-o",
        tmp_path / "p",
    ).output
    assert "refused: " in report
    assert "no request completed (unknown failed) (and 4 more like it)" in report


def test_arms_are_given_by_label(tmp_path: Path) -> None:
    for index, load in enumerate((1, 4, 16, 64)):
        tpot = 10.0 + load
        values = bench_serve(
            max_concurrency=load,
            duration=1.2 * tpot / load,
            latencies=[0.1 * tpot] * 12,
            median_tpot_ms=tpot,
            mean_tpot_ms=tpot,
            output_throughput=1000.0 * load / tpot,
            date=str(index),
        )
        write(tmp_path / "runs" / f"{load}.json", values)
    with pytest.raises(SweepError, match="not known which gamma"):
        run("build", "--from", tmp_path / "runs", "--drafter", "eagle3")
    path = tmp_path / "p.yaml"
    run(
        "build",
        "--from",
        tmp_path / "runs",
        "--arm",
        "runs=plain",
        "--drafter",
        "eagle3",
        "--step-time",
        "linear",
        "-o",
        path,
    )
    assert load_policy(path).evidence is not None
    with pytest.raises(ConfigurationError, match="fits no row"):
        run("build", "--from", tmp_path / "runs", "--arm", "run=plain", "--drafter", "eagle3")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--arm", "a=1", "--gpu", "H100"], "--arm goes with --from"),
        (["--without-plain", "--gpu", "H100"], "--without-plain goes with --from"),
        (["--prompt-share", "0"], "--prompt-share goes with --from"),
        (["--inputs", "x", "--from", "y"], "--inputs goes without --from"),
        (["--from", "y", "--gpu", "H100"], "--gpu needs --model"),
        ([], "give --from SWEEP"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(command, ["build", *arguments])
    assert result.exit_code == 2
    assert words in result.output


def test_the_time_per_token_also_goes_with_a_starter_policy(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    run("build", "--gpu", "H100", "--model", "Llama-3.1-8B", "--drafter", "eagle3", "--slo-tpot-ms", "10", "-o", path)
    cell = load_policy(path).table.classes["chat"][2048]
    assert cell.within_slo is not None
    assert cell.within_slo[0] >= cell.within_slo[1] > 1


@pytest.mark.parametrize(("name", "start"), [("p.png", b"\x89PNG"), ("p.SVG", b"<?xml")])
def test_the_plot_is_drawn(policy_file: Path, tmp_path: Path, name: str, start: bytes) -> None:
    pytest.importorskip("matplotlib")
    run("show", policy_file, "--plot", tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_the_plot_marks_what_was_measured_and_where_lines_cross(policy_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    policy = load_policy(policy_file)
    assert policy.evidence is not None
    points = measured_speedups(policy.evidence, "chat", 400)
    assert [(one.gamma, one.batch) for one in points] == [(g, b) for g in (1, 3, 5) for b in (1.0, 4.0, 16.0, 64.0)]
    for one in points:
        assert one.low <= one.speedup <= one.high
        assert one.speedup == pytest.approx(policy.speedup("chat", round(one.batch), one.gamma), rel=0.05)
    found = crossings(policy, "structured", 400)
    assert [one.gamma for one in found] == [
        gamma for _, _, gamma in policy.table.classes["structured"][400].best_gamma[1:]
    ]
    run("show", policy_file, "--class", "structured", "--plot", tmp_path / "p.svg")
    assert found
    assert "structured, context 400" in (tmp_path / "p.svg").read_text()


def test_a_policy_that_was_not_measured_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run("show", "article-h100-27b", "--plot", tmp_path / "p.png")
    policy = load_policy("article-h100-27b")
    context = policy.context_buckets[0]
    assert crossings(policy, "independent_0.6", context)


def test_the_same_policy_gives_the_same_picture(policy_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a.svg", "b.svg"):
        run("show", policy_file, "--plot", tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_pictures_of_other_kinds_and_places_are_refused(policy_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for file, words in (("p.gif", "ending in .png or .svg"), (str(tmp_path / "no" / "p.png"), "cannot be written")):
        with pytest.raises(ConfigurationError, match=words):
            run("show", policy_file, "--plot", file)


def test_without_matplotlib_the_way_to_it_is_told(policy_file: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None; sys.modules['matplotlib.figure'] = None\n"
        "from adaptive_gamma.cli import main; main()"
    )
    arguments: list[Any] = [
        sys.executable,
        "-c",
        code,
        "policy",
        "show",
        str(policy_file),
        "--plot",
        str(tmp_path / "p.png"),
    ]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "the extra plot: pip install 'adaptive-gamma[plot]'" in result.stderr
    assert "--html FILE draws the same" in result.stderr


def test_other_commands_do_not_wait_for_the_optimisers(policy_file: Path) -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom adaptive_gamma.cli.policy import command\n"
        f"assert CliRunner().invoke(command, ['check', {str(policy_file)!r}]).exit_code == 0\n"
        "sys.exit('scipy.optimize' in sys.modules or 'matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _build(*arguments: str | Path) -> Result:
    fixed = ("--step-time", "linear", "--drafter", "eagle3")
    return CliRunner().invoke(command, [str(one) for one in ("build", *arguments, *fixed)])


def test_a_policy_is_written_whole_or_not_at_all(sweep: Path, tmp_path: Path) -> None:
    path, link = tmp_path / "policy.yaml", tmp_path / "link.yaml"
    path.write_text("as it was")
    path.chmod(0o640)
    link.symlink_to(path)
    failed = _build("--from", sweep, "--max-gamma", "2", "--min-gamma", "5", "-o", link)
    assert "96 rows" in failed.stdout
    assert failed.stderr.rstrip().endswith("nothing was written")
    assert isinstance(failed.exception, PolicyError)
    assert path.read_text() == "as it was"
    assert _build("--from", sweep, "-o", link).exit_code == 0
    assert link.is_symlink()
    assert load_policy(path).max_gamma == 5
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.yaml", "policy.yaml"]
    unwritable = _build("--from", sweep, "-o", tmp_path / "no" / "policy.yaml")
    assert isinstance(unwritable.exception, ConfigurationError)
    assert "nothing was written" in unwritable.stderr


def test_a_sweep_without_a_plain_run_says_so_last(sweep: Path, tmp_path: Path) -> None:
    words = "no plain run was usable: every speed-up over plain is extrapolated"
    path = tmp_path / "rows.jsonl"
    rows = [one for one in measured() if one.gamma]
    path.write_text("".join(json.dumps(row_to_json(one)) + "\n" for one in rows))
    result = _build("--from", path, "--without-plain", "-o", tmp_path / "p.yaml")
    assert result.exit_code == 0, result.output
    assert words in result.output.splitlines()[-1]
    assert any("extrapolated" in line for line in load_policy(tmp_path / "p.yaml").document.assumed)
    needless = _build("--from", sweep, "--without-plain", "-o", tmp_path / "q.yaml").output
    assert words not in needless
    assert "--without-plain was not needed" in needless


def test_a_sweep_without_a_plain_run_is_refused(tmp_path: Path) -> None:
    path, out = tmp_path / "rows.jsonl", tmp_path / "p.yaml"
    rows = [one for one in measured() if one.gamma]
    path.write_text("".join(json.dumps(row_to_json(one)) + "\n" for one in rows))
    result = _build("--from", path, "-o", out)
    assert isinstance(result.exception, SweepError), "exit code 2"
    assert re.search(
        r"no plain run is usable: gamma 1, 3, 5 of an engine with a drafter was measured, and no engine started "
        r"without a drafter.* Measure one at loads 1 to \d+; .*--arm LABEL=plain.*--without-plain",
        str(result.exception),
    )
    assert not out.exists()


def test_all_findings(tmp_path: Path, sweep: Path) -> None:
    for index in range(5):
        write(tmp_path / f"x{index}.json", bench_serve(completed=0, model_id="Qwen3-8B"))
    result = _build("--from", sweep, "--from", tmp_path, "--all-findings", "-o", tmp_path / "p")
    assert sum("no request completed" in line for line in result.stdout.splitlines()) == 5
    assert "more like it" not in result.stdout


def test_a_picture_says_what_dots_and_dashes_mean(policy_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run("show", policy_file, "--class", "code", "--plot", tmp_path / "measured.svg")
    measured_words = (tmp_path / "measured.svg").read_text()
    assert "<!-- measured -->" in measured_words
    assert "<!-- extrapolated -->" in measured_words
    run("show", "h100-llama3-8b-eagle3", "--class", "code", "--plot", tmp_path / "made.svg")
    assert "<!-- extrapolated -->" not in (tmp_path / "made.svg").read_text()


def test_one_batch_is_said_in_the_singular() -> None:
    assert _batches([(8, 8)]) == "batch 8"
    assert _batches([(2, 3), (8, 9)]) == "batches 2 to 9"
