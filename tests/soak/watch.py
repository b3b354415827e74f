"""Watching the proxy from outside: its memory and descriptors, and its admin pages again and again."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Counts", "Sample", "Watch", "open_sockets", "percentile", "slope"]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_TCP_STATES = {"01": "open", "04": "FIN sent", "05": "FIN acknowledged", "08": "FIN received", "0A": "listening"}
REQUESTS = "adaptive_gamma_requests_total"
IN_FLIGHT = "adaptive_gamma_in_flight"
QUEUED = "adaptive_gamma_queued"
AFFINITY = "adaptive_gamma_affinity_entries"
RELOAD_FAILURES = "adaptive_gamma_config_reload_failures_total"

Labels = tuple[tuple[str, str], ...]
Counts = dict[tuple[str, Labels], float]
"""A metrics page: value by name and sorted labels."""


@dataclass(frozen=True)
class Sample:
    """The proxy's process at one moment."""

    at: float
    resident_mb: float
    descriptors: int
    cpu_s: float


def sample(pid: int) -> Sample:
    """Read /proc."""
    proc = Path("/proc") / str(pid)
    resident = int((proc / "statm").read_text().split()[1]) * _PAGE_BYTES / 1e6
    after_name = (proc / "stat").read_text().rpartition(") ")[2].split()
    cpu_s = (int(after_name[11]) + int(after_name[12])) / _TICKS
    return Sample(time.monotonic(), resident, len(list((proc / "fd").iterdir())), cpu_s)


def open_sockets(pid: int) -> list[str]:
    """The process's TCP sockets: local port, remote port and state, for a look at what stayed open."""
    proc = Path("/proc") / str(pid)
    inodes = {os.readlink(fd).removeprefix("socket:[").rstrip("]") for fd in (proc / "fd").iterdir() if fd.is_symlink()}
    found = []
    for line in (proc / "net" / "tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[9] in inodes:
            local, remote = (int(address.split(":")[1], 16) for address in fields[1:3])
            found.append(f"{local}-{remote} {_TCP_STATES.get(fields[3], fields[3])}")
    return sorted(found)


def slope(points: list[tuple[float, float]]) -> float | None:
    """Least-squares slope; None for fewer than three points."""
    if len(points) < 3:
        return None
    mean_x = math.fsum(x for x, _ in points) / len(points)
    mean_y = math.fsum(y for _, y in points) / len(points)
    spread = math.fsum((x - mean_x) ** 2 for x, _ in points)
    return math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else None


def percentile(values: list[float], share: float) -> float:
    """The value below which ``share`` of the values lie (nearest rank); NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def read_page(text: str) -> Counts:
    """All samples of a metrics page."""
    return {
        (item.name, tuple(sorted(item.labels.items()))): item.value
        for family in text_string_to_metric_families(text)
        for item in family.samples
    }


def total(counts: Counts, name: str) -> float | None:
    """Sum of a series over its labels; None when the page does not have it."""
    values = [value for (found, _), value in counts.items() if found == name]
    return sum(values) if values else None


@dataclass
class Watch:
    """What was seen. ``most_in_flight`` is more than can be open at a time, those of clients just gone included."""

    admin: httpx.AsyncClient
    pid: int
    most_in_flight: int
    folder: Path
    samples: list[Sample] = field(default_factory=list)
    page_seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    problems: list[str] = field(default_factory=list)
    retired: Counts = field(default_factory=dict)
    """Counters whose series vanished or began again, with what they had counted."""
    removed: set[str] = field(default_factory=set)
    """Replicas that were ever taken out of the configuration: only their counters may vanish and begin again."""
    most_series: int = 0
    peak_in_flight: float = 0.0
    peak_queued: float = 0.0
    peak_affinity: float = 0.0
    own_lag: list[float] = field(default_factory=list)
    """How late the soak's own event loop was: what times measured here cannot be better than."""
    _last: Counts = field(default_factory=dict)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        """Look until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sample_process())
            tasks.create_task(self._every(1.0, self.look_at_metrics))
            tasks.create_task(self._every(1.0, self.look_at_status))
            tasks.create_task(self._every(3.0, self._look_at_decisions))
            tasks.create_task(self._measure_lag())

    async def _every(self, interval_s: float, look: Any) -> None:
        while True:
            await look()
            await asyncio.sleep(interval_s)

    async def _measure_lag(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.05)
            self.own_lag.append(time.monotonic() - before - 0.05)

    async def _sample_process(self) -> None:
        while True:
            self.take_sample()
            await asyncio.sleep(1.0)

    def take_sample(self) -> Sample:
        taken = sample(self.pid)
        self.samples.append(taken)
        return taken

    async def _get(self, path: str, **query: int) -> httpx.Response | None:
        began = time.monotonic()
        try:
            answer = await self.admin.get(path, params=query)
        except httpx.HTTPError as error:
            self._problem(f"{path} gave no answer: {error!r}")
            return None
        self.page_seconds[path].append(time.monotonic() - began)
        if answer.status_code != 200:
            self._problem(f"{path} answered {answer.status_code}")
            return None
        return answer

    def _problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)

    async def look_at_metrics(self) -> Counts:
        """Read the page and hold it against the one before."""
        async with self._looking:
            answer = await self._get("/metrics")
            if answer is None:
                return {}
            counts = read_page(answer.text)
            self._compare(counts)
            return counts

    def _compare(self, counts: Counts) -> None:
        for key, before in self._last.items():
            if not key[0].endswith("_total"):
                continue
            now = counts.get(key)
            if now is None or now < before:
                self.retired[key] = self.retired.get(key, 0.0) + before
                if dict(key[1]).get("replica") not in self.removed:
                    self._problem(f"the counter {key} {'vanished' if now is None else 'fell'} at {before:g}")
        self._last = counts
        self.most_series = max(self.most_series, len(counts))
        for (name, labels), value in counts.items():
            if name == IN_FLIGHT and not 0 <= value <= self.most_in_flight:
                self._problem(f"in flight {dict(labels)} is {value:g}")
        self.peak_in_flight = max(self.peak_in_flight, total(counts, IN_FLIGHT) or 0.0)
        self.peak_queued = max(self.peak_queued, total(counts, QUEUED) or 0.0)
        self.peak_affinity = max(self.peak_affinity, total(counts, AFFINITY) or 0.0)

    async def look_at_status(self) -> dict[str, Any]:
        """Read the state of the replicas."""
        answer = await self._get("/status")
        if answer is None:
            return {"replicas": [], "policy": {}}
        page: dict[str, Any] = answer.json()
        for replica in page["replicas"]:
            if replica["in_flight"] < 0 or any(count <= 0 for count in replica["in_flight_by_class"].values()):
                self._problem(f"in flight of {replica['name']}: {replica['in_flight_by_class']}")
        return page

    async def _look_at_decisions(self) -> None:
        answer = await self._get("/decisions", limit=1000)
        if answer is not None and not isinstance(answer.json()["decisions"], list):
            self._problem("/decisions is no list")

    def counted(self, counts: Counts, name: str, label: str) -> dict[str, float]:
        """A counter by one label's value, vanished series included."""
        sums: dict[str, float] = defaultdict(float)
        for page in (counts, self.retired):
            for (found, labels), value in page.items():
                if found == name:
                    sums[dict(labels).get(label, "")] += value
        return dict(sums)
