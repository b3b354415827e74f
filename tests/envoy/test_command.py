"""``adaptive-gamma envoy`` as a user runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from adaptive_gamma.cli.envoy import command
from adaptive_gamma.errors import ConfigurationError
from tests.support.envoy import needs_envoy

BASE = {
    "listen": "127.0.0.1:28080",
    "admin": "127.0.0.1:28090",
    "policy": "demo-llamacpp-cpu",
    "scrape": {"timeout_s": 0.2},
    "health": {"timeout_s": 0.2},
    "replicas": [{"name": "a", "url": "http://127.0.0.1:1", "gamma": 0}],
}


def run(folder: Path, *options: str, envoy: str | None = None, **more: Any) -> subprocess.CompletedProcess[str]:
    config = folder / "c.yaml"
    config.write_text(yaml.safe_dump({**BASE, **more}))
    environment = {name: value for name, value in os.environ.items() if name not in ("ENVOY", "PATH")}
    environment["PATH"] = "/nowhere"
    if envoy is not None:
        environment["ENVOY"] = envoy
    line = [sys.executable, "-m", "adaptive_gamma", "envoy", "--config", str(config), "--out", str(folder / "out")]
    return subprocess.run([*line, *options], capture_output=True, text=True, timeout=100, check=False, env=environment)


def test_once_writes_all_files_and_ends(tmp_path: Path) -> None:
    found = run(tmp_path, "--once", "--validate")
    assert found.returncode == 0, found.stderr
    assert "not validated" in found.stderr
    files = {str(file.relative_to(tmp_path / "out")) for file in (tmp_path / "out").rglob("*.json")}
    assert {"envoy.json", "listeners.json", "routes.json", "clusters.json"} < files
    names = {cluster["name"] for cluster in json.loads((tmp_path / "out/clusters.json").read_text())["resources"]}
    assert files >= {f"endpoints/{name}.json" for name in names}


def test_validate_by_envoy(tmp_path: Path) -> None:
    found = run(tmp_path, "--once", "--validate", envoy=needs_envoy())
    assert found.returncode == 0, found.stderr
    assert "Envoy finds no fault" in found.stderr


def test_an_envoy_that_cannot_be_run(tmp_path: Path) -> None:
    found = run(tmp_path, "--once", "--validate", envoy="/no/such/envoy")
    assert (found.returncode, "Traceback" in found.stderr) == (2, False)
    assert "could not be run" in found.stderr


@pytest.mark.parametrize(
    ("options", "more", "said"),
    [
        ((), {"listen": "127.0.0.1:0"}, "listen: Envoy's port must be a number"),
        ((), {"limits": {"body_bytes": 2**33}}, "limits.body_bytes: Envoy buffers no more"),
        (("--envoy-admin", "nonsense"), {}, "--envoy-admin: 'nonsense': expected host:port"),
        (("--envoy-admin", "127.0.0.1:28080"), {}, "is the configured listen or admin address"),
        ((), {"policy": "no-such-policy"}, "no-such-policy"),
        ((), {"nonsense": 1}, "nonsense"),
    ],
)
def test_what_is_refused(tmp_path: Path, options: tuple[str, ...], more: dict[str, Any], said: str) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(yaml.safe_dump({**BASE, **more}))
    arguments = ["--config", str(config), "--out", str(tmp_path / "out"), "--once", *options]
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        command.main(arguments, standalone_mode=False)
