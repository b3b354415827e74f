"""The examples do what their page says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from adaptive_gamma.cli.policy import command as policy_command
from adaptive_gamma.config import load_settings
from adaptive_gamma.policy import find_policy

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def test_the_page_names_what_is_there() -> None:
    page = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.iterdir():
        assert path.name == "README.md" or f"`{path.name}" in page, path.name


def test_the_script_runs() -> None:
    run = subprocess.run([sys.executable, EXAMPLES / "library.py"], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    assert "code 6 (2.62x)      prose 4 (1.97x)" in run.stdout
    assert "h200-llama3-70b-fp8 for chat: [[1, 31, 3], [32, 170, 2], [171, 256, 1]]" in run.stdout


@pytest.mark.parametrize("path", ["compose/adaptive-gamma.yaml", "kustomize/overlay/adaptive-gamma.yaml"])
def test_serve_would_take_the_configurations(path: str) -> None:
    settings = load_settings(EXAMPLES / path, environment={})
    assert find_policy(settings.policy).is_file()
    assert settings.mode == "observe"


def test_compose_starts_every_replica_of_the_configuration() -> None:
    services = yaml.safe_load((EXAMPLES / "compose" / "compose.yaml").read_text())["services"]
    settings = load_settings(EXAMPLES / "compose" / "adaptive-gamma.yaml", environment={})
    assert {replica.url for replica in settings.replicas} == {f"http://{name}:8000" for name in ("spec", "plain")}
    assert set(services) == {"spec", "plain", "adaptive-gamma"}
    proxy = services["adaptive-gamma"]
    assert all(port.startswith("127.0.0.1:") for port in proxy["ports"])
    [mounted] = proxy["volumes"]
    assert f"--config={mounted.split(':')[1]}" in proxy["command"]
    assert (EXAMPLES / "compose" / mounted.split(":")[0]).is_file()


def test_the_policy_is_what_the_sweep_gives(tmp_path: Path) -> None:
    made = tmp_path / "policy.yaml"
    words = ["build", "--from", str(EXAMPLES / "sweep"), "--drafter", "eagle3", "--name", "simulated-h200"]
    run = CliRunner().invoke(policy_command, [*words, "-o", str(made)])
    assert run.exit_code == 0, run.output
    ours, kept = (yaml.safe_load(path.read_text()) for path in (made, EXAMPLES / "sweep-policy.yaml"))
    assert ours["inputs"]["classes"] == kept["inputs"]["classes"]
    for name, by_context in kept["table"]["classes"].items():
        assert ours["table"]["classes"][name].keys() == by_context.keys()
        for context, cell in by_context.items():
            assert ours["table"]["classes"][name][context]["best_gamma"] == cell["best_gamma"]
    assert CliRunner().invoke(policy_command, ["check", str(made)]).exit_code == 0
