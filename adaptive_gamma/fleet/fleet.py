"""The fleet: every replica read once an interval, none waiting for another."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pydantic import SecretStr

from adaptive_gamma.config.settings import HealthSettings, ReplicaSettings, ScrapeSettings
from adaptive_gamma.errors import ScrapeError
from adaptive_gamma.fleet.models import read_model_list
from adaptive_gamma.fleet.open_requests import OpenRequest
from adaptive_gamma.fleet.replica import AcceptancePrior, FleetReplica
from adaptive_gamma.fleet.scrape import EngineClient
from adaptive_gamma.routing.replica import ReplicaState

__all__ = ["Fleet"]

_log = logging.getLogger("adaptive_gamma.fleet")
_MODELS_PATH = "/v1/models"
_FAULTS = (ArithmeticError, ValueError, TypeError, LookupError)
"""What a page that nobody foresaw can raise in the code that reads it (an error of Unicode is a ValueError). A look
that ends in one is lost and the next one is made all the same: a loop that ended would leave its replica unknown until
a restart, for one bad page. It is a fault of ours, so it is logged with its traceback and counted. Anything else, such
as an AttributeError or a failing assertion, is no page's doing and ends the loop."""


class Fleet:
    """Watches replicas and counts what is open on them.

    Each replica has two loops of its own, one for its metrics and one for its health and model list, so that one
    which hangs delays no other. A loop's interval runs from start to start; when a look takes longer than that, the
    starts it overran are skipped, never made up for. A look that meets a fault of ours counts as a failed scrape with
    the reason ``internal``, and the loop goes on. All loops look at once when the fleet starts, and from then on at
    moments spread over the interval: the work of a large fleet in one go would hold up the requests of this process.

    Args:
        replicas: the engines, in the order of ``states``.
        scrape: interval, time limit and age limit of readings.
        health: path, interval, time limit and thresholds of probes.
        api_key: sent to engines as a bearer token.
        clock: monotonic seconds, the clock of ``ReplicaState.fresh_until``.
        policy: gives the acceptance expected of each class; may be set later.
    """

    def __init__(
        self,
        replicas: Sequence[ReplicaSettings],
        *,
        scrape: ScrapeSettings,
        health: HealthSettings,
        api_key: SecretStr | None = None,
        clock: Callable[[], float] = time.monotonic,
        policy: AcceptancePrior | None = None,
    ) -> None:
        self.policy = policy
        self._clock = clock
        self._scrape = scrape
        self._health = health
        self.replicas: tuple[FleetReplica, ...] = tuple(
            FleetReplica(settings, scrape=scrape, health=health, clock=clock) for settings in replicas
        )
        self.states: list[ReplicaState] = [replica.state for replica in self.replicas]
        self._by_name = {replica.name: replica for replica in self.replicas}
        if len(self._by_name) != len(self.replicas):
            raise ValueError("replica names must be distinct")
        self._clients = {replica.name: EngineClient(replica.url, api_key) for replica in self.replicas}
        self._tasks: list[asyncio.Task[None]] = []
        self._faults_logged: set[tuple[str, str, type[Exception]]] = set()

    @property
    def looked(self) -> bool:
        """Whether every replica has been looked at once, with or without success."""
        return all(r.scraped_at is not None or r.scrape_error is not None for r in self.replicas)

    def by_name(self, name: str) -> FleetReplica:
        """The replica called ``name``. Raises KeyError when there is none."""
        return self._by_name[name]

    async def start(self) -> None:
        """Start watching. Returns at once; readings arrive as the engines answer."""
        if self._tasks:
            raise RuntimeError("the fleet is being watched already")
        for index, replica in enumerate(self.replicas):
            phase = index / len(self.replicas)
            for what, interval_s, look in (
                ("scrape", self._scrape.interval_s, self._scrape_one),
                ("health", self._health.interval_s, self._check_one),
            ):
                task = asyncio.create_task(_every(interval_s, phase, look, replica), name=f"{what} {replica.name}")
                task.add_done_callback(_report_end)
                self._tasks.append(task)

    async def stop(self) -> None:
        """Stop watching and close the connections to the engines. A stopped fleet is not started again."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(client.close() for client in self._clients.values()))

    async def scrape_once(self) -> None:
        """Read all replicas at the same time, and return when the last one answered or ran out of time."""
        await asyncio.gather(*(self._scrape_one(replica) for replica in self.replicas))

    async def check_health_once(self) -> None:
        """Probe all replicas and ask them for their models, all at the same time."""
        await asyncio.gather(*(self._check_one(replica) for replica in self.replicas))

    def open_request(self, name: str, request_class: str) -> OpenRequest:
        """Count a request as open on a replica for the length of a ``with`` block, however the block ends.

        Raises KeyError when there is no such replica.
        """
        return self._by_name[name].open_request(request_class)

    def note_connect_failure(self, name: str) -> None:
        """A request could not connect: counts as a failed health probe."""
        self._by_name[name].connect_failed()

    def note_success(self, name: str) -> None:
        """A request was answered: connections refused before it no longer count."""
        self._by_name[name].answered()

    def note_response(self, name: str, body: Mapping[str, object]) -> None:
        """A response's JSON body (or the last object of a stream), from which some engines' gamma can be learned."""
        self._by_name[name].took_response(body)

    def set_draining(self, name: str, draining: bool) -> None:
        """Keep new requests from a replica, or let them come again. Raises KeyError when there is no such replica."""
        replica = self._by_name[name]
        if replica.state.draining != draining:
            _log.info("replica %s: draining %s", name, "starts" if draining else "ends")
        replica.state.draining = draining

    def status(self) -> list[dict[str, Any]]:
        """``replicas`` of ``/status``, as they are now."""
        now = self._clock()
        return [replica.as_dict(now) for replica in self.replicas]

    def models_page(self) -> dict[str, Any] | None:
        """The body of ``/v1/models``: what the replicas list, each model once, as the first replica that has it
        describes it. None while no replica's list is known."""
        lists = [replica.model_entries for replica in self.replicas if replica.model_entries is not None]
        if not lists:
            return None
        entries: dict[str, dict[str, Any]] = {}
        for entry in (entry for entries_of_one in lists for entry in entries_of_one):
            entries.setdefault(entry["id"], entry)
        return {"object": "list", "data": list(entries.values())}

    async def _scrape_one(self, replica: FleetReplica) -> None:
        started_at, in_flight = self._clock(), replica.state.in_flight
        try:
            pages = await self._clients[replica.name].pages(
                replica.dialect.metrics_paths, timeout_s=self._scrape.timeout_s
            )
            reading = replica.dialect.read(pages)
            replica.took_reading(reading, started_at=started_at, in_flight_at_start=in_flight, prior=self.policy)
        except ScrapeError as error:
            replica.missed_reading(error, self._clock())
        except _FAULTS as fault:
            self._log_fault("scrape", replica, fault)
            replica.missed_reading(ScrapeError("internal", type(fault).__name__), self._clock())

    async def _check_one(self, replica: FleetReplica) -> None:
        await asyncio.gather(
            self._surviving("health", replica, self._probe), self._surviving("models", replica, self._list_models)
        )

    async def _surviving(
        self, what: str, replica: FleetReplica, look: Callable[[FleetReplica], Awaitable[None]]
    ) -> None:
        """A look beside the scrape: its faults are counted with the scrapes', and say nothing about the readings."""
        try:
            await look(replica)
        except _FAULTS as fault:
            self._log_fault(what, replica, fault)
            replica.scrape_failures["internal"] += 1

    def _log_fault(self, what: str, replica: FleetReplica, fault: Exception) -> None:
        """Once for each kind of fault, not once an interval."""
        key = (what, replica.name, type(fault))
        if key not in self._faults_logged:
            self._faults_logged.add(key)
            _log.error("replica %s: a look at its %s met a fault and is lost", replica.name, what, exc_info=fault)

    async def _probe(self, replica: FleetReplica) -> None:
        try:
            await self._clients[replica.name].fetch(self._health.path, timeout_s=self._health.timeout_s)
        except ScrapeError as error:
            replica.took_probe(error)
        else:
            replica.took_probe(None)

    async def _list_models(self, replica: FleetReplica) -> None:
        """A list that cannot be had or understood leaves the last one known, or none."""
        try:
            page = await self._clients[replica.name].fetch(_MODELS_PATH, timeout_s=self._health.timeout_s)
        except ScrapeError:
            return
        listed = read_model_list(page)
        if listed is not None:
            replica.took_models(listed)


async def _every(
    interval_s: float, phase: float, look: Callable[[FleetReplica], Awaitable[None]], replica: FleetReplica
) -> None:
    """Look now, and then once an interval at its ``phase`` (0..1), counted from now."""
    loop = asyncio.get_running_loop()
    due = loop.time() + interval_s * phase
    while True:
        await look(replica)
        now = loop.time()
        if due <= now:
            due += interval_s * (math.floor((now - due) / interval_s) + 1)
        await asyncio.sleep(due - now)


def _report_end(task: asyncio.Task[None]) -> None:
    """A loop that ends by itself has met a fault of ours; its replica's readings go stale, and the log says why."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("the loop %r ended", task.get_name(), exc_info=task.exception())
