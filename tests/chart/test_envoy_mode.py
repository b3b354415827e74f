"""Mode envoy as a pod has it: the first run writes the files of the rendered configuration, and a real Envoy takes them
with the arguments that the chart starts it with."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chart.cases import BASE, CASES, ENGINES
from tests.chart.chart_tools import run
from tests.chart.rendering import merged, render

NAME = "inference/ag-adaptive-gamma"


@pytest.mark.parametrize("name", ["envoy", "envoy-configured"])
def test_envoy_takes_what_the_first_run_writes(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("adaptive_gamma.cli.envoy") is None:
        pytest.skip("there is no command envoy")
    # Names that no resolver knows are looked up by Envoy, not by the first run; here they are addresses.
    engines = {"config": {"replicas": [{"name": "a", "url": "http://127.0.0.1:9"}, *ENGINES["config"]["replicas"][1:]]}}
    # Envoy buffers less than the 2**40 bytes of the case.
    values = merged(CASES[name], BASE["envoy"], engines, {"config": {"limits": {"body_bytes": 2**30}}})
    manifests = render(values)
    config, files = tmp_path / "config.yaml", tmp_path / "envoy"
    config.write_text(manifests["ConfigMap", NAME]["data"]["config.yaml"])
    pod = manifests["Deployment", NAME]["spec"]["template"]["spec"]

    def placed(arguments: list[str]) -> list[str]:
        return [
            argument.replace("/etc/adaptive-gamma/config.yaml", str(config)).replace("/envoy", str(files), 1)
            if "/envoy" in argument or "config.yaml" in argument
            else argument
            for argument in arguments
        ]

    [first] = pod["initContainers"]
    done = subprocess.run(
        [sys.executable, "-m", "adaptive_gamma", *placed(first["args"])],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [envoy] = [each for each in pod["containers"] if each["name"] == "envoy"]
    done = run("envoy", *placed(envoy["args"]), "--mode", "validate")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OK" in done.stdout + done.stderr
