"""Endpoints of a Kubernetes Service: listed, then watched, and listed anew now and then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adaptive_gamma.config import KubernetesSettings, ServiceSettings
from adaptive_gamma.discovery.endpoints import Found
from adaptive_gamma.discovery.kube_access import ApiAccess
from adaptive_gamma.discovery.kube_api import SliceApi
from adaptive_gamma.discovery.pace import Pace
from adaptive_gamma.discovery.slices import SliceStore
from adaptive_gamma.discovery.source import Source
from adaptive_gamma.errors import DiscoveryError

__all__ = ["KubernetesSource"]

_SHORT_WATCH_S = 1.0
_LONG_WATCH_S = 5.0
"""A watch that broke after so long is not one of a row of failures."""
_RELIST = frozenset({"expired", "garbled", "too_large"})
"""Failures of a watch after which an event may have been missed, or its version is of no use any more. After any other
the next watch goes on from the last event."""


class KubernetesSource(Source):
    """One Service.

    A list gives everything and a version; a watch from that version gives what changed since. The watch is asked to
    end after ``watch_s``; then, and when it breaks, the next one begins where it ended. ``resync_s`` after the last
    list there is another, which heals whatever a watch did not tell.
    """

    kind = "kubernetes"

    def __init__(
        self,
        access: ApiAccess,
        settings: KubernetesSettings,
        namespace: str,
        service: str,
        *,
        pace: Pace,
        retry_max_s: float,
        changed: Callable[[], None],
    ) -> None:
        super().__init__(f"endpointslices {namespace}/{service}", pace, retry_max_s, changed)
        self._api = SliceApi(access, settings, namespace, service)
        self._settings = settings
        self._store = SliceStore()
        self._version = ""
        self._events = 0
        self._began_at: float | None = None

    def found(self, service: ServiceSettings) -> Found:
        return self._store.found(service.port)

    def adopt(self, before: Source) -> None:
        if isinstance(before, KubernetesSource):
            self._store.adopt(before._store)
            self.heard_at = before.heard_at

    async def stop(self) -> None:
        await super().stop()
        await self._api.close()

    async def _look(self) -> float:
        items, self._version = await self._api.list_all()
        if self._store.replace(items):
            self._changed()
        self._heard()
        listed_at, events = self._pace.now(), self._events
        # Not every process that began at one moment lists anew at one moment.
        resync_at = listed_at + self._settings.resync_s * (1.0 - 0.1 * self._pace.chance())
        while (left_s := resync_at - self._pace.now()) > 0:
            try:
                await self._watch(min(left_s, self._settings.watch_s))
            except DiscoveryError as error:
                if self._began_at is not None and self._pace.now() - self._began_at >= _LONG_WATCH_S:
                    self._backoff.reset()
                old = self._pace.now() - listed_at >= _SHORT_WATCH_S or self._events > events
                if error.reason == "expired" and old:
                    self.failures[error.reason] += 1
                    return 0.0  # nothing is wrong: so it goes when little happens for long
                if error.reason in _RELIST:
                    raise
                self._failed(error)
                await self._pace.sleep(self._backoff.next_s())
        return 0.0

    async def _watch(self, seconds: float) -> None:
        began_at, events = self._pace.now(), self._events
        self._began_at = None
        await self._api.watch(self._version, seconds, self._began, self._took)
        if self._events == events and self._pace.now() - began_at < _SHORT_WATCH_S:
            # A server that ends every watch at once is not to be asked in a tight loop.
            await self._pace.sleep(self._backoff.next_s())
        else:
            self._backoff.reset()

    def _began(self) -> None:
        self._began_at = self._pace.now()
        self._heard()

    def _took(self, event: dict[str, Any]) -> None:
        kind, item = event.get("type"), event.get("object")
        if not isinstance(item, dict):
            raise DiscoveryError("garbled", "an event without an object")
        if kind == "ERROR":
            raise _told(item)
        if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
            raise DiscoveryError("garbled", "an event of an unknown type")
        metadata = item.get("metadata")
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        if not isinstance(version, str) or not version:
            raise DiscoveryError("garbled", "an event without a resourceVersion")
        self._version = version
        self._events += 1
        self._backoff.reset()
        self._heard()
        changed = False
        if kind == "DELETED":
            changed = self._store.drop(item)
        elif kind != "BOOKMARK":
            changed = self._store.put(item)
        if changed:
            self._changed()


def _told(status: dict[str, Any]) -> DiscoveryError:
    """What an ERROR event says."""
    code, message = status.get("code"), status.get("message")
    text = message[:300] if isinstance(message, str) and message.isprintable() else ""
    if code == 410 or status.get("reason") in ("Expired", "Gone"):
        return DiscoveryError("expired", text)
    return DiscoveryError(f"status_{code}" if isinstance(code, int) and 100 <= code <= 599 else "garbled", text)
