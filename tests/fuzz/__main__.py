"""Fuzz targets one after another, each in a process of its own: ``python -m tests.fuzz --seconds 600``.

A target's time is split between two ways of making examples: hypothesis, which knows odd values and makes
what fails small, and, where it is installed, atheris, which follows the coverage of the code under test. Both draw from
the same strategies and keep what they found in ``.hypothesis/fuzz``, so that a find is tried first the next time.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.targets import ALL

__all__ = ["main"]

ADMIN = "admin-api"
"""The one target that is a running process."""
KEPT = Path(".hypothesis/fuzz")
MANY = 25
"""Lines shown of a find and, as many again, of the example; all of it is tried again the next time."""
WIDEST = 400
_SAID = re.compile(r"^(?:fuzz: |(?=Done ))(.+)$", re.M)
"""How an engine tells how many examples it has tried."""
GRACE_S = 600.0
"""A process that says nothing for so long after its time hangs."""


@dataclass(frozen=True)
class Run:
    """How a target fared by one engine."""

    target: str
    engine: str
    seconds: float
    problem: str | None
    said: str


def _telling(output: str) -> list[str]:
    """The lines before the example that fails, which say what was wrong, and those at its beginning."""
    lines = [line[:WIDEST] for line in output.splitlines() if not line.startswith("INFO: ")]
    at = next((n for n, line in enumerate(lines) if "Failing test case" in line), len(lines))
    return [*lines[max(at - MANY, 0) : at], *lines[at : at + MANY]]


def _run(target: str, engine: str, seconds: float) -> Run:
    module = "tests.fuzz.admin" if target == ADMIN else "tests.fuzz.one"
    command = [sys.executable, "-m", module, target, engine, str(seconds), str(KEPT)]
    began = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds + GRACE_S)
    except subprocess.TimeoutExpired as error:
        output = error.stderr.decode("utf-8", "replace") if isinstance(error.stderr, bytes) else error.stderr or ""
        return Run(target, engine, time.monotonic() - began, f"hangs\n{output[-3000:]}", "")
    problem = None
    if done.returncode:
        problem = "\n".join([f"exit code {done.returncode}", *_telling(done.stdout + done.stderr)])
    said = _SAID.findall(done.stdout + done.stderr)
    return Run(target, engine, time.monotonic() - began, problem, said[-1] if said else "-")


def _runs(target: str, engines: Sequence[str], seconds: float) -> list[Run]:
    if target == ADMIN:
        return [_run(target, "schemathesis", seconds)]
    return [_run(target, engine, seconds / len(engines)) for engine in engines]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make fuzz FUZZ=", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="for each target (default: 600)")
    parser.add_argument("--only", help="names of targets, separated by commas")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time (default: 1)")
    parser.add_argument("--engine", choices=["both", "hypothesis", "atheris"], default="both")
    parser.add_argument("--list", action="store_true", help="name the targets")
    given = parser.parse_args(arguments)
    known = [*ALL, ADMIN]
    if given.list:
        print("\n".join(known))
        return 0
    names = given.only.split(",") if given.only else known
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(known)}")
    engines = ["hypothesis", "atheris"] if given.engine == "both" else [given.engine]
    if "atheris" in engines and importlib.util.find_spec("atheris") is None:
        if given.engine == "atheris":
            parser.error("atheris is not installed: pip install atheris (wheels for Linux on x86-64)")
        print("atheris is not installed; hypothesis has all of the time")
        engines = ["hypothesis"]
    KEPT.mkdir(parents=True, exist_ok=True)
    found = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for runs in pool.map(lambda name: _runs(name, engines, given.seconds), names):
            for run in runs:
                print(f"{run.target:18} {run.engine:11} {run.seconds:6.0f} s  {run.problem or run.said}", flush=True)
                if run.problem is not None:
                    found.append(run.target)
    print(f"{len(names)} targets; finds: {', '.join(sorted(set(found))) or 'none'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
