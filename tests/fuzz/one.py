"""One target by one engine for so long, in little memory: ``python -m tests.fuzz.one TARGET ENGINE SECONDS FOLDER``."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fuzz.target import Target

MOST_BYTES = 3 << 30
"""Of address space. The interpreter with numpy and what atheris adds takes 1.5 GiB; an example may add what is left."""
MOST_GROWTH = 300 << 20
"""Bytes by which the process may grow over a run, beyond what it held after the first examples."""
BATCH = 1000
HANGS_S = 300.0
"""Beyond its time a process is ended, and says where it was."""


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _check(target: Target, example: Any, seconds: float) -> None:
    """Hold the target to one example. One that takes too long ends the run: making it small would take for ever."""
    from tests.fuzz.target import TooSlow, bounded

    try:
        with bounded(seconds):
            target.check(example)
    except TooSlow as error:
        traceback.print_exc()
        shown = repr(example)
        print(f"{error}, of {len(shown)} letters: {shown[:3000]}", file=sys.stderr, flush=True)
        os._exit(1)


def _hypothesis(name: str, seconds: float, folder: Path) -> int:
    from dataclasses import replace

    from hypothesis.database import DirectoryBasedExampleDatabase

    from tests.fuzz.target import MOST_CPU_S
    from tests.fuzz.targets import ALL

    target = ALL[name]
    database = DirectoryBasedExampleDatabase(folder / "hypothesis" / name)
    examples, end = 0, time.monotonic() + seconds
    held: list[int] = []

    def check(example: Any) -> None:
        nonlocal examples
        if time.monotonic() < end:
            examples += 1
            _check(target, example, MOST_CPU_S)

    counted = replace(target, check=check)
    while time.monotonic() < end:
        counted.property(BATCH, database)()
        held.append(_resident())
    assert held[-1] - held[0] < MOST_GROWTH, f"grew from {held[0]} to {held[-1]} bytes over {examples} examples"
    print(f"fuzz: {examples} examples, {held[-1] >> 20} MiB at most")
    return 0


def _atheris(name: str, seconds: float, folder: Path) -> int:
    import atheris

    atheris.enabled_hooks.add("str")
    with atheris.instrument_imports(include=["adaptive_gamma"], enable_loader_override=False):
        from tests.fuzz.target import MOST_CPU_S
        from tests.fuzz.targets import ALL
    from dataclasses import replace

    from hypothesis.database import DirectoryBasedExampleDatabase

    target = ALL[name]

    def check(example: Any) -> None:
        _check(target, example, 2 * MOST_CPU_S)  # instrumented code is slower

    database = DirectoryBasedExampleDatabase(folder / "hypothesis" / name)
    one_input = replace(target, check=check).property(1, database).hypothesis.fuzz_one_input  # type: ignore[attr-defined]  # hypothesis puts it there
    corpus = folder / "atheris" / name
    corpus.mkdir(parents=True, exist_ok=True)
    flags = [
        f"-max_total_time={int(seconds)}",
        "-max_len=16384",
        "-rss_limit_mb=2500",
        "-len_control=0",
        "-print_final_stats=0",
        f"-artifact_prefix={corpus}.",
        "-use_value_profile=1",
    ]

    def feed(data: bytes) -> None:
        one_input(data)

    atheris.Setup([sys.argv[0], *flags, str(corpus)], feed)
    atheris.Fuzz()
    return 0


def main() -> int:
    name, engine, seconds, folder = sys.argv[1:5]
    logging.disable(logging.CRITICAL)
    faulthandler.dump_traceback_later(float(seconds) + HANGS_S, exit=True)
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    run = _atheris if engine == "atheris" else _hypothesis
    return run(name, float(seconds), Path(folder))


if __name__ == "__main__":
    sys.exit(main())
