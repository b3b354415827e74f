"""``adaptive-gamma policy export``."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from adaptive_gamma.cli.policy import command
from adaptive_gamma.errors import ConfigurationError, ExportRefused

NAME = "h100-llama3-8b-eagle3"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, ["export", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def as_json(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--json"))
    return found


def test_vllm_as_a_person_sees_it() -> None:
    result = CliRunner().invoke(command, ["export", NAME, "--for", "vllm", "--engine-version", "0.31"])
    lines = result.stdout.splitlines()
    table, config = json.loads(lines[2]), json.loads(lines[4])
    assert config["num_speculative_tokens_per_batch_size"] == table
    words = shlex.split(lines[6])
    assert json.loads(words[words.index("--speculative-config") + 1]) == config
    assert "ranges merged into" in lines[7]
    assert "loses most" in lines[8]
    assert "warning: Model Runner V2 ignores" in result.stderr
    assert "ignores" not in result.stdout


def test_options_reach_the_schedule() -> None:
    found = as_json(
        NAME, "--for", "vllm", "--engine-version", "0.33", "--class-mix", "code=3,prose=1", "--context", "9000",
        "--median-load", "90", "--steps", "3", "--max-gamma", "3", "--max-num-seqs", "120", "--capture-limit", "256",
        "--model", "M", "--draft-model", "D", "--tolerance", "0.01",
    )  # fmt: skip
    assert found["class_mix"] == {"structured": 0.75, "chat": 0.25}
    assert found["context_tokens"] == 8192
    assert len(found["steps"]) <= 3
    assert found["max_batch"] == 120
    assert max(step[2] for step in found["steps"]) <= 3
    assert all(last * (gamma + 1) <= 256 for _, last, gamma in found["steps"])
    assert found["config"]["model"] == "D"
    zero = as_json(NAME, "--for", "vllm", "--engine-version", "0.33", "--allow-zero", "--zero-margin", "0")
    assert zero["steps"][-1] == [257, 512, 0]
    one = as_json(NAME, "--for", "vllm", "--engine-version", "0.33", "--class-mix", "prose")
    assert one["class_mix"] == {"chat": 1.0}
    free = as_json(NAME, "--for", "vllm", "--engine-version", "0.33", "--no-capture-limit")
    assert free["capture_limit_tokens"] is None


def test_files_are_written_as_the_engine_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "adaptive.json"
    output = run(NAME, "--for", "sglang", "-o", str(path))
    assert f"--speculative-adaptive-config {path}" in output
    assert all(set(slot) == {"candidate_steps"} for slot in json.loads(path.read_text()).values())
    path = tmp_path / "trtllm.yaml"
    output = run(NAME, "--for", "tensorrt-llm", "-o", str(path))
    assert f"--extra_llm_api_options {path}" in output
    assert yaml.safe_load(path.read_text())["speculative_config"]["max_draft_len"] == 4
    with pytest.raises(ConfigurationError, match="cannot be written"):
        run(NAME, "--for", "sglang", "-o", str(tmp_path / "no" / "x.json"))


def test_by_class() -> None:
    found = as_json(NAME, "--for", "sglang", "--by-class")
    assert any(len(slot["candidate_steps"]) > 1 for slot in found["config"].values())


@pytest.mark.parametrize("mix", ["", "code=", "code=x", "code,prose", "=1", "code=1,code=2", "code=nan"])
def test_a_mix_that_is_none(mix: str) -> None:
    with pytest.raises(ConfigurationError, match="--class-mix"):
        run(NAME, "--for", "vllm", "--engine-version", "0.33", "--class-mix", mix)


def test_what_the_classes_of_a_mix_mean_is_said() -> None:
    notes = as_json(NAME, "--for", "vllm", "--engine-version", "0.33", "--class-mix", "code=1,chat=1")["notes"]
    said = [note["message"] for note in notes if note["code"] == "class_means"]
    assert said == ["class code is priced as structured, which it means in this policy"]


@pytest.mark.parametrize("mix", ["code=1e308,prose=1e308", "code=inf", "code=-1"])
def test_weights_whose_sum_is_no_number(mix: str) -> None:
    with pytest.raises(ConfigurationError, match="expected a weight of 0 to 1e"):
        run(NAME, "--for", "vllm", "--engine-version", "0.33", "--class-mix", mix)


def test_refused() -> None:
    with pytest.raises(ExportRefused, match=r"vllm 0\.25: .*deadlock"):
        run(NAME, "--for", "vllm", "--engine-version", "0.25", "--data-parallel", "2")


def test_usage() -> None:
    for arguments in (
        ["export", NAME],
        ["export", NAME, "--for", "sglang", "--no-capture-limit", "--capture-limit", "9"],
    ):
        assert CliRunner().invoke(command, arguments).exit_code == 2


def test_exit_code_of_a_refusal() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "adaptive_gamma", "policy", "export", NAME, "--for", "vllm", "--engine-version", "0.20"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(
        "adaptive-gamma: vllm 0.20: num_speculative_tokens_per_batch_size is not known before"
    )


def test_the_page_shows_what_the_command_prints() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "engine-schedules.md").read_text()
    command_line = next(line for line in page.splitlines() if "--for vllm" in line and "policy export" in line)
    printed = run(*shlex.split(command_line)[3:]).splitlines()[2]
    assert f"`{printed}`" in page
