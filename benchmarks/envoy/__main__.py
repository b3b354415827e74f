"""``python -m benchmarks.envoy``: CPU time of files mode against bare Envoy, in one run, in turns."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from benchmarks.load_tools import LoadTools, MockEngine, build_load_tools
from benchmarks.processes import BenchmarkError, cpu_seconds, end_on_sigterm, raise_file_limit

from .contestants import Measured, bare, files_mode

_CHUNKS = 200
_STREAMS, _RATE = 48, 50
"""Streams at a time, and chunks a second of each: 12 streams a second are begun and end."""
_GOAL = 1.3
_CONTESTANTS: dict[str, Callable[[MockEngine, Path], AbstractContextManager[Measured]]] = {
    "bare Envoy": bare,
    "files mode": files_mode,
}


class Sample(NamedTuple):
    """CPU seconds per 1,000 requests."""

    streams: float
    short: float
    python_share: float
    """CPU time of the controller, as a share of a core; it does not grow with requests."""


def _cpu(measured: Measured) -> float:
    return cpu_seconds(measured.envoy)


def _measure(tools: LoadTools, measured: Measured, seconds: float) -> Sample:
    streams_cpu = streams = 0.0
    python = 0.0 if measured.controller is None else cpu_seconds(measured.controller)
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        before = _cpu(measured)
        options = {"streams": _STREAMS, "rate": _RATE, "chunks": _CHUNKS, "spread_ms": 500, "limit_ms": 120_000}
        with tools.load("streams", measured.port, **options) as load:
            result = load.result()
        if result["failed"] or result["chunks"] < _STREAMS * _CHUNKS:
            raise BenchmarkError(f"streams were not whole: {result}")
        streams_cpu += _cpu(measured) - before
        streams += _STREAMS
    python_s = 0.0 if measured.controller is None else cpu_seconds(measured.controller) - python
    share = python_s / (time.monotonic() - began)
    with tools.load("closed", measured.port, connections=16, seconds=60) as load:
        time.sleep(0.5)
        before, done = _cpu(measured), load.counters()["requests"]
        time.sleep(seconds / 3)
        short_cpu, counters = _cpu(measured) - before, load.counters()
    if counters["failed"]:
        raise BenchmarkError(f"{counters['failed']} short requests failed")
    return Sample(1e3 * streams_cpu / streams, 1e3 * short_cpu / (counters["requests"] - done), share)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.envoy", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=9.0, help="of streams, for each contestant and repetition")
    asked = parser.parse_args()
    end_on_sigterm()
    raise_file_limit()
    samples: dict[str, list[Sample]] = defaultdict(list)
    load = os.getloadavg()[0]
    try:
        with tempfile.TemporaryDirectory(prefix="adaptive-gamma-bench-") as folder:
            tools = build_load_tools(Path(folder))
            for _ in range(asked.repetitions):
                for label, start in _CONTESTANTS.items():
                    with tools.mock_engine() as engine, start(engine, tools.folder) as measured:
                        samples[label].append(_measure(tools, measured, asked.seconds))
    except BenchmarkError as error:
        print(f"not measured: {error}", file=sys.stderr)
        return 1
    print(
        f"load average {load:.1f} before and {os.getloadavg()[0]:.1f} after; {asked.repetitions} repetitions in turns"
    )
    print(f"{'CPU-s of Envoy per 1,000 requests':42}{'bare':>10}{'files mode':>12}{'ratio':>8}")
    for title, name, goal in (
        (f"streams of {_CHUNKS} chunks", "streams", _GOAL),
        ("short answers", "short", None),
    ):
        pairs = [
            (getattr(one, name), getattr(other, name))
            for one, other in zip(samples["bare Envoy"], samples["files mode"], strict=True)
        ]
        ratio = statistics.median(mine / yardstick for yardstick, mine in pairs)
        judged = "" if goal is None else f"  goal {goal:g}{'' if ratio <= goal else ' MISSED'}"
        columns = [statistics.median(column) for column in zip(*pairs, strict=True)]
        print(f"{title:42}{columns[0]:10.3f}{columns[1]:12.3f}{ratio:8.2f}{judged}")
    shares = [sample.python_share for sample in samples["files mode"]]
    print(f"Python per request: none; the controller's loop takes {100 * statistics.median(shares):.1f} % of a core")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
