"""Time until the command says something and the proxy serves, as multiples of an interpreter that does nothing."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from .measure import Figure
from .processes import BenchmarkError, free_port, running, until

__all__ = ["start_figures"]

_REPEATS = 7
_HELP_GOAL_MS = 300.0
_READY_GOAL_MS = 1500.0
_ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": ""}
"""The repeat that does not count leaves compiled modules, as pip does when it installs them."""


def start_figures() -> list[Figure]:
    """Wall milliseconds, with files in the page cache and modules compiled, as pip leaves them; ratios to ``python -c
    pass`` in turns with them.

    Raises:
        BenchmarkError: a command failed, or the proxy was not ready in half a minute.
    """
    package = [sys.executable, "-m", "adaptive_gamma"]
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="adaptive-gamma-start-") as name:
        folder = Path(name)
        config = folder / "adaptive-gamma.yaml"
        admin = free_port()
        config.write_text(
            f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:{admin}\npolicy: h200-llama3-70b-fp8\n"
            f"replicas: [{{name: spec, url: 'http://127.0.0.1:{port}', engine: vllm, gamma: 5}}]\n"
        )
        engine = [*package, "simulate-engine", "--port", str(port), "--gamma", "5"]
        log = folder / "engine.log"
        with running(engine, log=log) as process:
            until(lambda: _says_yes(port, "/health"), "the simulated engine", process, log)
            return _measured(package, config, admin)


def _measured(package: list[str], config: Path, admin: int) -> list[Figure]:
    calls: dict[str, Callable[[], float]] = {
        "python -c pass": lambda: _run([sys.executable, "-c", "pass"]),
        "adaptive-gamma --help": lambda: _run([*package, "--help"]),
        "adaptive-gamma serve --help": lambda: _run([*package, "serve", "--help"]),
        "serve: ready": lambda: _ready(package, config, admin),
    }
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(_REPEATS + 1):
        for name, call in calls.items():
            taken = call()
            if repeat:
                samples[name].append(1e3 * taken)
    nothing = statistics.median(samples["python -c pass"])
    goals = {"adaptive-gamma --help": _HELP_GOAL_MS, "serve: ready": _READY_GOAL_MS}
    return [
        Figure(
            name,
            statistics.median(each),
            "ms",
            goal=goals.get(name),
            ratio=statistics.median(each) / nothing,
            note="wall time; ratio to python -c pass",
            least=min(each),
        )
        for name, each in samples.items()
    ]


def _run(command: list[str]) -> float:
    began = time.perf_counter()
    environment = {**os.environ, **_ENVIRONMENT}
    ended = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, env=environment
    )
    if ended.returncode:
        raise BenchmarkError(f"{' '.join(command[1:])} ended with {ended.returncode}: {ended.stderr.strip()}")
    return time.perf_counter() - began


def _ready(package: list[str], config: Path, admin: int) -> float:
    """From the start of the process until /readyz says yes."""
    log = config.with_name("serve.log")
    began = time.perf_counter()
    with running([*package, "serve", "--config", config], log=log, environment=_ENVIRONMENT) as process:
        until(lambda: _says_yes(admin, "/readyz"), "serve ready", process, log)
        return time.perf_counter() - began


def _says_yes(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
