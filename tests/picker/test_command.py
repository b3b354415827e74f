"""The command ``picker``: what it refuses before it begins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_discovery_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    config = tmp_path / "picker.yaml"
    config.write_text(
        "policy: h100-llama3-8b-eagle3\n"
        "discovery: {kind: dns, services: [{name: spec, host: engines.example, port: 8000}]}\n"
    )
    command = [sys.executable, "-m", "adaptive_gamma", "picker", "--config", str(config), "--tls", "off"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "discovery" in done.stderr
    assert "the replicas of the picker are configured" in done.stderr
