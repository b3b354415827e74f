"""One run: engines, the proxy, clients, what befalls them, and the reckoning afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.soak.client import Client
from tests.soak.disturb import disturb
from tests.soak.downs import read_downs
from tests.soak.engine_fleet import Engines, running_engines
from tests.soak.journal import read_journals
from tests.soak.judge import Judge
from tests.soak.plan import Plan
from tests.soak.proxy import AFFINITY_ENTRIES, Reloads, Serve, proxy_settings, running_serve
from tests.soak.scenarios import Case, Scenarios
from tests.soak.seen import Seen
from tests.soak.tally import Tally, outcome_faults, tally
from tests.soak.watch import AFFINITY, IN_FLIGHT, QUEUED, REQUESTS, Counts, Sample, Watch, open_sockets, slope, total

__all__ = ["Options", "Result", "soak"]

_THINK_S = 0.1
_QUIET_S = 20.0
_PAGE_S = 30.0
"""An admin page that takes longer is a fault; how long they take is in the report."""
_NOTICE_S = 5.0
"""An engine that has not noticed by then that the client left works for nobody."""
_SPARE_DESCRIPTORS = 10
_JUDGED_FROM_S = 300.0
"""A slope of the memory means something from this length of a run on."""
_LAST_STREAMS = 5


@dataclass(frozen=True)
class Options:
    """What to run."""

    minutes: float = 10.0
    streams: int = 200
    seed: int = 1
    engines: int = 4
    gap_s: float = 8.0
    """Mean pause between two troubles of engines, and between two reloads."""
    memory_mb_per_10_minutes: float = 8.0
    silence: bool = True
    """With engines that go silent under clients that wait, and time limits of seconds for them."""
    longest_s: float = 12.0
    """About the longest time that a paced stream or a slow reader takes."""
    idle_s: float = 6.0
    """Pause before the descriptors are counted: by then the proxy has dropped its idle connections. 0: not counted."""


@dataclass
class Result:
    """Everything measured, and why the run failed, if it did."""

    options: Options
    seconds: float = 0.0
    tally: Tally = field(default_factory=Tally)
    counted: dict[str, float] = field(default_factory=dict)
    retries: dict[str, float] = field(default_factory=dict)
    connections: float = 0.0
    troubles: Counter[str] = field(default_factory=Counter)
    idle_closes: int = 0
    raced: int = 0
    reloads: dict[str, int] = field(default_factory=dict)
    reload_seconds: list[float] = field(default_factory=list)
    watch: Watch | None = None
    start: Sample | None = None
    end: Sample | None = None
    memory_slope: float | None = None
    """MB in 10 minutes over the last two thirds of the load."""
    descriptor_slope: float | None = None
    affinity: float | None = None
    left_open: dict[str, float | None] = field(default_factory=dict)
    """What was open after the load: by the proxy's gauges, and by each engine's own count. None: it does not say."""
    outcome_faults: list[str] = field(default_factory=list)
    exit_code: int | None = None
    reasons: list[str] = field(default_factory=list)
    """Why the run failed; empty when it passed."""


async def soak(options: Options, folder: Path) -> Result:
    """Run it; files are left in ``folder``."""
    result = Result(options)
    async with running_engines(folder, options.engines) as engines:
        settings = proxy_settings(folder, engines.settings, options.streams, silence=options.silence)
        async with running_serve(folder, settings) as serve:
            async with httpx.AsyncClient(base_url=serve.admin_url, timeout=_PAGE_S, trust_env=False) as admin:
                watch = result.watch = Watch(admin, serve.process.pid, 2 * options.streams, folder)
                reloads = Reloads(serve, watch, settings)
                seen = await _load(options, engines, serve, reloads, result)
            await _last_streams(options, serve, result)
        _judge(engines, reloads, seen, folder, result)
    _check_engines(engines, result)
    _check_log(folder, result)
    return result


# -- the load ------------------------------------------------------------------------------------------------------


async def _load(options: Options, engines: Engines, serve: Serve, reloads: Reloads, result: Result) -> list[Seen]:
    watch = reloads.watch
    rng = random.Random(f"{options.seed}/troubles")
    result.start = watch.take_sample()
    seen: list[Seen] = []
    began = time.monotonic()
    stop_at = began + options.minutes * 60
    async with _background(watch.run()):
        async with _background(disturb(engines, reloads, rng, options.gap_s)):
            clients = [_client(serve.port, options, number, stop_at, seen) for number in range(options.streams)]
            load = asyncio.gather(*clients, _until(stop_at))
            await load
        loaded_until = stop_at
        result.seconds = time.monotonic() - began
        await _settle(engines, watch, result)
    (watch.folder / "samples.csv").write_text(
        "".join(f"{s.at - began:.1f},{s.resident_mb:.2f},{s.descriptors},{s.cpu_s:.2f}\n" for s in watch.samples)
    )
    result.reloads, result.reload_seconds = reloads.done, reloads.seconds
    window = [s for s in watch.samples if began + (loaded_until - began) / 3 <= s.at <= loaded_until]
    result.memory_slope = _per_10_minutes([(s.at, s.resident_mb) for s in window])
    result.descriptor_slope = _per_10_minutes([(s.at, float(s.descriptors)) for s in window])
    if (
        options.minutes * 60 >= _JUDGED_FROM_S
        and result.memory_slope is not None
        and result.memory_slope > options.memory_mb_per_10_minutes
    ):
        result.reasons.append(f"memory grows by {result.memory_slope:.1f} MB in 10 minutes")
    return seen


async def _client(port: int, options: Options, number: int, stop_at: float, seen: list[Seen]) -> None:
    rng = random.Random(f"{options.seed}/{number}")
    scenarios = Scenarios(rng, number, options.engines, silence=options.silence, longest_s=options.longest_s)
    client = Client(port, rng)
    await asyncio.sleep(rng.uniform(0.0, 1.0))
    try:
        while time.monotonic() < stop_at:
            seen.append(await client.perform(scenarios.draw()))
            await asyncio.sleep(rng.expovariate(1 / _THINK_S))
    finally:
        client.close()


async def _until(moment: float) -> None:
    await asyncio.sleep(max(moment - time.monotonic(), 0.0))


@contextlib.asynccontextmanager
async def _background(work: Any) -> AsyncIterator[None]:
    """Something that goes on beside the block; its faults are the block's."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


# -- afterwards ----------------------------------------------------------------------------------------------------


async def _settle(engines: Engines, watch: Watch, result: Result) -> None:
    """The load is over: everything must come to rest, and stay countable."""
    reasons = result.reasons
    deadline = time.monotonic() + _QUIET_S
    while time.monotonic() < deadline:
        counts = await watch.look_at_metrics()
        pages = [await engine.state() for engine in engines.processes]
        if not total(counts, IN_FLIGHT) and not total(counts, QUEUED) and not any(p and p["open"] for p in pages):
            break
        await asyncio.sleep(0.2)
    await asyncio.sleep(result.options.idle_s)
    counts = await watch.look_at_metrics()
    page = await watch.look_at_status()
    result.end = watch.take_sample()
    for (name, labels), value in counts.items():
        if name in (IN_FLIGHT, QUEUED) and value:
            reasons.append(f"at the end {name}{dict(labels)} is {value:g}")
    result.left_open = {name: total(counts, name) for name in (IN_FLIGHT, QUEUED)}
    reasons += [
        f"at the end {r['name']} has in flight {r['in_flight']} {r['in_flight_by_class']}"
        for r in page["replicas"]
        if r["in_flight"] or r["in_flight_by_class"]
    ]
    names = {r["name"] for r in page["replicas"]}
    if names != {engine.name for engine in engines.processes}:
        reasons.append(f"at the end the replicas are {sorted(names)}")
    states = [(engine, await engine.state()) for engine in engines.processes]
    for engine, state in states:
        if state is None:
            reasons.append(f"at the end {engine.name} gives no answer")
        result.left_open[engine.name] = None if state is None else len(state["open"])
        if state is not None and state["open"]:
            reasons.append(f"at the end {engine.name} still works on {state['open'][:3]}: their clients have left")
    _count(counts, watch, result)
    assert result.start is not None
    if result.options.idle_s and result.end.descriptors > result.start.descriptors + _SPARE_DESCRIPTORS:
        engines_say = {engine.name: (state or {}).get("connections") for engine, state in states}
        reasons.append(
            f"{result.end.descriptors} descriptors at the end, {result.start.descriptors} at the start; "
            f"the engines have, besides one of the soak itself, {engines_say}"
        )
        (watch.folder / "sockets.txt").write_text("\n".join(open_sockets(watch.pid)))


def _count(counts: Counts, watch: Watch, result: Result) -> None:
    result.counted = watch.counted(counts, REQUESTS, "outcome")
    result.retries = watch.counted(counts, "adaptive_gamma_retries_total", "reason")
    result.connections = sum(
        watch.counted(counts, "adaptive_gamma_upstream_connections_opened_total", "replica").values()
    )
    result.affinity = total(counts, AFFINITY)
    if watch.peak_affinity > AFFINITY_ENTRIES:
        result.reasons.append(f"{watch.peak_affinity:g} affinity entries, the cap is {AFFINITY_ENTRIES}")
    result.reasons += watch.problems


def _judge(engines: Engines, reloads: Reloads, seen: list[Seen], folder: Path, result: Result) -> None:
    boots, exchanges = read_journals(engines.journals)
    watch = result.watch
    assert watch is not None
    log = (folder / "serve.log").read_text(errors="replace")
    put_back = [(removal.replica, removal.back) for removal in reloads.removals if removal.back is not None]
    downs = read_downs(log, time.time() - time.monotonic(), time.monotonic(), put_back)
    judge = Judge(exchanges, engines.outages, reloads.removals, downs, len(engines), reloads.cap)
    sums = result.tally = tally(seen, judge)
    result.troubles = Counter(outage.kind for outage in engines.outages)
    result.idle_closes = sum(boot.idle_closes for boot in boots)
    result.raced = sum(e.end == "raced" for each in exchanges.values() for e in each)
    notes = {
        "outages": [vars(o) for o in engines.outages],
        "removals": [vars(r) for r in reloads.removals],
        "downs": [vars(d) for d in downs],
    }
    (folder / "troubles.json").write_text(json.dumps({**notes, "lost": sums.lost, "broken": sums.examples}, indent=1))
    if sums.lost:
        result.reasons.append(f"{len(sums.lost)} responses lost, the first: " + "; ".join(sums.lost[:5]))
    result.reasons += [f"{count} x {kind}: {sums.examples[kind]}" for kind, count in sums.broken.items()]
    slowest = max((seconds for times in sums.noticed_s.values() for seconds in times), default=0.0)
    if slowest > _NOTICE_S:
        result.reasons.append(f"an engine noticed only after {slowest:.1f} s that its client had left")
    result.outcome_faults = outcome_faults(sums, result.counted)
    result.reasons += result.outcome_faults


def _check_engines(engines: Engines, result: Result) -> None:
    for engine in engines.processes:
        result.reasons += [f"the soak itself: {text}" for text in engine.unasked_exits]
        if (text := engine.log.read_text()).strip():
            result.reasons.append(f"the soak itself: {engine.name} said {text[-1000:]!r}")


def _check_log(folder: Path, result: Result) -> None:
    lines = (folder / "serve.log").read_text(errors="replace").splitlines()
    refused = result.reloads.get("wrong files refused", 0)
    errors = [line for line in lines if " ERROR " in line or " CRITICAL " in line]
    if any("Traceback" in line for line in lines):
        result.reasons.append("the proxy's log has a traceback")
    if len(errors) > refused:
        result.reasons.append(f"{len(errors)} errors in the proxy's log, {refused} expected; the last: {errors[-1]}")


async def _last_streams(options: Options, serve: Serve, result: Result) -> None:
    """SIGTERM with a few streams open: they must finish, and the process must exit with 0."""
    plan = Plan(events=60, pace_s=0.02)
    cases = [
        Case(f"last-{n}", "last", "POST", "/v1/completions", b'{"prompt": "x", "stream": true}', plan=plan)
        for n in range(_LAST_STREAMS)
    ]
    tasks = [asyncio.ensure_future(Client(serve.port, random.Random(n)).perform(case)) for n, case in enumerate(cases)]
    await asyncio.sleep(0.5)
    serve.process.send_signal(signal.SIGTERM)
    for task in tasks:
        seen = await task
        if (seen.ended, seen.status) != ("clean", 200) or seen.wrong:
            result.reasons.append(f"a stream open at SIGTERM ended {seen.ended} {seen.status} {seen.wrong}")
    try:
        async with asyncio.timeout(40):
            result.exit_code = await serve.process.wait()
    except TimeoutError:
        result.reasons.append("no exit within 40 s of SIGTERM")
        return
    if result.exit_code != 0:
        result.reasons.append(f"the process exited with {result.exit_code}")


def _per_10_minutes(points: list[tuple[float, float]]) -> float | None:
    found = slope(points)
    return None if found is None else found * 600
