"""``python -m benchmarks.picker``: what a pick costs in Python, with Envoy alone as the yardstick of the same run."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.envoy_gateway import gateway_config

from .load_tools import LoadTools, build_load_tools
from .processes import BenchmarkError, cpu_seconds, end_on_sigterm, free_port, resident_mb, running, until

_POLICY = "h200-llama3-70b-fp8"
_BUFFER = "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer"
_MOST = {"max_request_bytes": 1_000_000}
_GOAL_MS = 0.7
_CONNECTIONS = 16
_STREAMS, _CHUNK_RATE = 40, 40
ALONE = "Envoy alone"
PICKERS = ("grpc.aio alone", "picker")
BODIES = ("BUFFERED", "FULL_DUPLEX_STREAMED")


class Sample(NamedTuple):
    """CPU ms of a short request and of a stream, by process; requests a second; the picker's memory in MB."""

    envoy: float
    python: float
    rate: float
    stream_envoy: float
    stream_python: float
    memory: float


def _envoy() -> str:
    found = os.environ.get("ENVOY") or shutil.which("envoy")
    if found is None:
        raise BenchmarkError("there is no envoy on the path, nor a variable ENVOY that names one")
    return found


@contextmanager
def _picker(folder: Path, what: str, engines: tuple[int, ...]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """What picks: ours, or the server under it and no more."""
    config, log = folder / "picker.yaml", folder / "picker.log"
    replicas = [
        {"name": name, "url": f"http://127.0.0.1:{port}", "gamma": gamma}
        for name, port, gamma in zip(("spec", "plain"), engines, (4, 0), strict=True)
    ]
    config.write_text(json.dumps({"policy": _POLICY, "admin": "127.0.0.1:0", "replicas": replicas}))
    if what == PICKERS[0]:
        command = [sys.executable, "-m", "benchmarks.bare_picker", f"127.0.0.1:{engines[0]}"]
    else:
        command = [sys.executable, "-m", "adaptive_gamma", "picker", "--config", str(config)]
        command += ["--listen", "127.0.0.1:0", "--tls", "off", "--linger", "0"]
    with running(command, log=log) as process:
        until(lambda: "picks on port" in log.read_text(), "the picker", process, log)
        found = re.search(r"picks on port (\d+)", log.read_text())
        assert found is not None
        yield process, int(found[1])


@contextmanager
def _gateway(
    folder: Path, mode: str | None, engines: tuple[int, ...], picker: int
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Envoy that asks the picker, bodies sent in a mode, or that asks nobody."""
    port, admin = free_port(), free_port()
    config, log = folder / "envoy.json", folder / "envoy.log"
    places = [f"127.0.0.1:{each}" for each in engines]
    options: dict[str, Any] = {"plain": True} if mode is None else {"mode": mode}
    bootstrap = gateway_config(port, admin, places, [picker], **options)
    if mode == BODIES[1]:
        # This mode takes content-length away, and the mock engine reads no chunked bodies: this filter puts it back.
        listener = bootstrap["static_resources"]["listeners"][0]
        filters = listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
        filters.insert(-1, {"name": "envoy.filters.http.buffer", "typed_config": {"@type": _BUFFER, **_MOST}})
    config.write_text(json.dumps(bootstrap))
    command = [_envoy(), "-c", str(config), "--concurrency", "1", "-l", "info", "--disable-hot-restart"]
    with running(command, log=log) as process:
        until(lambda: "starting main dispatch loop" in log.read_text(), "Envoy", process, log)
        yield process, port


def _requests(tools: LoadTools, port: int, pids: list[int], seconds: float) -> list[float]:
    """CPU ms per short request, by process, and requests a second."""
    with tools.load("closed", port, connections=_CONNECTIONS, seconds=60) as load:
        time.sleep(0.7)
        before, done, began = [cpu_seconds(pid) for pid in pids], load.counters(), time.monotonic()
        time.sleep(seconds)
        after, counters, took = [cpu_seconds(pid) for pid in pids], load.counters(), time.monotonic() - began
    answered = counters["requests"] - done["requests"]
    if not answered or counters["failed"]:
        raise BenchmarkError(f"port {port}: {answered} requests answered, {counters['failed']} failed")
    return [*(1e3 * (b - a) / answered for a, b in zip(before, after, strict=True)), answered / took]


def _streams(tools: LoadTools, port: int, pids: list[int]) -> list[float]:
    """CPU ms per stream of 200 chunks, by process."""
    before = [cpu_seconds(pid) for pid in pids]
    options = {"streams": _STREAMS, "rate": _CHUNK_RATE, "chunks": 200, "spread_ms": 500, "limit_ms": 20_000}
    with tools.load("streams", port, **options) as load:
        result = load.result()
    if result["complete"] != _STREAMS:
        raise BenchmarkError(f"{result['complete']:g} of {_STREAMS} streams were whole")
    after = [cpu_seconds(pid) for pid in pids]
    return [1e3 * (b - a) / _STREAMS for a, b in zip(before, after, strict=True)]


def _measure(tools: LoadTools, folder: Path, what: str, mode: str | None, seconds: float) -> Sample:
    with (
        tools.mock_engine() as engine,
        _picker(folder, what, engine.ports) as (picker, port),
        _gateway(folder, mode, engine.ports, port) as (envoy, entry),
    ):
        pids = [envoy.pid, picker.pid]
        time.sleep(1.0)  # the picker has looked at the engines
        on_envoy, on_python, rate = _requests(tools, entry, pids, seconds)
        stream_envoy, stream_python = _streams(tools, entry, pids)
        return Sample(on_envoy, on_python, rate, stream_envoy, stream_python, resident_mb(picker.pid))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.picker", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="each window of short requests")
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    end_on_sigterm()
    cases: list[tuple[str, str, str | None]] = [(ALONE, PICKERS[1], None)]
    cases += [(f"{what}, {mode}", what, mode) for mode in BODIES for what in PICKERS]
    found: dict[str, list[Sample]] = {label: [] for label, _, _ in cases}
    load_before = os.getloadavg()[0]
    try:
        with tempfile.TemporaryDirectory(prefix="adaptive-gamma-bench-") as scratch:
            tools = build_load_tools(Path(scratch))
            for _ in range(asked.repeat):
                for label, what, mode in cases:
                    found[label].append(_measure(tools, Path(scratch), what, mode, asked.seconds))
    except BenchmarkError as error:
        print(f"not measured: {error}", file=sys.stderr)
        return 1
    print(f"CPU ms, median of {asked.repeat}; load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after")
    print(f"{'':38}{'short request':>32}{'stream of 200 chunks':>26}")
    print(f"{'':38}{'Envoy':>10}{'Python':>10}{'req/s':>12}{'Envoy':>14}{'Python':>12}")
    median = {label: Sample(*map(statistics.median, zip(*each, strict=True))) for label, each in found.items()}
    for label, one in median.items():
        print(
            f"{label:38}{one.envoy:>10.3f}{one.python:>10.3f}{one.rate:>12.0f}"
            f"{one.stream_envoy:>14.2f}{one.stream_python:>12.3f}"
        )
    for mode in BODIES:
        bare, ours = (median[f"{what}, {mode}"].python for what in PICKERS)
        judged = "" if ours <= _GOAL_MS else ": MISSED" + (", by grpc.aio alone too" if bare > _GOAL_MS else "")
        print(
            f"{mode}: Python per pick {ours:.3f} ms, of which grpc.aio {bare:.3f} and ours {ours - bare:.3f}; "
            f"goal at most {_GOAL_MS} ms{judged}"
        )
    print(f"picker's memory: {max(one.memory for label, one in median.items() if PICKERS[1] in label):.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
