"""Looking at one replica again and again: its metrics, its health, its model list."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from adaptive_gamma.errors import ScrapeError
from adaptive_gamma.fleet.models import read_model_list
from adaptive_gamma.fleet.options import FleetOptions
from adaptive_gamma.fleet.replica import AcceptancePrior, FleetReplica
from adaptive_gamma.fleet.scrape import EngineClient

__all__ = ["ReplicaWatch"]

_log = logging.getLogger("adaptive_gamma.fleet")
_MODELS_PATH = "/v1/models"
_FAULTS = (ArithmeticError, ValueError, TypeError, LookupError)
"""What a page that nobody foresaw can raise in the code that reads it (an error of Unicode is a ValueError). A look
that ends in one is lost and the next one is made all the same: a loop that ended would leave its replica unknown until
a restart, for one bad page. It is a fault of ours, so it is logged with its traceback and counted. Anything else, such
as an AttributeError or a failing assertion, is no page's doing and ends the loop."""


class ReplicaWatch:
    """Two loops over one replica, one for its metrics and one for its health and model list.

    Args:
        replica: is told what was seen.
        options: intervals, time limits, the health path and the key.
        prior: the policy's acceptance by class, where there is one.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        replica: FleetReplica,
        options: FleetOptions,
        *,
        prior: Callable[[], AcceptancePrior | None],
        clock: Callable[[], float],
    ) -> None:
        self._replica = replica
        self._options = options
        self._prior = prior
        self._clock = clock
        self._client = EngineClient(replica.url, options.api_key)
        self._tasks: list[asyncio.Task[None]] = []
        self._faults_logged: set[tuple[str, type[Exception]]] = set()

    def start(self, phase: float, *, now: bool = True) -> None:
        """Look once an interval at its ``phase`` (0..1), and once ``now``."""
        for what, interval_s, look in (
            ("scrape", self._options.scrape.interval_s, self.scrape),
            ("health", self._options.health.interval_s, self.check),
        ):
            task = asyncio.create_task(_every(interval_s, phase, look, now=now), name=f"{what} {self._replica.name}")
            task.add_done_callback(_report_end)
            self._tasks.append(task)

    async def stop(self) -> None:
        """Stop looking and close the connections."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    async def scrape(self) -> None:
        """Read the metrics once."""
        replica = self._replica
        started_at, in_flight = self._clock(), replica.state.in_flight
        try:
            pages = await self._client.pages(replica.dialect.metrics_paths, timeout_s=self._options.scrape.timeout_s)
            reading = replica.dialect.read(pages)
            replica.took_reading(reading, started_at=started_at, in_flight_at_start=in_flight, prior=self._prior())
        except ScrapeError as error:
            replica.missed_reading(error, self._clock())
        except _FAULTS as fault:
            self._log_fault("scrape", fault)
            replica.missed_reading(ScrapeError("internal", type(fault).__name__), self._clock())

    async def check(self) -> None:
        """Probe the health and list the models once, at the same time."""
        await asyncio.gather(self._surviving("health", self._probe), self._surviving("models", self._list_models))
        self._replica.models_asked = True

    async def _surviving(self, what: str, look: Callable[[], Awaitable[None]]) -> None:
        """A look beside the scrape: its faults are counted with the scrapes', and say nothing about the readings."""
        try:
            await look()
        except _FAULTS as fault:
            self._log_fault(what, fault)
            self._replica.scrape_failures["internal"] += 1

    def _log_fault(self, what: str, fault: Exception) -> None:
        """Once for each kind of fault, not once an interval."""
        key = (what, type(fault))
        if key not in self._faults_logged:
            self._faults_logged.add(key)
            _log.error("replica %s: a look at its %s met a fault and is lost", self._replica.name, what, exc_info=fault)

    async def _probe(self) -> None:
        health = self._options.health
        try:
            await self._client.fetch(health.path, timeout_s=health.timeout_s)
        except ScrapeError as error:
            self._replica.took_probe(error)
        else:
            self._replica.took_probe(None)

    async def _list_models(self) -> None:
        """A list that cannot be had or understood leaves the last one known, or none."""
        try:
            page = await self._client.fetch(_MODELS_PATH, timeout_s=self._options.health.timeout_s)
        except ScrapeError:
            return
        listed = read_model_list(page)
        if listed is not None:
            self._replica.took_models(listed)


async def _every(interval_s: float, phase: float, look: Callable[[], Awaitable[None]], *, now: bool) -> None:
    """Look once an interval at its ``phase`` (0..1), counted from this moment, and ``now`` as well."""
    loop = asyncio.get_running_loop()
    due = loop.time() + interval_s * phase
    while True:
        if now:
            await look()
        now = True
        at = loop.time()
        if due <= at:
            due += interval_s * (math.floor((at - due) / interval_s) + 1)
        await asyncio.sleep(due - at)


def _report_end(task: asyncio.Task[None]) -> None:
    """A loop that ends by itself has met a fault of ours; its replica's readings go stale, and the log says why."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("the loop %r ended", task.get_name(), exc_info=task.exception())
