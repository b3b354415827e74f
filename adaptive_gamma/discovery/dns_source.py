"""Endpoints behind a DNS name: its addresses, or the hosts and ports of its SRV records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from adaptive_gamma.config import DnsSettings, ServiceSettings
from adaptive_gamma.discovery.endpoints import Endpoint, Found
from adaptive_gamma.discovery.pace import Pace
from adaptive_gamma.discovery.source import Source
from adaptive_gamma.errors import DiscoveryError

if TYPE_CHECKING:
    from adaptive_gamma.discovery.dns_lookup import DnsLookup

__all__ = ["DnsSource"]

_MOST_TARGETS = 1000
_AT_ONCE = 16
_EMPTY = frozenset({"nxdomain", "no_data"})


class DnsSource(Source):
    """One name, looked up again when its records have run out.

    An answer without records, or none at all, leaves what was known: a name server that is being restarted must not
    empty a fleet, and an engine that is really gone fails its health check. So it is for each family and each target
    of SRV records by itself, as long as something of the name can be had.
    """

    kind = "dns"

    def __init__(
        self,
        lookup: DnsLookup,
        settings: DnsSettings,
        host: str,
        record: Literal["address", "srv"],
        family: Literal["any", "ipv4", "ipv6", "both"],
        *,
        pace: Pace,
        retry_max_s: float,
        changed: Callable[[], None],
    ) -> None:
        super().__init__(f"{record} records of {host}", pace, retry_max_s, changed)
        self._lookup = lookup
        self._settings = settings
        self._host = host
        self._record = record
        self._family = family
        self._kinds = {"ipv4": ("A",), "ipv6": ("AAAA",)}.get(family, ("A", "AAAA"))
        self._addresses: dict[tuple[str, str], tuple[str, ...]] = {}
        """By host and kind of record: as last heard."""
        self._targets: tuple[tuple[str, int], ...] = ()

    def found(self, service: ServiceSettings) -> Found:
        if self._record == "address":
            port = service.port if isinstance(service.port, int) else 0
            return Found(tuple(sorted(Endpoint(each, each, port) for each in self._of(self._host))))
        notes = tuple(f"{host}: no address is known" for host, _ in self._targets if not self._of(host))
        places = {(each, port) for host, port in self._targets for each in self._of(host)}
        return Found(tuple(sorted(Endpoint(f"{each}-{port}", each, port) for each, port in places)), notes[:5])

    def adopt(self, before: Source) -> None:
        if isinstance(before, DnsSource):
            self._addresses, self._targets = dict(before._addresses), before._targets
            self.heard_at = before.heard_at

    async def _look(self) -> float:
        before = (dict(self._addresses), self._targets)
        self._lookup.begin()
        try:
            ttl_s, failed = await self._ask()
        finally:
            if (self._addresses, self._targets) != before:
                self._changed()
        self._heard(failed)
        self._backoff.reset()
        if failed is not None:
            ttl_s = self._settings.min_interval_s
        return min(max(ttl_s, self._settings.min_interval_s), self._settings.max_interval_s)

    async def _ask(self) -> tuple[float, DiscoveryError | None]:
        """The shortest life of what was heard, and what could not be had beside it. Raises when that is all."""
        if self._record == "address":
            return await self._ask_host(self._host)
        answer = await self._lookup.targets(self._host)
        self._targets = answer.targets[:_MOST_TARGETS]
        hosts = sorted({host for host, _ in self._targets})
        self._addresses = {key: value for key, value in self._addresses.items() if key[0] in hosts}
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one(host: str) -> tuple[float, DiscoveryError | None]:
            async with turns:
                try:
                    return await self._ask_host(host)
                except DiscoveryError as error:
                    return self._settings.max_interval_s, error

        answers = await asyncio.gather(*map(one, hosts))
        failed = [error for _, error in answers if error is not None]
        return min([answer.ttl_s, *(ttl for ttl, _ in answers)]), failed[0] if failed else None

    async def _ask_host(self, host: str) -> tuple[float, DiscoveryError | None]:
        answers = await asyncio.gather(*(self._ask_kind(host, kind) for kind in self._kinds))
        lives = [ttl for ttl in answers if isinstance(ttl, float)]
        failed = [error for error in answers if isinstance(error, DiscoveryError)]
        if not lives:
            # A name that is there without addresses says less than a server that does not answer.
            raise min(failed, key=lambda error: error.reason in _EMPTY)
        for kind, answer in zip(self._kinds, answers, strict=True):
            if isinstance(answer, DiscoveryError) and answer.reason in _EMPTY:
                self._addresses.pop((host, kind), None)  # the other family is the only one now
        return min(lives), next((error for error in failed if error.reason not in _EMPTY), None)

    async def _ask_kind(self, host: str, kind: str) -> float | DiscoveryError:
        try:
            answer = await self._lookup.addresses(host, kind)
        except DiscoveryError as error:
            return error
        self._addresses[host, kind] = answer.addresses
        return answer.ttl_s

    def _of(self, host: str) -> tuple[str, ...]:
        """The addresses of a host, of the families wanted."""
        four, six = (self._addresses.get((host, kind), ()) for kind in ("A", "AAAA"))
        if self._family == "any":
            return four or six
        return {"ipv4": four, "ipv6": six}.get(self._family, four + six)
