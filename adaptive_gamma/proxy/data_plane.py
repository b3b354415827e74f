"""What the data port and the admin port share: one object, made at the start from the settings."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from adaptive_gamma.config import refuse_changes
from adaptive_gamma.config.settings import LimitSettings, ReplicaSettings, Settings
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.fleet import FleetLearning, FleetOptions, GammaControl
from adaptive_gamma.fleet.choice import Chooser, ServedPolicy, classifier_of, decision_limits
from adaptive_gamma.fleet.discovered import discovery_families
from adaptive_gamma.observe import LineLog
from adaptive_gamma.policy import Policy
from adaptive_gamma.proxy.asking import AskedBody, ReportLog, asked_body
from adaptive_gamma.proxy.decision_log import DecisionLog
from adaptive_gamma.proxy.metrics import ProxyMetrics
from adaptive_gamma.proxy.observing import ObservationKeeper
from adaptive_gamma.proxy.stored_responses import StoredResponses
from adaptive_gamma.proxy.telling import Prepared, Telling
from adaptive_gamma.proxy.upstream import Upstream, UpstreamLimits
from adaptive_gamma.proxy.waiting import WaitingRoom
from adaptive_gamma.routing import AffinityIndex, GammaSetting
from adaptive_gamma.routing.body_room import BodyRoom
from adaptive_gamma.routing.endpoints import EndpointTable

if TYPE_CHECKING:
    from adaptive_gamma.fleet import Fleet, FleetReplica
    from adaptive_gamma.routing.json_request import JsonRequest

__all__ = ["DataPlane"]

_FIXED = ("listen", "admin")
"""Keys that only a restart can change: the ports are bound."""


class DataPlane:
    """Settings, fleet, policy, engines' connections, counters and the decision log of one process.

    ``clock`` is the fleet's: monotonic seconds.
    """

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet,
        policy: ServedPolicy,
        *,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.body_room = BodyRoom()
        self._take_settings(settings)
        self.fleet = fleet
        self.waiting = WaitingRoom(lambda: self.settings.load.queue, lambda: self.settings.load.queue_timeout_s)
        """The requests that wait for a place on a replica."""
        self.affinity = _affinity(settings)
        """Which replica has which prompt in its cache; None where that is switched off."""
        self.reports = ReportLog()
        """Which replicas report on the drafts of a request."""
        self.stored = StoredResponses(settings.capability.stored_responses)
        """Which replica stores which response."""
        self.observations = ObservationKeeper(settings.observe)
        """The requests that were observed."""
        self.telling = Telling(settings)
        """What is told of requests: access log and spans."""
        self.metrics = ProxyMetrics(
            fleet,
            clock,
            reports=lambda: self.reports.reports,
            queued=lambda: len(self.waiting),
            affinity_entries=lambda: 0 if self.affinity is None else len(self.affinity),
            stored_responses=lambda: len(self.stored),
            observing=lambda: chain(self.observations.families(), self.telling.families()),
            discovering=lambda: discovery_families(self.discovery()),
        )
        self.discovery: Callable[[], list[dict[str, Any]]] = list
        """What is known of the places where replicas are found, a row for each; see ``discovered``."""
        fleet.on_cache_lost = self._cache_lost
        self.clock = clock
        self._ending: set[asyncio.Task[None]] = set()
        self.learning = self._new_learning(settings, policy)
        """What acceptance was learned; None where that is switched off."""
        fleet.learning = self.metrics.learning = self.learning
        self.decisions = DecisionLog(settings.decision.keep, self.observations)
        self.chooser = Chooser(
            fleet, policy, mode=settings.mode, limits=decision_limits(settings.decision), clock=clock, draw=draw
        )
        self.endpoints = EndpointTable(settings.allow_paths)
        self.classifier = classifier_of(settings.classify, policy)
        self.class_header = _class_header(settings)
        self.engine_key = _engine_key(settings)
        self._started = False
        self.draining = False
        """Set when the process has been told to stop; it is then not ready."""
        self.upstreams = {replica.name: self._upstream(replica, settings.limits) for replica in settings.replicas}
        self.control = GammaControl(fleet, lambda: self.policy, clock)
        """Sets the gamma of replicas that allow it."""
        self.control.on_change = self._gamma_changed
        self._configure_control()

    @property
    def policy(self) -> ServedPolicy:
        """The policy in force."""
        return self.chooser.policy

    def replace_policy(self, policy: ServedPolicy) -> None:
        """Decide by another policy from the next request on."""
        self.classifier = classifier_of(self.settings.classify, policy)
        self.chooser.policy = policy
        self.fleet.take_policy(policy)

    def start(self) -> None:
        """Begin to learn. Must be called in the running event loop."""
        self._started = True
        if self.learning is not None:
            self.learning.start()

    async def stop(self) -> None:
        """End what was started, and drop the idle connections to engines."""
        self._started = False
        if self.learning is not None:
            await self.learning.stop()
        await asyncio.gather(*self._ending)
        self.close()

    def apply(
        self,
        settings: Settings,
        policy: ServedPolicy,
        origin: Callable[[str], str] = lambda key: "settings",
        *,
        not_ready: Collection[str] = (),
    ) -> None:
        """Go on with another configuration from the next request on. All or nothing.

        Requests under way end as they began, on the replica they are on, were it removed or at another address by
        then. What is open is counted on. Must be called in the running event loop.

        Args:
            settings: the whole configuration.
            policy: the one it names.
            origin: names the file or variable that gave a key.
            not_ready: replicas that are to get nothing new; see ``take_replicas``.

        Raises:
            ConfigurationError: what only a restart can change differs. Nothing has changed then, except that the
                refusal is counted.
        """
        self._refuse_fixed(settings, origin)
        before = self.settings
        replicas = self.fleet.without_newcomers(settings.replicas, not_ready)
        settings = settings.model_copy(update={"replicas": replicas})
        classifier, endpoints = classifier_of(settings.classify, policy), EndpointTable(settings.allow_paths)
        telling = self._prepared_telling(settings, origin)
        try:
            log = self._observation_log(settings, origin)
        except ConfigurationError:
            self.telling.discard(telling)
            raise
        kept, upstreams = self._upstreams_for(settings)
        self.fleet.replace(settings.replicas, FleetOptions.of(settings))
        self._take_settings(settings)
        self.classifier, self.endpoints = classifier, endpoints
        self.class_header, self.engine_key = _class_header(settings), _engine_key(settings)
        self.chooser.mode, self.chooser.limits = settings.mode, decision_limits(settings.decision)
        self.chooser.policy = policy
        self.fleet.take_policy(policy)
        self._apply_learning(settings, policy)
        if settings.affinity != before.affinity:
            self.affinity = _affinity(settings)
        self.stored.resize(settings.capability.stored_responses)
        self.observations.take(settings.observe, log)
        self.telling.take(settings, telling)
        self.decisions.resize(settings.decision.keep)
        self._replicas_replaced(kept, upstreams, not_ready)

    def take_replicas(self, replicas: Sequence[ReplicaSettings], not_ready: Collection[str] = ()) -> None:
        """Go on with other replicas and the same configuration, as ``apply`` does.

        Args:
            replicas: all of them.
            not_ready: names of those that get nothing new while what is open on them ends. They stay in the fleet,
                with all that is known of them, as they may come back; one that has never been in it does not join.
        """
        joining = self.fleet.without_newcomers(replicas, not_ready)
        settings = self.settings.model_copy(update={"replicas": joining})
        kept, upstreams = self._upstreams_for(settings)
        self.fleet.replace(settings.replicas)
        self._take_settings(settings)
        self._replicas_replaced(kept, upstreams, not_ready)

    @property
    def ready(self) -> bool:
        """Whether requests should come here."""
        return self.not_ready_because is None

    @property
    def not_ready_because(self) -> str | None:
        """Why requests should not come here (yet), or None."""
        return "draining" if self.draining else self.fleet.not_ready_because

    def reload_failed(self) -> None:
        """Count a configuration that was refused."""
        self.metrics.reload_failed()

    def asked(self, replica: str, path: str, request: JsonRequest, body: bytes) -> AskedBody | None:
        """The body that makes a replica report on the drafts of a stream, where it has to be asked for that."""
        return asked_body(self.fleet.by_name(replica), path, request, body, self.reports)

    def close(self) -> None:
        """Drop the idle connections to engines, and write what is waiting for the log."""
        for upstream in self.upstreams.values():
            upstream.close()
        self.observations.close()
        self.telling.close()

    def _take_settings(self, settings: Settings) -> None:
        self.settings = settings
        # What every request needs of them; a look into the settings themselves costs several times as much.
        self.body_bytes = settings.limits.body_bytes
        self.body_room.resize(settings.limits.bodies_bytes, self.body_bytes)
        self.retry_attempts = settings.retry.attempts
        self.asks_for_usage = settings.learn.ask == "usage"

    def _upstreams_for(self, settings: Settings) -> tuple[frozenset[str], dict[str, Upstream]]:
        """The replicas that stay where they are, and the connections of all."""
        before = self.settings
        stay = _places(before).items() & _places(settings).items() if before.limits == settings.limits else ()
        kept = frozenset(name for name, _ in stay)
        return kept, {
            replica.name: self.upstreams[replica.name]
            if replica.name in kept
            else self._upstream(replica, settings.limits)
            for replica in settings.replicas
        }

    def _replicas_replaced(
        self, kept: frozenset[str], upstreams: dict[str, Upstream], not_ready: Collection[str]
    ) -> None:
        """What follows once the fleet has its new replicas."""
        dropped = [upstream for name, upstream in self.upstreams.items() if name not in kept]
        self.upstreams = upstreams
        self.fleet.hold(not_ready)
        self._configure_control()
        self.metrics.forget_gone()
        self.reports.keep_only(kept)
        for upstream in dropped:
            upstream.close()
        self.waiting.room_made()

    def _configure_control(self) -> None:
        settings = self.settings
        self.control.configure(
            settings.control,
            mode=settings.mode,
            slo_tpot_s=settings.decision.slo_tpot_s,
            half_life_s=settings.scrape.half_life_s,
        )

    def _cache_lost(self, replica: str) -> None:
        if self.affinity is not None:
            self.affinity.forget(replica)

    def _gamma_changed(self, replica: FleetReplica, gamma: GammaSetting | None, at: float) -> None:
        if self.learning is not None:
            self.learning.note_gamma_change(replica)

    def _new_learning(self, settings: Settings, policy: ServedPolicy) -> FleetLearning | None:
        if not settings.learn.enabled or not isinstance(policy, Policy):
            return None

        def swap(learned: Policy) -> None:
            if self.learning is made:  # else a reload has ended it while the table was in the making
                self.replace_policy(learned)

        made = FleetLearning(settings.learn, policy, _drafters(settings), swap=swap, clock=self.clock)
        return made

    def _apply_learning(self, settings: Settings, policy: ServedPolicy) -> None:
        """Go on learning under another configuration, begin, or end."""
        if self.learning is not None and settings.learn.enabled and isinstance(policy, Policy):
            self.learning.reconfigure(settings.learn, policy, _drafters(settings))
            return
        before, self.learning = self.learning, self._new_learning(settings, policy)
        self.fleet.learning = self.metrics.learning = self.learning
        if before is not None:
            ending = asyncio.get_running_loop().create_task(before.stop())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        if self.learning is not None and self._started:
            self.learning.start()

    def _refuse_fixed(self, settings: Settings, origin: Callable[[str], str]) -> None:
        try:
            refuse_changes(self.settings, settings, _FIXED, origin)
        except ConfigurationError:
            self.reload_failed()
            raise

    def _observation_log(self, settings: Settings, origin: Callable[[str], str]) -> LineLog | None:
        try:
            return self.observations.prepared(settings.observe, origin("observe.log"))
        except ConfigurationError:
            self.reload_failed()
            raise

    def _prepared_telling(self, settings: Settings, origin: Callable[[str], str]) -> Prepared:
        try:
            return self.telling.prepared(settings, origin)
        except ConfigurationError:
            self.metrics.reload_failed()
            raise

    def _upstream(self, replica: ReplicaSettings, limits: LimitSettings) -> Upstream:
        return Upstream(
            replica.url,
            UpstreamLimits(limits.connect_timeout_s, limits.first_byte_timeout_s, limits.idle_timeout_s),
            on_open=self.metrics.connection_opened(replica.name),
            on_resend=lambda: self.metrics.retried("stale_connection"),
        )


def _places(settings: Settings) -> dict[str, str]:
    return {replica.name: replica.url for replica in settings.replicas}


def _drafters(settings: Settings) -> list[str]:
    """The drafter families of the replicas, those that may still be found included."""
    found = () if settings.discovery is None else settings.discovery.services
    return sorted({each.drafter for each in (*settings.replicas, *found) if each.drafter is not None})


def _affinity(settings: Settings) -> AffinityIndex | None:
    affinity = settings.affinity
    return AffinityIndex(affinity.entries, affinity.max_age_s) if affinity.entries else None


def _class_header(settings: Settings) -> bytes | None:
    header = settings.classify.header
    return None if header is None else header.lower().encode("ascii")


def _engine_key(settings: Settings) -> bytes | None:
    key = settings.engine_api_key
    return None if key is None else key.get_secret_value().encode("utf-8")
