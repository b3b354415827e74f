"""``adaptive-gamma config`` and ``completion``, and the schemas that ship."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import adaptive_gamma
from adaptive_gamma.cli.json_schemas import CONFIG, POLICY, schema_text
from adaptive_gamma.policy import shipped_policies

SCHEMAS = Path(adaptive_gamma.__file__).parent / "schemas"
CONFIGURATION = """\
policy: h200-llama3-70b-fp8
replicas:
  - {name: spec-0, url: "http://127.0.0.1:8001", engine: vllm}
  - {name: plain-0, url: "http://127.0.0.1:8002", engine: vllm, gamma: 0}
"""


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ADAPTIVE_GAMMA_")}
    return subprocess.run(
        [sys.executable, "-m", "adaptive_gamma", *arguments],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def written(folder: Path, text: str) -> str:
    path = folder / "adaptive-gamma.yaml"
    path.write_text(text)
    return str(path)


def test_a_good_configuration(tmp_path: Path) -> None:
    found = run("config", "check", written(tmp_path, CONFIGURATION))
    assert found.returncode == 0, found.stderr
    assert found.stdout == (
        "good: 2 replicas (1 speculative, 1 plain); policy h200-llama3-70b-fp8; mode act; listen 127.0.0.1:8080\n"
    )


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero")
def test_a_file_without_an_end_is_refused() -> None:
    found = run("config", "check", "/dev/zero")
    assert found.returncode == 2
    assert "/dev/zero: cannot be read: is larger than 16 MiB" in found.stderr


def test_variables_win_over_the_file(tmp_path: Path) -> None:
    found = run("config", "check", written(tmp_path, CONFIGURATION), ADAPTIVE_GAMMA_MODE="observe")
    assert "mode observe" in found.stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("policy:", "polcy:"), "polcy: no such key (did you mean 'policy'?)"),
        (("h200-llama3-70b-fp8", "h200-llama"), "policy: 'h200-llama'"),
        (("engine: vllm}", "engine: vlm}"), "(did you mean 'vllm'?)"),
        (("gamma: 0", "gamma: yes"), "replicas[1].gamma"),
    ],
)
def test_a_wrong_configuration_ends_with_2_and_the_key(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    found = run("config", "check", written(tmp_path, CONFIGURATION.replace(*change)))
    assert found.returncode == 2
    assert said in found.stderr
    assert found.stdout == ""


@pytest.mark.parametrize(("name", "of"), [("config", CONFIG), ("policy", POLICY)])
def test_the_schemas_that_ship_are_the_models_own(name: str, of: Any) -> None:
    """``make schemas`` writes them anew."""
    assert (SCHEMAS / f"{name}.schema.json").read_text() == schema_text(of)
    found = run("config", "schema", "--of", name)
    assert found.stdout == schema_text(of)
    jsonschema.Draft202012Validator.check_schema(json.loads(found.stdout))


def test_the_configuration_schema_takes_what_serve_takes_and_refuses_other_keys() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(schema_text(CONFIG)))
    good = yaml.safe_load(CONFIGURATION)
    assert list(validator.iter_errors(good)) == []
    assert list(validator.iter_errors({**good, "polcy": "x"}))
    assert list(validator.iter_errors({**good, "scrape": {"interval_s": -1}}))


@pytest.mark.parametrize("name", sorted(shipped_policies()))
def test_the_policy_schema_takes_the_policies_that_ship(name: str) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(schema_text(POLICY)))
    policy = json.loads(json.dumps(yaml.safe_load(shipped_policies()[name].read_text())))
    assert list(validator.iter_errors(policy)) == []
    assert list(validator.iter_errors({**policy, "inputs": {**policy["inputs"], "limit": {}}}))


def test_every_key_of_the_configuration_says_what_it_is() -> None:
    schema = json.loads(schema_text(CONFIG))
    assert schema["$defs"]["HealthSettings"]["properties"]["ramp_s"]["description"].startswith("How long a replica")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_a_shell(shell: str) -> None:
    found = run("completion", shell)
    assert found.returncode == 0
    assert f"_ADAPTIVE_GAMMA_COMPLETE={shell}_complete" in found.stdout


def test_a_shell_is_answered() -> None:
    found = run(_ADAPTIVE_GAMMA_COMPLETE="bash_complete", COMP_WORDS="adaptive-gamma po", COMP_CWORD="1")
    assert found.stdout == "plain,policy\n"
    found = run(_ADAPTIVE_GAMMA_COMPLETE="bash_complete", COMP_WORDS="adaptive-gamma serve --li", COMP_CWORD="2")
    assert found.stdout == "plain,--listen\n"
