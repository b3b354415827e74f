"""What is measured of a proxy under load, in front of the mock engine. Each measurement has fresh processes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from .contestants import Serving
from .disconnect import PHASES, disconnect_ms
from .load_tools import LoadTools, MockEngine
from .processes import cpu_seconds, resident_mb

__all__ = ["ADDED", "FILES_NEEDED", "GROUPS", "RUNGS", "Bench", "FigureKind", "Group", "Sample", "Windows"]

_CONNECTIONS = 16
_STREAMS, _CHUNK_RATE = 250, 20
_REQUEST_RATE = 100
RUNGS = (256, 512, 1024)
_HELD_STREAMS = 1000
_HOPELESS_MS = 1000.0
"""A proxy this late on one rung, or that did not finish it, is not put on the next: it would only queue."""
FILES_NEEDED = 2 * max(*RUNGS, _HELD_STREAMS) + 200
"""Open files of a proxy: two a stream, and some of its own."""


@dataclass(frozen=True)
class Windows:
    """Seconds each load is watched for, and before that left alone; and tries of each disconnect."""

    warm_up: float = 1.0
    requests: float = 3.0
    chunks: float = 5.0
    latency: float = 5.0
    rung: float = 3.0
    patience: float = 10.0
    """How long streams may take to start, and a rung to end after its time, before they are cut off."""
    tries: int = 5

    @staticmethod
    def quick() -> Windows:
        return Windows(warm_up=0.4, requests=0.8, chunks=1.5, latency=1.5, rung=1.0, patience=4.0, tries=2)


@dataclass(frozen=True)
class Sample:
    """One measured value. NaN: there is none; infinite: it never came. ``flaw`` says what was wrong."""

    value: float
    flaw: str = ""


@dataclass(frozen=True)
class FigureKind:
    """A row of the table."""

    name: str
    goal: float | None = None
    goal_ratio: float | None = None
    """The goal as a ratio to nginx of the same run; the plain goal counts where nginx is missing."""
    relative: bool = False
    """Its ratio to nginx means something."""


@dataclass(frozen=True)
class Bench:
    """What a measurement works with."""

    tools: LoadTools
    engine: MockEngine
    serving: Serving
    windows: Windows


@dataclass(frozen=True)
class Group:
    kinds: tuple[FigureKind, ...]
    measure: Callable[[Bench], list[Sample]]
    """The samples in the order of the kinds."""
    direct: bool = True
    """Whether the engine alone is measured too."""


def _paced(streams: int, rate: int, seconds: float) -> dict[str, float]:
    """Options of streams that start 1,000 a second and last some seconds each."""
    return {"streams": streams, "rate": rate, "chunks": round(rate * seconds), "spread_ms": streams}


def _flaw(failed: float) -> str:
    return f"{failed:g} failed" if failed else ""


def _requests(bench: Bench) -> list[Sample]:
    window, pid = bench.windows.requests, bench.serving.pid
    opened_before = bench.engine.stats()["generating_connections"]
    with bench.tools.load("closed", bench.serving.port, connections=_CONNECTIONS, seconds=60) as load:
        time.sleep(bench.windows.warm_up)
        cpu, done, began = cpu_seconds(pid), load.counters()["requests"], time.monotonic()
        time.sleep(window)
        cpu, counters, took = cpu_seconds(pid) - cpu, load.counters(), time.monotonic() - began
        opened = bench.engine.stats()["generating_connections"] - opened_before
    done = counters["requests"] - done
    if not done:
        return [Sample(math.nan, "no request answered")] * 3
    flaw = _flaw(counters["failed"])
    return [Sample(1e6 * cpu / done, flaw), Sample(done / took, flaw), Sample(opened)]


def _chunks(bench: Bench) -> list[Sample]:
    window, patience, pid = bench.windows.chunks, bench.windows.patience, bench.serving.pid
    # Long enough that no stream ends inside the window, however late the last one starts.
    options = _paced(_STREAMS, _CHUNK_RATE, patience + window + 2)
    limit, began = 1000 * (patience + window + 2), time.monotonic()
    with bench.tools.load("streams", bench.serving.port, **options, limit_ms=limit) as load:
        if not load.all_flow() or time.monotonic() - began > patience:
            return [Sample(math.nan, "not all streams started")]
        time.sleep(bench.windows.warm_up / 2)
        cpu, done = cpu_seconds(pid), load.counters()["chunks"]
        time.sleep(window)
        cpu, counters = cpu_seconds(pid) - cpu, load.counters()
    done = counters["chunks"] - done
    if not done:
        return [Sample(math.nan, "nothing flowed")]
    return [Sample(1e5 * cpu / done, _flaw(counters["failed"]))]


def _latency(bench: Bench) -> list[Sample]:
    seconds = bench.windows.latency + 0.5
    with bench.tools.load("open", bench.serving.port, rate=_REQUEST_RATE, seconds=seconds, warmup_ms=500) as load:
        result = load.result()
    flaw = _flaw(result["failed"] + result["unanswered"])
    return [Sample(result[name] / 1e3, flaw) for name in ("latency_p50_us", "latency_p99_us")]


def _ladder(bench: Bench) -> list[Sample]:
    samples: list[Sample] = []
    for streams in RUNGS:
        if samples and (samples[-1].flaw or samples[-1].value > _HOPELESS_MS):
            samples.append(Sample(math.nan, "not tried"))
        else:
            samples.append(_rung(bench, streams))
    return samples


def _rung(bench: Bench, streams: int) -> Sample:
    seconds = bench.windows.rung
    options = _paced(streams, _CHUNK_RATE, seconds)
    limit = 1000 * (seconds + bench.windows.patience)
    with bench.tools.load("streams", bench.serving.port, **options, limit_ms=limit) as load:
        result = load.result()
    lost = streams - int(result["complete"])
    delay = result["delay_p99_us"] / 1e3 if result["chunks"] else math.inf
    return Sample(delay, f"{lost} not whole" if lost else "")


def _memory(bench: Bench) -> list[Sample]:
    patience, idle = bench.windows.patience, Sample(resident_mb(bench.serving.pid))
    options = _paced(_HELD_STREAMS, 2, 3 * patience)
    with bench.tools.load("streams", bench.serving.port, **options, limit_ms=1000 * patience + 5000) as load:
        if not load.all_flow():
            return [idle, Sample(resident_mb(bench.serving.pid), "not all streams started")]
        time.sleep(bench.windows.warm_up)
        return [idle, Sample(resident_mb(bench.serving.pid))]


def _disconnect(bench: Bench) -> list[Sample]:
    return [
        Sample(max(disconnect_ms(bench.serving.port, bench.engine, phase, bench.windows.tries))) for phase in PHASES
    ]


ADDED = "latency"
"""The group whose figures are shown as what a proxy adds to the engine alone."""

GROUPS: dict[str, Group] = {
    "requests": Group(
        (
            FigureKind("CPU us per short request", 150, goal_ratio=6.5, relative=True),
            FigureKind("requests/s seen, 16 connections"),
            FigureKind("engine connections opened for them", _CONNECTIONS),
        ),
        _requests,
    ),
    "chunks": Group((FigureKind("CPU-s per 100k chunks", 3.2, goal_ratio=2.2, relative=True),), _chunks),
    ADDED: Group(
        (FigureKind("ms added at 100 requests/s, p50", 0.4), FigureKind("ms added at 100 requests/s, p99", 1.2)),
        _latency,
    ),
    "ladder": Group(
        tuple(FigureKind(f"ms p99 chunk delay, {n} streams", 25 if n == RUNGS[-1] else None) for n in RUNGS), _ladder
    ),
    "memory": Group(
        (FigureKind("resident MB, idle"), FigureKind("resident MB, 1,000 streams", 90)), _memory, direct=False
    ),
    "disconnect": Group(
        tuple(FigureKind(f"ms until the engine is left, {phase}", 100) for phase in PHASES), _disconnect, direct=False
    ),
}
