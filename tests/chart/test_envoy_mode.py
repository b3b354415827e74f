"""Mode envoy as a pod has it: the first run writes the files of the rendered configuration, and a real Envoy takes them
with the arguments that the chart starts it with."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chart.cases import BASE, CASES, ENGINES
from tests.chart.chart_tools import run
from tests.chart.rendering import merged, render
from tests.discovery.fake_api import endpoint, fake_api, slice_of

NAME = "inference/ag-adaptive-gamma"


def _first_run(values: dict[str, Any], folder: Path) -> None:
    """Run the first container of the pod, then have Envoy look at its files, with the pod's arguments."""
    manifests = render(values)
    config, files = folder / "config.yaml", folder / "envoy"
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


@pytest.mark.parametrize("name", ["envoy", "envoy-configured"])
def test_envoy_takes_what_the_first_run_writes(name: str, tmp_path: Path) -> None:
    # Names that no resolver knows are looked up by Envoy, not by the first run; here they are addresses.
    engines = {"config": {"replicas": [{"name": "a", "url": "http://127.0.0.1:9"}, *ENGINES["config"]["replicas"][1:]]}}
    # Envoy buffers less than the 2**40 bytes of the case.
    _first_run(merged(CASES[name], BASE["envoy"], engines, {"config": {"limits": {"body_bytes": 2**30}}}), tmp_path)


async def test_envoy_takes_what_the_first_run_finds(tmp_path: Path) -> None:
    """The same with the Services of the values, in an API server that is not reached by a pod's means."""
    async with fake_api() as api:
        for service, address in (("vllm-spec", "127.0.0.2"), ("vllm-plain", "127.0.0.3")):
            api.put(slice_of(f"{service}-1", endpoint(address, f"{service}-pod"), service=service, port=9))
        reached = {"config": {"discovery": {"kubernetes": {"api_url": api.url}}}}
        await asyncio.to_thread(_first_run, merged(CASES["envoy-discovery"], reached), tmp_path)
    page = json.loads((tmp_path / "envoy/endpoints/any-chat.json").read_text())
    found = {
        each["metadata"]["filter_metadata"]["adaptive_gamma"]["replica"]: each["endpoint"]["address"]
        for tier in page["resources"][0]["endpoints"]
        for each in tier["lb_endpoints"]
    }
    assert found == {
        f"{name}-vllm-{name}-pod": {"socket_address": {"address": address, "port_value": 9}}
        for name, address in (("spec", "127.0.0.2"), ("plain", "127.0.0.3"))
    }
