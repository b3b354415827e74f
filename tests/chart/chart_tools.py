"""Where the tools are: helm 4 and 3, kubectl, promtool, hadolint.

Those that pip does not bring, ``make chart-tools`` puts into .tools/bin.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

__all__ = ["CHART", "ROOT", "run", "tool"]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "adaptive-gamma"


@cache
def found(name: str) -> str | None:
    """In CHART_TOOLS, .tools/bin, beside the interpreter, or on the PATH, in this order."""
    places = [ROOT / ".tools" / "bin", Path(sys.executable).parent]
    if given := os.environ.get("CHART_TOOLS"):
        places.insert(0, Path(given))
    for place in places:
        if os.access(place / name, os.X_OK):
            return str(place / name)
    return shutil.which(name)


def tool(name: str) -> str:
    """Its path. Where it is not to be had the test is skipped, and fails where everything has to be there."""
    path = found(name)
    if path is None:
        reason = f"{name} is not there: make chart-tools, or CHART_TOOLS=folder"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def run(name: str, *arguments: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """What it says, whatever its exit code. It finds no cluster and no configuration of the user."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HELM_", "KUBE"))}
    return subprocess.run(
        [tool(name), *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**environment, "KUBECONFIG": os.devnull},
    )
