"""The fleet: every replica read once an interval, none waiting for another."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from pydantic import SecretStr

from adaptive_gamma.config.settings import (
    CapabilitySettings,
    CostCheckSettings,
    HealthSettings,
    LoadSettings,
    ReplicaSettings,
    ScrapeSettings,
    Settings,
)
from adaptive_gamma.engines.reading import RequestAcceptance
from adaptive_gamma.fleet.open_requests import OpenRequest, OpenRequests
from adaptive_gamma.fleet.options import FleetOptions
from adaptive_gamma.fleet.replica import AcceptancePrior, FleetReplica
from adaptive_gamma.fleet.watch import ReplicaWatch
from adaptive_gamma.fleet.window import DraftCounts
from adaptive_gamma.routing.replica import ReplicaState

__all__ = ["AcceptanceSink", "Fleet"]

_log = logging.getLogger("adaptive_gamma.fleet")


class AcceptanceSink(Protocol):
    """Who learns from the acceptance of single requests."""

    def note_acceptance(self, replica: FleetReplica, request_class: str, acceptance: RequestAcceptance) -> None:
        """A request of this class was answered by the replica, its drafts faring so. Called on the request path."""

    def note_drafts(self, replica: FleetReplica, counts: DraftCounts, at: float) -> None:
        """A scrape that started at ``at`` counted so much since the one before."""

    def forget(self, name: str) -> None:
        """The replica of this name is gone; one that comes under it is another."""


class Fleet:
    """Watches replicas and counts what is open on them.

    Each replica has two loops of its own, one for its metrics and one for its health and model list, so that one
    which hangs delays no other. A loop's interval runs from start to start; when a look takes longer than that, the
    starts it overran are skipped, never made up for. A look that meets a fault of ours counts as a failed scrape with
    the reason ``internal``, and the loop goes on. All loops look at once when the fleet starts, and from then on at
    moments spread over the interval: the work of a large fleet in one go would hold up the requests of this process.

    A replica is its name, its address and its engine's dialect: one that gets another address is another replica of
    the same name. What is open on a replica is counted with it until it ends, whatever becomes of the replica.

    Args:
        replicas: the engines, in the order of ``states``.
        scrape: interval, time limit and age limit of readings.
        health: path, interval, time limit and thresholds of probes, and the length of the slow start.
        load: the cap on open requests of replicas without one of their own.
        cost_check: when the prices of a replica are taken for wrong.
        capability: what a replica that speculates is not asked to do.
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
        load: LoadSettings | None = None,
        cost_check: CostCheckSettings | None = None,
        capability: CapabilitySettings | None = None,
        api_key: SecretStr | None = None,
        clock: Callable[[], float] = time.monotonic,
        policy: AcceptancePrior | None = None,
    ) -> None:
        self.policy = policy
        self.on_cache_lost: Callable[[str], None] | None = None
        """Called with the name of a replica whose KV cache can no longer be counted on: it was removed or got another
        address, its engine restarted, or it came back from down or from sleep."""
        self.learning: AcceptanceSink | None = None
        """Is told the acceptance of each request whose engine reports it, and what each scrape counted; None, and no
        answer is looked into for it."""
        self.replicas: tuple[FleetReplica, ...] = ()
        self.leaving: tuple[FleetReplica, ...] = ()
        """Replicas removed while requests were open on them; each vanishes when its last request ends."""
        self.states: list[ReplicaState] = []
        """The state of each of ``replicas``, in their order. ``replace`` makes a new list."""
        self._clock = clock
        self._options = FleetOptions(
            scrape,
            health,
            load or LoadSettings(),
            api_key,
            cost_check or CostCheckSettings(),
            capability or CapabilitySettings(),
        )
        self._by_name: dict[str, FleetReplica] = {}
        self._watches: dict[FleetReplica, ReplicaWatch] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._running = False
        self._looked = False
        self._held: frozenset[str] = frozenset()
        """Names of the replicas that ``hold`` keeps new requests from."""
        self._take(self._resolved(replicas, self._options))

    @classmethod
    def of(
        cls, settings: Settings, policy: AcceptancePrior | None, *, clock: Callable[[], float] = time.monotonic
    ) -> Fleet:
        """The fleet that a whole configuration describes."""
        return cls(
            settings.replicas,
            scrape=settings.scrape,
            health=settings.health,
            load=settings.load,
            cost_check=settings.cost_check,
            capability=settings.capability,
            api_key=settings.engine_api_key,
            clock=clock,
            policy=policy,
        )

    @property
    def looked(self) -> bool:
        """Whether every replica that the fleet started with has been looked at once, with or without success."""
        if not self._looked:
            self._looked = all(r.scraped_at is not None or r.scrape_error is not None for r in self.replicas)
        return self._looked

    @property
    def not_ready_because(self) -> str | None:
        """Why no request should come yet, or None: whoever sends to the fleet asks this."""
        if not self.looked:
            return "the replicas have not been looked at yet"
        if not self.replicas:
            return "no replica has been found"
        up = [replica for replica in self.replicas if replica.state.healthy and not replica.state.draining]
        if not up:
            return "no replica is healthy"
        if not any(replica.seen for replica in up):
            return "no replica has answered yet"
        return None

    def by_name(self, name: str) -> FleetReplica:
        """The replica called ``name``, or the one that is leaving. Raises KeyError when there is none."""
        replica = self._by_name.get(name)
        if replica is None:
            replica = next((each for each in self.leaving if each.name == name), None)
        if replica is None:
            raise KeyError(name)
        return replica

    async def start(self) -> None:
        """Start watching. Returns at once; readings arrive as the engines answer."""
        if self._running:
            raise RuntimeError("the fleet is being watched already")
        self._running = True
        self._start_watches(self.replicas)

    async def stop(self) -> None:
        """Stop watching and close the connections to the engines. A stopped fleet is not started again."""
        self._running = False
        await asyncio.gather(*(watch.stop() for watch in self._watches.values()), *self._ending)

    def replace(self, replicas: Sequence[ReplicaSettings], options: FleetOptions | None = None) -> None:
        """Go on with other replicas, or with the same ones and other ``options``. All or nothing.

        A replica that stays keeps its state object, its readings and its open requests. One that is new, or that
        comes back while its last requests are still open, is priced above its load for the ramp. One that is gone
        gets no more requests; what is open on it is counted until it ends.

        Must be called in the running event loop. Raises ValueError, and changes nothing, when two have one name.
        """
        loop = asyncio.get_running_loop()
        options = options or self._options
        after = self._resolved(replicas, options)
        before, afresh = self.replicas, not options.looks_as(self._options)
        stay = set(before) & set(after)
        removed = [replica for replica in before if replica not in stay]
        joined = [replica for replica in after if replica not in stay]
        self._options = options
        for replica, settings in zip(after, replicas, strict=True):
            replica.reconfigure(settings, options)
        for watch in [self._watches.pop(replica) for replica in (before if afresh else removed)]:
            ending = loop.create_task(watch.stop())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        self._take(after)
        for replica in joined:
            replica.join()
            _log.info("replica %s joins at %s", replica.name, replica.url)
        for replica in removed:
            replica.leave(self._vanish)
            _log.info("replica %s at %s leaves: %d open", replica.name, replica.url, replica.state.in_flight)
        back = set(joined)
        self.leaving = tuple(r for r in (*self.leaving, *removed) if r not in back and r.state.in_flight)
        if self._running:
            self._start_watches(joined)
            if afresh:
                self._start_watches([replica for replica in after if replica in stay], now=False)
        for replica in removed:
            self._cache_lost(replica.name)
            if self.learning is not None:
                self.learning.forget(replica.name)

    def take(self, settings: Settings, not_ready: Collection[str], options: FleetOptions | None = None) -> Settings:
        """Go on with the replicas of a configuration, those ``not_ready`` held (``hold``); the configuration as it then
        is, without newcomers that are not ready. Else as ``replace``."""
        joining = self.without_newcomers(settings.replicas, not_ready)
        self.replace(joining, options)
        self.hold(not_ready)
        return settings.model_copy(update={"replicas": joining})

    def take_policy(self, policy: AcceptancePrior | None) -> None:
        """Go on under another policy: what was accepted lately is held against it at once."""
        self.policy = policy
        for replica in self.replicas:
            replica.reprice(policy)

    def without_newcomers(
        self, replicas: Sequence[ReplicaSettings], not_ready: Collection[str]
    ) -> list[ReplicaSettings]:
        """``replicas`` but for those not ready that are not in the fleet: they join when they are ready first."""
        here = {(replica.name, replica.url) for replica in self.replicas}
        return [each for each in replicas if each.name not in not_ready or (each.name, each.url) in here]

    def hold(self, not_ready: Collection[str]) -> None:
        """Keep new requests from the replicas named, and from no other that was kept from them by this before.

        What is open on them ends undisturbed; they stay in the fleet, with all that is known of them, as they may come
        back. Names that are not in the fleet are passed over.
        """
        for name in self._held & self._by_name.keys():
            self.set_draining(name, name in not_ready)
        self._held = frozenset(self._by_name.keys() & set(not_ready))
        for name in self._held:
            self.set_draining(name, True)

    async def scrape_once(self) -> None:
        """Read all replicas at the same time, and return when the last one answered or ran out of time."""
        await asyncio.gather(*(self._watches[replica].scrape() for replica in self.replicas))

    async def check_health_once(self) -> None:
        """Probe all replicas and ask them for their models, all at the same time."""
        await asyncio.gather(*(self._watches[replica].check() for replica in self.replicas))

    def open_request(self, name: str, request_class: str) -> OpenRequest:
        """Count a request as open on a replica for the length of a ``with`` block, however the block ends.

        Raises KeyError when there is no such replica, or when it is leaving.
        """
        return OpenRequest(self.open_requests(name), request_class)

    def open_requests(self, name: str) -> OpenRequests:
        """The count of a replica's open requests, for whoever opens and closes by callbacks. Raises KeyError as
        ``open_request`` does."""
        return self._by_name[name].open_requests

    # What requests met. They speak of a replica by its name, and it may have left in the meantime: then nothing is
    # noted, as there is nothing left to decide about it.

    def note_connect_failure(self, name: str) -> None:
        """A request could not connect: counts as a failed health probe."""
        if (replica := self._by_name.get(name)) is not None:
            replica.connect_failed()

    def note_failure(self, name: str) -> None:
        """An answer that speaks against the replica: 5xx other than 503, broken off, or timed out.

        ``down_after`` of them in a row, no other answer between them, take the replica down. 4xx, 429 and 503 are no
        failures: the first two are the client's, and an engine that says it is busy is alive.
        """
        if (replica := self._by_name.get(name)) is not None:
            replica.request_failed()

    def note_success(self, name: str) -> None:
        """A request was answered: connections refused and answers failed before it no longer count."""
        if (replica := self._by_name.get(name)) is not None:
            replica.answered()

    def note_response(self, name: str, body: Mapping[str, object]) -> None:
        """A response's JSON body (or the last object of a stream), from which some engines' gamma can be learned."""
        if (replica := self._by_name.get(name)) is not None:
            replica.took_response(body)

    def note_acceptance(self, name: str, request_class: str, acceptance: RequestAcceptance) -> None:
        """How the drafts of a request fared, as the answer of replica ``name`` says; the class is the policy's.

        Where the answer and the replica's page name different draft lengths (a tree of drafts, a length that changes,
        an engine that has just restarted with another) what the answer says by position is not passed on.
        """
        learning, replica = self.learning, self._by_name.get(name)
        if learning is None or replica is None:
            return
        page = None if replica.reading is None else replica.reading.gamma
        if acceptance.gamma is not None and page is not None and page != acceptance.gamma:
            acceptance = acceptance.without_positions()
        learning.note_acceptance(replica, request_class, acceptance)

    def set_draining(self, name: str, draining: bool) -> None:
        """Keep new requests from a replica, or let them come again. Raises KeyError when there is no such replica."""
        replica = self._by_name[name]
        if replica.state.draining != draining:
            _log.info("replica %s: draining %s", name, "starts" if draining else "ends")
        replica.state.draining = draining

    def in_flight(self) -> dict[str, int]:
        """Our open requests by replica name; what is open at a name's former address counts with it."""
        counts = {replica.name: replica.state.in_flight for replica in self.replicas}
        for replica in self.leaving:
            counts[replica.name] = counts.get(replica.name, 0) + replica.state.in_flight
        return counts

    def rows(self) -> Iterator[dict[str, Any]]:
        """``replicas`` of ``/status``, each as it is when it is asked for; those that are leaving come last."""
        return (replica.as_dict(self._clock()) for replica in (*self.replicas, *self.leaving))

    def status(self) -> list[dict[str, Any]]:
        """``replicas`` of ``/status``, as they are now."""
        return list(self.rows())

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

    def _resolved(self, replicas: Sequence[ReplicaSettings], options: FleetOptions) -> tuple[FleetReplica, ...]:
        """The replica of each of the settings: one that is here already, or a new one."""
        if len({settings.name for settings in replicas}) != len(replicas):
            raise ValueError("replica names must be distinct")
        here = {(r.name, r.url, r.engine): r for r in (*self.replicas, *self.leaving)}
        return tuple(
            here.get((settings.name, settings.url, settings.engine))
            or FleetReplica(settings, options, clock=self._clock, cache_lost=self._cache_lost)
            for settings in replicas
        )

    def _take(self, replicas: tuple[FleetReplica, ...]) -> None:
        self.replicas = replicas
        self.states = [replica.state for replica in replicas]
        self._by_name = {replica.name: replica for replica in replicas}
        for replica in replicas:
            replica.on_drafts = self._took_drafts
            if replica not in self._watches:
                self._watches[replica] = ReplicaWatch(
                    replica, self._options, prior=lambda: self.policy, clock=self._clock
                )

    def _start_watches(self, replicas: Sequence[FleetReplica], *, now: bool = True) -> None:
        for index, replica in enumerate(replicas):
            self._watches[replica].start(index / len(replicas), now=now)

    def _took_drafts(self, replica: FleetReplica, counts: DraftCounts, at: float) -> None:
        if self.learning is not None:
            self.learning.note_drafts(replica, counts, at)

    def _vanish(self, replica: FleetReplica) -> None:
        """The last request of a replica that was leaving has ended."""
        self.leaving = tuple(each for each in self.leaving if each is not replica)
        _log.info("replica %s at %s is gone", replica.name, replica.url)

    def _cache_lost(self, name: str) -> None:
        if self.on_cache_lost is not None:
            self.on_cache_lost(name)
