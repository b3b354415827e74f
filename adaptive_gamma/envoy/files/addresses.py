"""The addresses of replicas: Envoy's endpoints are numbers, names are looked up here."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from adaptive_gamma.envoy.files.endpoints import Address

__all__ = ["AddressBook"]

_log = logging.getLogger("adaptive_gamma.envoy")


class AddressBook:
    """Addresses by url, kept for a while; one that cannot be looked up again keeps what it had.

    Args:
        keep_s: how long a look-up is believed, in seconds.
        clock: monotonic seconds.
    """

    def __init__(self, keep_s: float, clock: Callable[[], float]) -> None:
        self._keep_s = keep_s
        self._clock = clock
        self._known: dict[str, tuple[float, Address]] = {}
        self._failed: set[str] = set()

    async def look_up(self, urls: Iterable[str]) -> dict[str, Address]:
        """The address of each url; one that has never been found is absent."""
        wanted = set(urls)
        now = self._clock()
        for url in wanted:
            known = self._known.get(url)
            if known is None or known[0] <= now:
                address = await self._find(url)
                if address is not None:
                    self._known[url] = (now + self._keep_s, address)
        self._known = {url: known for url, known in self._known.items() if url in wanted}
        return {url: address for url, (_, address) in self._known.items()}

    async def _find(self, url: str) -> Address | None:
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        host, port = parts.hostname or "", parts.port or (443 if tls else 80)
        try:
            return Address(str(ipaddress.ip_address(host)), port, parts.netloc, tls)
        except ValueError:
            pass
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            if url not in self._failed:
                _log.warning("%s cannot be looked up: %s", host, error)
                self._failed.add(url)
            return None
        self._failed.discard(url)
        # The engine's address of before, where the name has several and still has it.
        ips = [info[4][0] for info in found]
        before = self._known.get(url)
        ip = before[1].ip if before is not None and before[1].ip in ips else str(ips[0])
        return Address(ip, port, parts.netloc, tls)
