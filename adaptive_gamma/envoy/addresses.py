"""The addresses of replicas: Envoy's endpoints are numbers, names are looked up here."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterable
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

__all__ = ["Address", "AddressBook"]

_log = logging.getLogger("adaptive_gamma.envoy")


class Address(NamedTuple):
    """Where a replica listens."""

    ip: str
    port: int
    host: str
    """As the replica's url names it, with the port: the Host of its requests."""
    tls: bool


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
        due = [url for url in wanted if (known := self._known.get(url)) is None or known[0] <= now]
        # Together, and not all the time: a resolver that is down answers late, and whoever asks waits for the last.
        for url, found in zip(due, await asyncio.gather(*map(self._find, due)), strict=True):
            before = self._known.get(url)
            address = before[1] if found is None and before is not None else found
            if address is not None:
                self._known[url] = (now + self._keep_s, address)
        self._known = {url: known for url, known in self._known.items() if url in wanted}
        self._failed &= wanted
        return {url: address for url, (_, address) in self._known.items()}

    def known(self, url: str) -> Address | None:
        """The address as it was found last, or as it is written; None where it has to be looked up first."""
        known = self._known.get(url)
        return _written(urlsplit(url)) if known is None else known[1]

    async def _find(self, url: str) -> Address | None:
        parts = urlsplit(url)
        if (written := _written(parts)) is not None:
            return written
        host, port = parts.hostname or "", _port(parts)
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
        return Address(ip, port, parts.netloc, parts.scheme == "https")


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def _written(parts: SplitResult) -> Address | None:
    """The address of a url that has a number in it and no name."""
    try:
        ip = ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        return None
    return Address(str(ip), _port(parts), parts.netloc, parts.scheme == "https")
