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

from tests.support.envoy_gateway import gateway_config

from .load_tools import LoadTools, build_load_tools
from .processes import BenchmarkError, cpu_seconds, end_on_sigterm, free_port, resident_mb, running, until

_POLICY = "h200-llama3-70b-fp8"
_BUFFER = "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer"
_MOST = {"max_request_bytes": 1_000_000}
_GOAL_MS = 0.7
_CONNECTIONS = 16
_STREAMS, _CHUNK_RATE = 40, 40
MODES = ("envoy alone", "FULL_DUPLEX_STREAMED", "BUFFERED")


def _envoy() -> str:
    found = os.environ.get("ENVOY") or shutil.which("envoy")
    if found is None:
        raise BenchmarkError("there is no envoy on the path, nor a variable ENVOY that names one")
    return found


@contextmanager
def _picker(folder: Path, engines: tuple[int, ...]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    config, log = folder / "picker.yaml", folder / "picker.log"
    replicas = [
        {"name": name, "url": f"http://127.0.0.1:{port}", "gamma": gamma}
        for name, port, gamma in zip(("spec", "plain"), engines, (4, 0), strict=True)
    ]
    config.write_text(json.dumps({"policy": _POLICY, "admin": "127.0.0.1:0", "replicas": replicas}))
    command = [sys.executable, "-m", "adaptive_gamma", "picker", "--config", str(config), "--listen", "127.0.0.1:0"]
    with running([*command, "--tls", "off", "--linger", "0"], log=log) as process:
        until(lambda: "picks on port" in log.read_text(), "the picker", process, log)
        found = re.search(r"picks on port (\d+)", log.read_text())
        assert found is not None
        yield process, int(found[1])


@contextmanager
def _gateway(
    folder: Path, mode: str, engines: tuple[int, ...], picker: int
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    port, admin, plain = free_port(), free_port(), mode == MODES[0]
    config, log = folder / "envoy.json", folder / "envoy.log"
    places = [f"127.0.0.1:{each}" for each in engines]
    options = {"plain": True} if plain else {"mode": mode}
    bootstrap = gateway_config(port, admin, places, [picker], **options)
    if mode == "FULL_DUPLEX_STREAMED":
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.picker", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="each window of short requests")
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    end_on_sigterm()
    found: dict[str, list[tuple[list[float], list[float]]]] = {mode: [] for mode in MODES}
    memory = 0.0
    load_before = os.getloadavg()[0]
    try:
        with tempfile.TemporaryDirectory(prefix="adaptive-gamma-bench-") as scratch:
            folder = Path(scratch)
            tools = build_load_tools(folder)
            for _ in range(asked.repeat):
                for mode in MODES:
                    with (
                        tools.mock_engine() as engine,
                        _picker(folder, engine.ports) as (picker, port),
                        _gateway(folder, mode, engine.ports, port) as (envoy, entry),
                    ):
                        pids = [envoy.pid, picker.pid]
                        time.sleep(1.0)  # the picker has looked at the engines
                        short = _requests(tools, entry, pids, asked.seconds)
                        found[mode].append((short, _streams(tools, entry, pids)))
                        memory = max(memory, resident_mb(picker.pid))
    except BenchmarkError as error:
        print(f"not measured: {error}", file=sys.stderr)
        return 1
    print(f"CPU ms, median of {asked.repeat}; load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after")
    print(f"{'':22}{'short request':>32}{'stream of 200 chunks':>26}")
    print(f"{'':22}{'Envoy':>10}{'Python':>10}{'req/s':>12}{'Envoy':>14}{'Python':>12}")
    for mode, samples in found.items():
        short = [statistics.median(each[0][i] for each in samples) for i in range(3)]
        streams = [statistics.median(each[1][i] for each in samples) for i in range(2)]
        print(f"{mode:22}{short[0]:>10.3f}{short[1]:>10.3f}{short[2]:>12.0f}{streams[0]:>14.2f}{streams[1]:>12.3f}")
    worst = max(statistics.median(each[0][1] for each in samples) for samples in list(found.values())[1:])
    print(f"Python per pick: {worst:.3f} ms, goal at most {_GOAL_MS} ms{'' if worst <= _GOAL_MS else ': MISSED'}")
    print(f"picker's memory: {memory:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
