"""Looking names up, by dnspython: the system's resolver tells no lifetimes. The only module that knows that library.

A lookup gives an answer, or raises :class:`DiscoveryError` with one of these reasons:

    ``nxdomain``   there is no such name
    ``no_data``    there is, and it has no records of the kind
    ``timeout``    no name server answered in time
    ``refused``    none gave an answer that can be used (SERVFAIL, REFUSED, garbage)
    ``resolver``   the system names no server
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

import dns.asyncresolver
import dns.exception
import dns.nameserver
import dns.rdtypes.IN.A
import dns.rdtypes.IN.AAAA
import dns.rdtypes.IN.SRV
import dns.resolver

from adaptive_gamma.config import DnsSettings
from adaptive_gamma.errors import DiscoveryError

__all__ = ["Addresses", "DnsLookup", "Targets"]

_TRY_S = 2.0


@dataclass(frozen=True, slots=True)
class Addresses:
    """What A or AAAA records say."""

    addresses: tuple[str, ...]
    ttl_s: float


@dataclass(frozen=True, slots=True)
class Targets:
    """What SRV records say: host and port of those with the lowest number of priority, which is the most urgent."""

    targets: tuple[tuple[str, int], ...]
    ttl_s: float


class DnsLookup:
    """Asks the name servers of the settings, or those of the system."""

    def __init__(self, settings: DnsSettings) -> None:
        self._settings = settings
        self._resolver: dns.asyncresolver.Resolver | None = None

    def begin(self) -> None:
        """Read the system's configuration again with the next lookup: it may have changed."""
        self._resolver = None

    async def addresses(self, host: str, kind: str) -> Addresses:
        """The addresses of a name, of ``kind`` A or AAAA; the shortest life among its records and aliases."""
        answer = await self._ask(host, kind)
        found = {
            str(ipaddress.ip_address(record.address))
            for record in answer
            if isinstance(record, dns.rdtypes.IN.A.A | dns.rdtypes.IN.AAAA.AAAA)
        }
        return Addresses(tuple(sorted(found)), float(answer.chaining_result.minimum_ttl))

    async def targets(self, host: str) -> Targets:
        """Where the SRV records of a name point."""
        answer = await self._ask(host, "SRV")
        records = [record for record in answer if isinstance(record, dns.rdtypes.IN.SRV.SRV)]
        first = min((record.priority for record in records), default=0)
        found = {
            (record.target.to_text(), record.port)
            for record in records
            if record.priority == first and record.port > 0 and record.target.to_text() != "."
        }
        if not found:
            raise DiscoveryError("no_data", f"{host}: the SRV records say that there is no such service")
        return Targets(tuple(sorted(found)), float(answer.chaining_result.minimum_ttl))

    async def _ask(self, host: str, kind: str) -> dns.resolver.Answer:
        try:
            if self._resolver is None:
                self._resolver = self._new_resolver()
            return await self._resolver.resolve(host, kind, search=not self._settings.servers)
        except dns.resolver.NXDOMAIN:
            raise DiscoveryError("nxdomain", f"{host} {kind}: there is no such name") from None
        except dns.resolver.NoAnswer:
            raise DiscoveryError("no_data", f"{host} {kind}: there are no such records") from None
        except dns.exception.Timeout:
            limit = f"no answer within {self._settings.timeout_s:g} s"
            raise DiscoveryError("timeout", f"{host} {kind}: {limit}") from None
        except dns.resolver.NoResolverConfiguration as error:
            raise DiscoveryError("resolver", str(error)) from None
        except (dns.exception.DNSException, OSError) as error:
            raise DiscoveryError("refused", f"{host} {kind}: {str(error)[:200]}") from None

    def _new_resolver(self) -> dns.asyncresolver.Resolver:
        servers = self._settings.servers
        resolver = dns.asyncresolver.Resolver(configure=not servers)
        if servers:
            resolver.nameservers = [_server(each) for each in servers]
        resolver.lifetime = self._settings.timeout_s
        resolver.timeout = min(_TRY_S, self._settings.timeout_s)
        return resolver


def _server(text: str) -> dns.nameserver.Nameserver:
    address, port = text, "53"
    if text.startswith("[") or text.count(":") == 1:
        address, _, port = text.rpartition(":")
    return dns.nameserver.Do53Nameserver(address.strip("[]"), int(port))
