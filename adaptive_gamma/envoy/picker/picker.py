"""The picker: a request's head and body become an endpoint, by the same decision as everywhere."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from adaptive_gamma.config import ReplicaSettings, Settings, refuse_changes
from adaptive_gamma.envoy.addresses import AddressBook
from adaptive_gamma.envoy.picker.answers import Pick
from adaptive_gamma.envoy.picker.head import RequestHead
from adaptive_gamma.envoy.picker.unseen_ends import OpenEstimates
from adaptive_gamma.errors import ConfigurationError, NoReplica
from adaptive_gamma.fleet import Fleet, FleetOptions
from adaptive_gamma.fleet.choice import Chooser, ServedPolicy, classifier_of, decision_limits
from adaptive_gamma.routing import AffinityIndex, Locality, ReplicaState, RequestNeeds
from adaptive_gamma.routing.body_room import BodyRoom
from adaptive_gamma.routing.endpoints import Endpoint, EndpointTable
from adaptive_gamma.routing.error_answer import ErrorAnswer, shortened
from adaptive_gamma.routing.json_request import JsonRequest, parse_json
from adaptive_gamma.routing.no_replica import none_left

__all__ = ["NONE", "Picker"]

NONE: Final = "none"
"""Label of picks that gave no endpoint."""
_FIXED = ("admin",)
"""Keys that only a restart can change: the port is bound."""
_SOON = ((b"retry-after", b"1"),)
_ANYTHING = Endpoint(frozenset(), json=False)


class Picker:
    """Picks endpoints, and keeps what is known up to date.

    Args:
        settings: the configuration.
        fleet: the replicas; started and stopped elsewhere.
        policy: prices.
        any_path: pick for every path that comes, where the gateway's own routes say which may.
        test_selection: heed the header by which conformance tests say what is to be picked. Never in service.
        clock: the fleet's: monotonic seconds.
    """

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet,
        policy: ServedPolicy,
        *,
        any_path: bool = False,
        test_selection: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.fleet = fleet
        self.draining = False
        self.reload_failures = 0
        self.picks: Counter[tuple[str, str]] = Counter()
        """Picks by replica and outcome: ``ok``, or why there was none."""
        self.decisions: Counter[tuple[str, str, str]] = Counter()
        """By class, pool and reason."""
        self.open_streams = 0
        """Requests that are being picked for now."""
        self.discovery: Callable[[], list[dict[str, Any]]] = list
        """What is known of the places where replicas are found, a row for each."""
        self.look_up_due = asyncio.Event()
        """Set when a replica has come whose address has to be looked up before it is picked."""
        self.test_selection = test_selection
        self._any_path = any_path
        self._clock = clock
        self._estimates = OpenEstimates(fleet, clock)
        self.settings = settings
        """What is in force, with the replicas of now."""
        self.body_room = BodyRoom()
        """Shared by the bodies that streams hold until they are picked for."""
        self._affinity = _affinity_of(settings)
        self._take(settings, policy)
        fleet.on_cache_lost = self._cache_lost
        self._book = AddressBook(settings.health.interval_s, clock)
        self._endpoints: dict[str, str] = {}
        """``ip:port`` by the name of a replica."""
        self._names: dict[str, list[str]] = {}
        """Names of replicas by ``ip:port`` and by ``ip``."""
        self._all_found = False

    @property
    def policy(self) -> ServedPolicy:
        """The policy in force."""
        return self._chooser.policy

    @property
    def picks_are_answered(self) -> bool:
        """Whether a gateway should ask here: the replicas have been looked at, and the end has not come."""
        return not self.draining and self.fleet.looked and bool(self._endpoints)

    @property
    def not_ready_because(self) -> str | None:
        """Why requests should not come, or None."""
        if self.draining:
            return "draining"
        if self.fleet.looked and self.fleet.replicas and not self._endpoints:
            return "no replica's address is known"
        return self.fleet.not_ready_because

    async def look_up(self) -> None:
        """Find the addresses of replicas that are given by name; to be repeated, as they may change."""
        self.look_up_due.clear()
        await self._book.look_up(replica.url for replica in self.fleet.replicas)
        self._take_addresses()

    def apply(
        self,
        settings: Settings,
        policy: ServedPolicy,
        origin: Callable[[str], str] = lambda key: "settings",
        *,
        not_ready: Collection[str] = (),
    ) -> None:
        """Go on with another configuration from the next pick on. Must be called in the running event loop.

        Args:
            settings: the whole configuration.
            policy: the one it names.
            origin: names the file or variable that gave a key.
            not_ready: replicas that are not to be picked; see ``take_replicas``.

        Raises:
            ConfigurationError: what only a restart can change differs. Nothing has changed then, except that the
                refusal is counted.
        """
        try:
            refuse_changes(self.settings, settings, _FIXED, origin)
        except ConfigurationError:
            self.reload_failed()
            raise
        self._take(self.fleet.take(settings, not_ready, FleetOptions.of(settings)), policy)
        self.fleet.take_policy(policy)
        self._replaced()

    def take_replicas(self, replicas: Sequence[ReplicaSettings], not_ready: Collection[str] = ()) -> None:
        """Go on with other replicas from the next pick on, and the same configuration.

        Args:
            replicas: all of them.
            not_ready: names of those that are not to be picked. They stay, with all that is known of them, as they may
                come back; one that has never been here does not join.
        """
        wanted = self.settings.model_copy(update={"replicas": list(replicas)})
        self.settings = self.fleet.take(wanted, not_ready)
        self._replaced()

    def _replaced(self) -> None:
        """What follows once the fleet has its new replicas."""
        self._estimates.forget_gone()
        names = {replica.name for replica in self.fleet.replicas}
        self.picks = Counter({key: count for key, count in self.picks.items() if key[0] in names or key[0] == NONE})
        self._take_addresses()
        if not self._all_found:
            self.look_up_due.set()

    def _take_addresses(self) -> None:
        """From here on those replicas are picked whose addresses are known; others have to be looked up first."""
        endpoints: dict[str, str] = {}
        names: dict[str, list[str]] = {}
        for replica in self.fleet.replicas:
            address = self._book.known(replica.url)
            if address is None:
                continue
            ip = f"[{address.ip}]" if ":" in address.ip else address.ip
            endpoints[replica.name] = endpoint = f"{ip}:{address.port}"
            for key in (endpoint, ip, address.ip) if ip != address.ip else (endpoint, ip):
                names.setdefault(key, []).append(replica.name)
        self._endpoints, self._names = endpoints, names
        self._all_found = len(endpoints) == len(self.fleet.replicas)

    def reload_failed(self) -> None:
        """Count a configuration that was refused."""
        self.reload_failures += 1

    def refresh(self) -> None:
        """Bring the counts of open requests up to date, for whoever shows them."""
        self._estimates.refresh()

    def accept(self, head: RequestHead) -> Endpoint:
        """What a request's path stands for. Raises ErrorAnswer where its head alone tells that it is not served."""
        endpoint = self._table.find(head.path)
        if endpoint is None:
            if not self._any_path:
                raise ErrorAnswer(
                    404, f"there is no {shortened(head.path)} here", "path_not_found", outcome="client_error"
                )
            return _ANYTHING
        method = head.method.encode("latin-1")
        if method not in endpoint.methods and method != b"OPTIONS":
            message = f"{shortened(head.method)} is not allowed on {shortened(head.path)}"
            allow = ((b"allow", endpoint.allow),)
            raise ErrorAnswer(405, message, "method_not_allowed", outcome="client_error", headers=allow)
        if head.content_length is not None:
            self.check_size(head.content_length)
        return endpoint

    def check_size(self, size: int) -> None:
        """Raises ErrorAnswer where a body of so many bytes is too large."""
        limit = self.settings.limits.body_bytes
        if size > limit:
            message = f"the request body is over the limit of {limit} bytes"
            raise ErrorAnswer(413, message, "body_too_large", outcome="client_error")

    def pick(
        self,
        head: RequestHead,
        endpoint: Endpoint,
        body: bytes | None,
        subset: frozenset[str] | None,
        *,
        whole: bool = True,
    ) -> Pick:
        """The endpoint for a request.

        Args:
            head: its headers.
            endpoint: what its path stands for.
            body: None where the gateway does not show it.
            subset: endpoints the gateway allows; None allows all.
            whole: whether the body is known to be all of it.

        Raises:
            ErrorAnswer: there is none; what the client is told.
        """
        if self.test_selection and head.test_selection is not None:
            return self._selected(head.test_selection, subset)
        request = None
        if body is not None and endpoint.json and head.method != "OPTIONS":
            try:
                request = parse_json(body, head.content_encoding)
            except ErrorAnswer:
                if whole:
                    raise
        needs, locality = self._needs(head, endpoint, request)
        among = self._allowed(subset)
        self._estimates.refresh()
        try:
            choice = self._chooser.choose(needs, (), among)
        except NoReplica as error:
            if error.at_capacity and not error.model_unknown:
                raise ErrorAnswer(429, str(error), "at_capacity", outcome="rejected", headers=_SOON) from error
            raise none_left(error, needs.model, tried=False) from error
        decided, name = choice.decided, choice.replica
        endpoints = self._endpoints
        places = [endpoints[name]]
        if self._fallbacks:
            others = [each for each in (decided.replica, *decided.next_best) if each != name]
            places += [endpoints[each] for each in others[: self._fallbacks]]
        self._estimates.picked(name, decided.request_class)
        if locality is not None and self._affinity is not None:
            self._affinity.record(locality, name, needs.prompt_tokens, self._clock())
        self.picks[name, "ok"] += 1
        self.decisions[decided.request_class, decided.pool, decided.reason] += 1
        return Pick(",".join(places), name, decided.request_class, choice.reason, choice.pool, choice.gamma)

    def refused(self, error: ErrorAnswer) -> None:
        """Count a request that got an answer of ours."""
        self.picks[NONE, error.outcome] += 1

    def _needs(
        self, head: RequestHead, endpoint: Endpoint, request: JsonRequest | None
    ) -> tuple[RequestNeeds, Locality | None]:
        classify = self._classifier.classify
        if request is None:
            return RequestNeeds(classify(path=head.path, header=head.request_class)), None
        generates = endpoint.generates
        request_class = classify(
            path=head.path,
            model=request.model,
            header=head.request_class,
            text=request.prompt_text if generates else None,
        )
        locality = None
        if self._affinity is not None and generates:
            session, prefix = head.session or request.user, request.prefix_text()
            if session or prefix:
                locality = self._affinity.look_up(session, prefix, self._clock())
        needs = RequestNeeds(
            request_class,
            request.prompt_tokens,
            request.model,
            request.parameters,
            request.max_output_tokens,
            locality.cached if locality is not None and locality.cached else None,
        )
        return needs, locality

    def _allowed(self, subset: frozenset[str] | None) -> Sequence[ReplicaState] | None:
        """The states that may be picked of; None for all. Raises ErrorAnswer where there is none."""
        states = self.fleet.states
        if subset is None:
            if self._all_found and states:
                return None
            among = [state for state in states if state.name in self._endpoints]
            message = "no endpoint is known"
        else:
            names = {name for key in subset for name in self._names.get(key, ())}
            among = [state for state in states if state.name in names and state.name in self._endpoints]
            message = "none of the endpoints that the gateway allows is known here"
        if not among:
            raise ErrorAnswer(503, message, "no_replica", outcome="rejected", headers=_SOON)
        return among

    def _selected(self, wanted: str, subset: frozenset[str] | None) -> Pick:
        """What a test's header names, as far as it is known here: by ``ip:port``, or by ``ip``."""
        allowed = {state.name for state in self._allowed(subset) or self.fleet.states}
        names = [name for each in wanted.split(",") for name in self._names.get(each.strip(), ()) if name in allowed]
        if not names:
            raise ErrorAnswer(503, "the endpoint selected is not known here", "no_replica", outcome="rejected")
        self.picks[names[0], "ok"] += 1
        state = self.fleet.by_name(names[0]).state
        places = ",".join(self._endpoints[name] for name in names)
        return Pick(places, names[0], self._classifier.classify(path=""), "test", state.pool, None)

    def _take(self, settings: Settings, policy: ServedPolicy) -> None:
        if settings.affinity != self.settings.affinity:
            self._affinity = _affinity_of(settings)
        self.settings = settings
        self.body_room.resize(settings.limits.bodies_bytes, settings.limits.body_bytes)
        self._table = EndpointTable(settings.allow_paths)
        self._classifier = classifier_of(settings.classify, policy)
        self._chooser = Chooser(
            self.fleet, policy, mode=settings.mode, limits=decision_limits(settings.decision), clock=self._clock
        )
        header, key = settings.classify.header, settings.engine_api_key
        self.class_header = None if header is None else header.lower()
        self.authorization = None if key is None else f"Bearer {key.get_secret_value()}".encode()
        self._fallbacks = settings.retry.attempts

    def _cache_lost(self, replica: str) -> None:
        if self._affinity is not None:
            self._affinity.forget(replica)


def _affinity_of(settings: Settings) -> AffinityIndex | None:
    affinity = settings.affinity
    return AffinityIndex(affinity.entries, affinity.max_age_s) if affinity.entries else None
