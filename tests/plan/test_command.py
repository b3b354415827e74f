"""``adaptive-gamma plan`` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from adaptive_gamma.cli import dry_run, plan
from adaptive_gamma.errors import ConfigurationError
from tests.replay.worlds import azure_trace

POLICY = ("--policy", "h200-llama3-70b-fp8")
TRACES = ("--trace", "synthetic:conversation=chat", "--trace", "synthetic:code=code", "--limit", "300")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(plan.command, [*POLICY, *arguments], catch_exceptions=False)


def document(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke("--json", *arguments).stdout)
    return found


def dry_run_of(fleet: Path, *arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(
        dry_run.command, [*POLICY, "--fleet", str(fleet), *arguments, "--only", "adaptive", "--json"]
    )
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)["policies"]["adaptive"]
    return found


def test_the_dry_run_of_the_fleet_written_prints_the_same_figures(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    options = (*TRACES, "--scale", "6")
    planned = document(*options, "--gpus", "3", "--slo-tpot-ms", "80", "-o", str(fleet))
    assert planned["schema"] == "adaptive-gamma/plan/v1"
    assert yaml.safe_load(fleet.read_text()) == planned["fleet"]
    assert sum(entry["count"] for entry in planned["fleet"]["replicas"]) == planned["proposed"]["replicas"] == 3
    found = dry_run_of(fleet, *options, "--slo-tpot-ms", "80")
    for name in ("mean_latency_s", "p99_latency_s", "p99_ttft_s", "mean_tpot_ms", "tokens_per_second", "mean_gamma"):
        assert found[name] == planned["proposed"]["figures"][name]
    assert planned["dry_run"].endswith("--slo-tpot-ms 80 --only adaptive")
    assert f"--fleet {fleet}" in planned["dry_run"]


@pytest.mark.parametrize("name", ["conv", "code"])
def test_on_azure_traces_it_agrees_with_dry_runs_of_other_luck(name: str, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    trace = (
        "--trace",
        f"{azure_trace(name)}={'chat' if name == 'conv' else 'structured'}",
        "--limit",
        "1000",
    )
    planned = document(*trace, "--gpus", "2", "--most-fleets", "10", "-o", str(fleet))["proposed"]["figures"]
    for seed in ("0", "7"):
        found = dry_run_of(fleet, *trace, "--seed", seed)
        off = {
            figure: found[figure] / planned[figure] - 1
            for figure in ("mean_latency_s", "mean_tpot_ms", "tokens_per_second")
        }
        print(f"{name}, seed {seed}: " + ", ".join(f"{figure} {value:+.2%}" for figure, value in off.items()))
        assert all(abs(value) <= 0.02 for value in off.values())


def test_the_table_names_the_fleet_its_verdicts_and_the_dry_run() -> None:
    result = invoke(*TRACES, "--gpus", "4", "--gpus-per-replica", "2")
    assert result.exit_code == 0
    assert "Proposed for 2 replicas: " in result.stdout
    assert "- Against 2 plain replicas: " in result.stdout
    assert "adaptive-gamma dry-run --policy h200-llama3-70b-fp8 --fleet FLEET_FILE" in result.stdout


def test_limits_that_cannot_be_kept_end_with_1() -> None:
    result = invoke(*TRACES, "--gpus", "1", "--slo-tpot-ms", "0.001")
    assert result.exit_code == 1
    assert "No fleet of 1 tried keeps within the limits" in result.stdout


def test_a_schedule_comes_with_the_engines_command() -> None:
    found = document(*TRACES, "--scale", "20", "--gpus", "1", "--for", "vllm", "--engine-version", "0.33")
    schedules = [entry for entry in found["fleet"]["replicas"] if isinstance(entry["gamma"], list)]
    assert set(found["start_up"]) == {entry["name"] for entry in schedules}
    for entry in schedules:
        made = found["start_up"][entry["name"]]
        assert made["table"] == entry["gamma"]
        assert made["command"].startswith("vllm serve MODEL")


def test_a_trace_without_output_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,10,0\n1,0,0\n")
    with pytest.raises(ConfigurationError, match="no request asks for an output token"):
        invoke("--trace", str(trace), "--gpus", "2")


def test_too_few_gpus_for_a_replica_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"1 GPUs of 2 a replica make 0 replicas"):
        invoke(*TRACES, "--gpus", "1", "--gpus-per-replica", "2")


@pytest.mark.parametrize("option", ["--slo-tpot-ms", "--slo-ttft-ms", "--slo-percentile", "--scale"])
@pytest.mark.parametrize("value", ["nan", "0", "-1", "inf", "1e308"])
def test_numbers_that_are_none_are_refused(option: str, value: str) -> None:
    result = invoke(*TRACES, "--gpus", "1", option, value)
    assert result.exit_code == 2
    assert option in result.stderr
