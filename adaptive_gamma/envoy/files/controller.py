"""The loop: read what Envoy and the engines have to do, decide, and rewrite what has changed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from adaptive_gamma.config import ReplicaSettings, Settings, refuse_changes
from adaptive_gamma.envoy.addresses import Address, AddressBook
from adaptive_gamma.envoy.files.admin import EnvoyAdmin, EnvoyLoad
from adaptive_gamma.envoy.files.arrivals import Arrivals
from adaptive_gamma.envoy.files.endpoints import Ending
from adaptive_gamma.envoy.files.names import CLUSTERS_FILE, ENDPOINTS_FOLDER
from adaptive_gamma.envoy.files.own_load import OwnLoad
from adaptive_gamma.envoy.files.plan import Plan, make_plan
from adaptive_gamma.envoy.files.refusals import refuse_settings
from adaptive_gamma.envoy.files.render import Place, render_endpoints, render_frame
from adaptive_gamma.envoy.files.switch import PlanSwitch, frame
from adaptive_gamma.envoy.files.writer import FileWriter
from adaptive_gamma.errors import ConfigurationError, ScrapeError
from adaptive_gamma.fleet import Fleet, FleetOptions, FleetReplica
from adaptive_gamma.policy import Policy
from adaptive_gamma.routing import DecisionLimits, PriceBook, ReplicaState
from adaptive_gamma.routing.shares import Expected, Shares, even_shares, shares_of

__all__ = ["FilesController"]

_log = logging.getLogger("adaptive_gamma.envoy")

_FIXED = ("admin",)
"""Keys that only a restart can change: the port is bound."""
_HORIZON = 1.5
"""Intervals for which weights must last: the one between two rewrites, and what a rewrite takes."""
_ADMIN_STALE_S = 2.0
_KEPT_INTERVALS = 3
"""Looks at Envoy are kept for so many intervals beside the time that a scrape may take."""


class FilesController:
    """Keeps the files of one Envoy.

    Args:
        settings: the configuration.
        fleet: the replicas; started and stopped here.
        policy: prices.
        place: where the files go, and where Envoy listens.
        interval_s: between two looks, in seconds.
        clock: the fleet's: monotonic seconds.
    """

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet,
        policy: Policy,
        place: Place,
        *,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.policy = policy
        self.fleet = fleet
        self.place = place
        self.writer = FileWriter(place.folder, private=settings.engine_api_key is not None)
        self.admin = EnvoyAdmin(place.envoy_admin, timeout_s=max(0.5, interval_s))
        self.plan: Plan | None = None
        """What was written last, and the shares with it."""
        self.shares: list[Shares] = []
        self.writes: Counter[str] = Counter()
        """Rewrites by kind of file."""
        self.files: dict[str, dict[str, Any]] = {}
        """All files as they were written last."""
        self.admin_failures = 0
        self.reload_failures = 0
        self.admin_read_at: float | None = None
        """Monotonic seconds of the last page of Envoy's that could be read."""
        self.draining = False
        self.discovery: Callable[[], list[dict[str, Any]]] = list
        """What is known of the places where replicas are found, a row for each."""
        self._interval_s = interval_s
        self._clock = clock
        self._addresses = AddressBook(settings.health.interval_s, clock)
        self._endpoints: dict[str, Address] = {}
        self.arrivals = Arrivals()
        """How many requests come to each cluster."""
        self._own: dict[str, OwnLoad] = {}
        self._scraped: dict[str, float] = {}
        """When the reading was made that has been set against Envoy's counts, by url."""
        self._prices = PriceBook()
        self._reasons: dict[tuple[str, str], str] = {}
        """Why a cluster's requests went to a replica, when they last did."""
        self._switch = PlanSwitch()
        self._frame: dict[str, dict[str, Any]] = {}
        """The files other than those of endpoints, as they are written."""
        self._frame_of: tuple[object, ...] = ()
        """What they were made of: they change seldom, and are as much work as the rest."""
        self._known: frozenset[str] = frozenset()
        """The clusters that Envoy had when it was asked last."""

    @property
    def not_ready_because(self) -> str | None:
        """Why Envoy should get no requests, or None."""
        if self.draining:
            return "draining"
        if self.plan is None:
            return "no file has been written yet"
        if not self.envoy_seen:
            return "Envoy's admin port does not answer"
        return self.fleet.not_ready_because

    @property
    def envoy_seen(self) -> bool:
        """Whether Envoy's admin port was read lately."""
        read = self.admin_read_at
        return read is not None and self._clock() - read <= max(_ADMIN_STALE_S, 3 * self._interval_s)

    async def run(self) -> None:
        """Look and rewrite for ever."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            await self.look()
            try:
                await self.rewrite()
            except ConfigurationError as error:
                _log.error("%s", error)
            await asyncio.sleep(max(0.0, started + self._interval_s - loop.time()))

    async def look(self) -> EnvoyLoad | None:
        """Read what is open at Envoy; None where its admin port does not answer."""
        try:
            load = await self.admin.load()
        except ScrapeError as error:
            self.admin_failures += 1
            if self.envoy_seen or self.admin_failures == 1:
                _log.warning("Envoy's admin port at %s: %s", self.place.envoy_admin, error)
            return None
        if not self.envoy_seen:
            _log.info("Envoy's admin port at %s answers", self.place.envoy_admin)
        self.admin_read_at = now = self._clock()
        self._known = frozenset(load.active)
        self.arrivals.count(load.total, now)
        self._take_open(load, now)
        return load

    def _take_open(self, load: EnvoyLoad, now: float) -> None:
        classes = {cluster.name: cluster.needs.request_class for cluster in (self.plan.clusters if self.plan else ())}
        places = self._places()
        for replica in self.fleet.leaving:
            if replica not in places:
                replica.open_requests.counted({})
        for replica, address in places.items():
            counts: Counter[str] = Counter()
            for cluster, active in load.active.items():
                counts[classes.get(cluster, self.policy.default_class)] += active[address.ip, address.port]
            replica.open_requests.counted(counts)
            own = self._own.setdefault(
                replica.url, OwnLoad(_KEPT_INTERVALS * self._interval_s + 2 * self.settings.scrape.timeout_s)
            )
            own.look(now, sum(counts.values()), load.begun[address.ip, address.port])
            if replica.scraped_at is not None and self._scraped.get(replica.url) != replica.scraped_at:
                self._scraped[replica.url] = replica.scraped_at
                ours = own.most_at(replica.scraped_at)
                if ours is not None:
                    replica.state.in_flight_at_scrape = ours

    async def rewrite(self) -> list[str]:
        """Decide on what is known now and write the files that have changed; their names."""
        fleet = self.fleet
        self._endpoints = await self._addresses.look_up(r.url for r in (*fleet.replicas, *fleet.leaving))
        # From here on nothing is waited for: what is written is of one moment.
        states, settings = self._looked_at(), self.settings
        wanted = make_plan(
            states,
            self.policy,
            default_class=settings.classify.default,
            structure_apart=settings.capability.structured_output == "plain",
        )
        written_now = self._switch.write(wanted, self._known if self.envoy_seen else None, self._clock())
        plan = replace(written_now.routes, clusters=written_now.clusters)
        shares = self._decide(plan, states)
        places = self._places()
        addresses = {replica.name: address for replica, address in places.items() if not replica.leaving}
        ending = [Ending(each.state, address) for each, address in places.items() if each.state.draining]
        self._reasons |= {
            (cluster.name, share.replica): share.reason
            for cluster, shared in zip(plan.clusters, shares, strict=True)
            for share in shared.first
        }
        endpoints = render_endpoints(plan, shares, states, addresses, self._reasons, ending)
        # Weights go out before anything else is looked at.
        written = [name for name, content in endpoints.items() if self.writer.write(name, content)]
        frame_of = (frame(plan), settings, self.place, fleet.models_page())
        if frame_of != self._frame_of:
            self._frame = render_frame(plan, settings, self.place, frame_of[-1])
            written += [name for name, content in self._frame.items() if self.writer.write(name, content)]
            self._frame_of = frame_of
        files = endpoints | self._frame
        self.plan, self.shares, self.files = plan, shares, files
        for name in written:
            self.writes[name.partition("/")[0].removesuffix(".json")] += 1
        if CLUSTERS_FILE in written:
            self.writer.forget({name for name in self.writer.names if name.startswith(ENDPOINTS_FOLDER)} - files.keys())
        return written

    def _looked_at(self) -> list[ReplicaState]:
        """The states of the replicas that have been looked at once, where there are any: the models that one has say
        which clusters there are, and these would change twice for each that joins."""
        looked = [
            replica.state
            for replica in self.fleet.replicas
            if replica.models_asked and (replica.scraped_at is not None or replica.scrape_error is not None)
        ]
        return looked or self.fleet.states

    def _places(self) -> dict[FleetReplica, Address]:
        """Where the replicas are, those included that have left with requests open. An address is of one only: a
        replica that has left may have been at one that is another's by now."""
        places: dict[FleetReplica, Address] = {}
        taken: set[tuple[str, int]] = set()
        for replica in (*self.fleet.replicas, *self.fleet.leaving):
            address = self._endpoints.get(replica.url)
            if address is not None and not (replica.leaving and (address.ip, address.port) in taken):
                places[replica] = address
                taken.add((address.ip, address.port))
        return places

    def _decide(self, plan: Plan, states: Sequence[ReplicaState]) -> list[Shares]:
        settings = self.settings
        horizon = self._interval_s * _HORIZON
        expected = [
            Expected(cluster.needs, self.arrivals.rate(cluster.name) * horizon, cluster.replicas)
            for cluster in plan.clusters
        ]
        if settings.mode == "observe":
            return [even_shares(kind, states) for kind in expected]
        limits = DecisionLimits(settings.decision.kv_usage_limit, settings.decision.slo_tpot_s)
        decided = shares_of(expected, states, self.policy, now=self._clock(), limits=limits, prices=self._prices)
        return [
            even_shares(kind, states) if cluster.searched else shared
            for cluster, kind, shared in zip(plan.clusters, expected, decided, strict=True)
        ]

    def apply(
        self,
        settings: Settings,
        policy: Policy,
        origin: Callable[[str], str] = lambda key: "settings",
        *,
        not_ready: Collection[str] = (),
    ) -> None:
        """Go on with another configuration from the next rewrite on. Must be called in the running event loop.

        Args:
            settings: the whole configuration.
            policy: the one it names.
            origin: names the file or variable that gave a key.
            not_ready: replicas that are to get nothing new; see ``take_replicas``.

        Raises:
            ConfigurationError: it has what Envoy's files cannot say, or what only a restart can change differs.
                Nothing has changed then, except that the refusal is counted.
        """
        try:
            refuse_settings(settings, self.place.envoy_admin, origin)
            refuse_changes(self.settings, settings, _FIXED, origin)
        except ConfigurationError:
            self.reload_failed()
            raise
        self._take(settings, not_ready, FleetOptions.of(settings))
        self.policy = policy
        self.place = replace(self.place, listen=settings.listen)
        self.writer.private = settings.engine_api_key is not None
        self._reasons.clear()
        self.fleet.take_policy(policy)

    def take_replicas(self, replicas: Sequence[ReplicaSettings], not_ready: Collection[str] = ()) -> None:
        """Go on with other replicas from the next rewrite on, and the same configuration.

        Args:
            replicas: all of them.
            not_ready: names of those that get nothing new while what is open on them ends. They stay, as they may come
                back; one that has never been here does not join.
        """
        self._take(self.settings.model_copy(update={"replicas": list(replicas)}), not_ready)

    def _take(self, settings: Settings, not_ready: Collection[str], options: FleetOptions | None = None) -> None:
        self.settings = self.fleet.take(settings, not_ready, options)
        names = {replica.name for replica in self.fleet.replicas}
        self._reasons = {key: reason for key, reason in self._reasons.items() if key[1] in names}
        self._forget_gone()

    def _forget_gone(self) -> None:
        urls = {replica.url for replica in (*self.fleet.replicas, *self.fleet.leaving)}
        self._own = {url: own for url, own in self._own.items() if url in urls}
        self._scraped = {url: at for url, at in self._scraped.items() if url in urls}

    def reload_failed(self) -> None:
        """Count a configuration that was refused."""
        self.reload_failures += 1

    async def close(self) -> None:
        """Drop the connections to Envoy's admin port."""
        await self.admin.close()

    async def drain(self, grace_s: float) -> int:
        """Have Envoy take no more connections, finish what is open, and end; how many requests had to be cut.

        Raises ScrapeError where Envoy does not answer.
        """
        self.draining = True
        await self.admin.drain()
        loop = asyncio.get_running_loop()
        end = loop.time() + grace_s
        left = await self.admin.open()
        while left and loop.time() < end:
            await asyncio.sleep(min(self._interval_s, max(0.0, end - loop.time())))
            left = await self.admin.open()
        await self.admin.quit()
        return left

    def status(self) -> list[dict[str, Any]]:
        """The clusters and how their requests are shared out, for ``/status``."""
        if self.plan is None:
            return []
        return [
            {
                "cluster": cluster.name,
                "class": cluster.needs.request_class,
                "parameters": sorted(cluster.needs.parameters),
                "requests_per_s": round(self.arrivals.rate(cluster.name), 3),
                "first": [share._asdict() for share in shares.first],
                "spare": list(shares.spare),
                "last": list(shares.last),
                "at_capacity": shares.at_capacity,
            }
            for cluster, shares in zip(self.plan.clusters, self.shares, strict=True)
        ]
