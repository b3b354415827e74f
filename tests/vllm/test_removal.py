"""The real classes, taken hold of and let go: what vLLM has afterwards is what it had."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = """
import pathlib
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.spec_decode.metrics import SpecDecodingProm
from adaptive_gamma.vllm_plugin import hooks
before = dict(vars(Scheduler)), dict(vars(SpecDecodingProm))
assert hooks.install(pathlib.Path("/nowhere/gamma.json")) is None
assert Scheduler.schedule is not before[0]["schedule"]
hooks.uninstall()
assert (dict(vars(Scheduler)), dict(vars(SpecDecodingProm))) == before
print("as before")
"""
INERT = """
import sys, adaptive_gamma.vllm_plugin as plugin
plugin.register()
assert "vllm" not in sys.modules
print(sorted({name.split(".")[0] for name in sys.modules} & {"numpy", "fastapi", "pydantic", "httpx", "click", "yaml"}))
"""


def run(vllm: Path, script: str) -> str:
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(vllm / "bin" / "python"), "-c", script],
        env=variables,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_what_was_replaced_is_put_back(vllm: Path) -> None:
    assert run(vllm, SCRIPT) == "as before"


def test_switched_off_it_imports_nothing(vllm: Path) -> None:
    assert run(vllm, INERT) == "[]"
