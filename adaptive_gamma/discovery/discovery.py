"""All sources of one configuration, and what they have found together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_gamma.config import DiscoverySettings, ReplicaSettings, ServiceSettings
from adaptive_gamma.discovery.dns_source import DnsSource
from adaptive_gamma.discovery.endpoints import Replicas, merged
from adaptive_gamma.discovery.kube_access import SERVICE_ACCOUNT, find_access
from adaptive_gamma.discovery.kubernetes import KubernetesSource
from adaptive_gamma.discovery.pace import Pace
from adaptive_gamma.discovery.source import Source
from adaptive_gamma.errors import ConfigurationError

__all__ = ["Discovery", "Prepared"]

_MOST_NOTES = 20


@dataclass(frozen=True, slots=True)
class _Place:
    """A service of the settings, and who looks for it."""

    service: ServiceSettings
    source: Source
    known: tuple[object, ...]
    """What tells the place apart from others, however it is reached."""
    asked: tuple[object, ...]
    """The same, and how it is reached."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Another section, checked and ready to be taken; nothing has begun yet."""

    places: tuple[_Place, ...]

    def replicas(self, static: Sequence[ReplicaSettings]) -> Replicas:
        """All replicas under this section, as they are known now."""
        return merged(static, [(place.service, place.source.found(place.service)) for place in self.places])


class Discovery:
    """Looks for the replicas of ``discovery`` for as long as it runs. Everything happens in one event loop.

    Args:
        settings: the section; None looks for nothing.
        changed: called when other replicas are known than before. What they are is asked for by ``replicas``.
        environment: where a pod finds the API server.
        account: the folder of the pod's service account.
        pace: time and chance.
        origin: names the file or variable that gave a key of the settings.

    Raises:
        ConfigurationError: a section that cannot be used where this process runs.
    """

    def __init__(
        self,
        settings: DiscoverySettings | None,
        *,
        changed: Callable[[], None] = lambda: None,
        environment: Mapping[str, str] | None = None,
        account: Path = SERVICE_ACCOUNT,
        pace: Pace | None = None,
        origin: Callable[[str], str] = lambda key: "settings",
    ) -> None:
        self.changed = changed
        self._environment = os.environ if environment is None else environment
        self._account = account
        self._pace = Pace() if pace is None else pace
        self._running = False
        self._ending: set[asyncio.Task[None]] = set()
        self._places: tuple[_Place, ...] = ()
        self._notes: dict[str, tuple[str, ...]] = {}
        self._places = self.prepared(settings, origin).places

    async def start(self, wait_s: float = 0.0) -> None:
        """Begin to look; returns when every place has been asked once, or after ``wait_s``."""
        self._running = True
        sources = self._sources()
        for source in sources:
            source.start()
        if sources and wait_s > 0:
            looks = [asyncio.ensure_future(source.looked.wait()) for source in sources]
            await asyncio.wait(looks, timeout=wait_s)
            for look in looks:
                look.cancel()

    async def stop(self) -> None:
        """Look no more."""
        self._running = False
        await asyncio.gather(*(source.stop() for source in self._sources()), *self._ending)

    def replicas(self, static: Sequence[ReplicaSettings]) -> Replicas:
        """All replicas as they are known now, those of ``replicas`` first."""
        found = Prepared(self._places).replicas(static)
        self._notes = found.notes
        return found

    def prepared(
        self, settings: DiscoverySettings | None, origin: Callable[[str], str] = lambda key: "settings"
    ) -> Prepared:
        """Another section, which may be taken next. What is known of a place that it has too is kept.

        Raises ConfigurationError where it cannot be used; nothing has changed then.
        """
        if settings is None:
            return Prepared(())
        made = {place.asked: place.source for place in self._places}
        before = {place.known: place.source for place in self._places}
        places = []
        for service in settings.services:
            known, asked, make = self._way_to(settings, service, origin)
            source = made.get(asked)
            if source is None:
                source = made[asked] = make()
                if (old := before.get(known)) is not None:
                    source.adopt(old)
            places.append(_Place(service, source, known, asked))
        return Prepared(tuple(places))

    def take(self, prepared: Prepared) -> None:
        """Go on with another section. Must be called in the running event loop."""
        before = self._sources()
        self._places = prepared.places
        after = self._sources()
        for source in before:
            if source not in after:
                ending = asyncio.get_running_loop().create_task(source.stop())
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
        if self._running:
            for source in after:
                if source not in before:
                    source.start()

    def status(self) -> list[dict[str, Any]]:
        """``discovery`` of ``/status``: a row for each service. Ages are seconds; what is not known is None."""
        now = self._pace.now()
        rows = []
        for place in self._places:
            source, endpoints = place.source, place.source.found(place.service).endpoints
            error = source.error
            rows.append(
                {
                    "name": place.service.name,
                    "kind": source.kind,
                    "source": source.place,
                    "ready": sum(endpoint.ready for endpoint in endpoints),
                    "not_ready": [endpoint.name for endpoint in endpoints if not endpoint.ready],
                    "age_s": None if source.heard_at is None else round(max(now - source.heard_at, 0.0), 3),
                    "error": None if error is None else str(error),
                    "error_reason": None if error is None else error.reason,
                    "error_age_s": None if source.error_since is None else round(max(now - source.error_since, 0.0), 3),
                    "failures": dict(sorted(source.failures.items())),
                    "left_out": list(self._notes.get(place.service.name, ())[:_MOST_NOTES]),
                }
            )
        return rows

    def _sources(self) -> list[Source]:
        """Each once: two services may be of one place."""
        return list({id(place.source): place.source for place in self._places}.values())

    def _has_changed(self) -> None:
        self.changed()

    def _way_to(
        self, settings: DiscoverySettings, service: ServiceSettings, origin: Callable[[str], str]
    ) -> tuple[tuple[object, ...], tuple[object, ...], Callable[[], Source]]:
        """What tells the place apart, that and how it is reached, and the source to be made where there is none."""
        retry_s, pace = settings.retry_max_s, self._pace
        if settings.kind == "kubernetes":
            kubernetes = settings.kubernetes
            access = find_access(kubernetes, self._environment, self._account)
            namespace, name = service.namespace or access.namespace, service.service or ""
            known: tuple[object, ...] = ("kubernetes", namespace, name)
            return (
                known,
                (*known, access, kubernetes.model_dump_json(), retry_s),
                lambda: KubernetesSource(
                    access, kubernetes, namespace, name, pace=pace, retry_max_s=retry_s, changed=self._has_changed
                ),
            )
        dns, host = settings.dns, service.host or ""
        known = ("dns", host, service.record, service.family)
        try:
            from adaptive_gamma.discovery.dns_lookup import DnsLookup
        except ImportError:
            problem = "dns needs dnspython: install adaptive-gamma[dns]"
            raise ConfigurationError(origin("discovery.kind"), "discovery.kind", problem) from None
        return (
            known,
            (*known, dns.model_dump_json(), retry_s),
            lambda: DnsSource(
                DnsLookup(dns), dns, host, service.record, service.family,
                pace=pace, retry_max_s=retry_s, changed=self._has_changed,
            ),
        )  # fmt: skip
