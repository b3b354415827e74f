"""What a command writes is never what it reads."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from adaptive_gamma.bench import row_to_json
from adaptive_gamma.cli import root_command
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.policy import shipped_policies
from tests.bench.synthetic import measured

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n0,10,20\n1,10,20\n"
NAMES = {
    "trace.csv": TRACE,
    "fleet.yaml": "replicas: [{name: a, gamma: 2}, {name: b, gamma: 0}]\n",
    "config.json": "{}",
    "prompts/rows.jsonl": json.dumps({"prompt": "Say it."}) + "\n",
    "envoy/clusters.json": json.dumps(
        {"policy": "demo-llamacpp-cpu", "replicas": [{"name": "a", "url": "http://127.0.0.1:9", "gamma": 0}]}
    ),
}
DRY = ["dry-run", "--policy", "p.yaml", "--trace", "trace.csv", "--fleet", "fleet.yaml", "--html"]
PLAN = ["plan", "--policy", "p.yaml", "--gpus", "1", "--trace", "trace.csv=chat", "--output"]
BUILD = ["policy", "build", "--drafter", "eagle3"]
COMMANDS: dict[str, tuple[list[str], str, str]] = {
    "dry-run over its trace": ([*DRY, "trace.csv"], "trace.csv", "--html"),
    "dry-run over its policy": ([*DRY, "p.yaml"], "p.yaml", "--html"),
    "dry-run over its fleet": ([*DRY, "fleet.yaml"], "fleet.yaml", "--html"),
    "plan over its policy": ([*PLAN, "p.yaml"], "p.yaml", "--output"),
    "plan over its trace": ([*PLAN, "trace.csv"], "trace.csv", "--output"),
    "policy show": (["policy", "show", "p.yaml", "--html", "p.yaml"], "p.yaml", "--html"),
    "policy show in another way": (["policy", "show", "p.svg", "--plot", "./p.svg"], "p.svg", "--plot"),
    "policy export": (
        ["policy", "export", "p.yaml", "--for", "vllm", "--engine-version", "0.33", "-o", "p.yaml"],
        "p.yaml",
        "--output",
    ),
    "policy build over a sweep": ([*BUILD, "--from", "sweep.jsonl", "-o", "sweep.jsonl"], "sweep.jsonl", "--output"),
    "policy build over a file of a folder": (
        [*BUILD, "--from", "runs", "-o", "runs/one.jsonl"],
        "runs/one.jsonl",
        "--output",
    ),
    "policy build over a model": (
        [*BUILD, "--gpu", "H100", "--model", "config.json", "-o", "config.json"],
        "config.json",
        "--output",
    ),
    "sweep over its prompts": (
        ["sweep", "--url", "http://127.0.0.1:9", "--dataset", "prompts/rows.jsonl", "-o", "prompts"],
        "prompts/rows.jsonl",
        "--output",
    ),
    "envoy over its configuration": (
        ["envoy", "--config", "envoy/clusters.json", "--out", "envoy", "--once"],
        "envoy/clusters.json",
        "--out",
    ),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in NAMES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    rows = "".join(json.dumps(row_to_json(one)) + "\n" for one in measured(loads=(1, 4), runs=1))
    (tmp_path / "runs").mkdir()
    for name in ("sweep.jsonl", "runs/one.jsonl"):
        (tmp_path / name).write_text(rows)
    for name in ("p.yaml", "p.svg"):
        shutil.copy(shipped_policies()["h200-llama3-70b-fp8"], tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_is_read_is_not_written(place: Path, name: str) -> None:
    arguments, read, flag = COMMANDS[name]
    before = (place / read).read_bytes()
    result = CliRunner().invoke(root_command, arguments)
    assert isinstance(result.exception, ConfigurationError), result.output
    assert flag in str(result.exception)
    assert "is what this command reads: it would be overwritten" in str(result.exception)
    assert (place / read).read_bytes() == before


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_nor_by_another_name(place: Path, link: Callable[[str, str], None]) -> None:
    link("trace.csv", "report.html")
    result = CliRunner().invoke(root_command, [*DRY, "report.html"])
    assert isinstance(result.exception, ConfigurationError)
    assert (place / "trace.csv").read_text() == TRACE


def test_a_policy_is_rebuilt_in_its_place(place: Path) -> None:
    result = CliRunner().invoke(root_command, ["policy", "build", "--inputs", "p.yaml", "-o", "p.yaml"])
    assert result.exit_code == 0, result.output


def test_other_files_are_written_anew(place: Path) -> None:
    (place / "old.html").write_text("old")
    result = CliRunner().invoke(root_command, ["policy", "show", "p.yaml", "--html", "old.html"])
    assert result.exit_code == 0, result.output
    assert (place / "old.html").read_text() != "old"
