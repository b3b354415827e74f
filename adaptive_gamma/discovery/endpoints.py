"""From endpoints, wherever they were found, to the list of replicas that a fleet is given. Pure."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from adaptive_gamma.config import ReplicaSettings, ReplicaTemplate, ServiceSettings
from adaptive_gamma.config.values import engine_url

__all__ = ["Endpoint", "Found", "Replicas", "merged", "replica_name"]

_LONGEST_NAME = 63
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """One engine as it was found."""

    name: str
    """Its pod, or its address where there is none: what its replica is called after, behind the service."""
    address: str
    """IPv4, IPv6 without brackets, or a host name."""
    port: int
    ready: bool = True
    """Whether it may get new requests."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one service has, in the order of names."""

    endpoints: tuple[Endpoint, ...] = ()
    notes: tuple[str, ...] = ()
    """What was there and cannot be used, and why."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of a fleet: those configured, then those found, by service and name."""

    replicas: tuple[ReplicaSettings, ...]
    not_ready: frozenset[str] = frozenset()
    """Names of those that are to finish what is open and get nothing new."""
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What was left out and why, by service."""


def replica_name(service: str, own: str) -> str:
    """The name of a replica: the same for the same endpoint, at most 63 characters, of the characters of names."""
    name = f"{service}-{_NOT_IN_A_NAME.sub('-', own)}"
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9]}-{hashlib.sha256(own.encode()).hexdigest()[:8]}"


def merged(static: Sequence[ReplicaSettings], found: Sequence[tuple[ServiceSettings, Found]]) -> Replicas:
    """All replicas, each engine once.

    An engine at an address that is configured already, or that an earlier service has too, is not taken again: its
    load would be counted twice. Where two services have it, the one that calls it ready has it.
    """
    urls = {replica.url for replica in static}
    names = {replica.name for replica in static}
    notes: dict[str, list[str]] = {service.name: list(each.notes) for service, each in found}
    taken: dict[str, list[tuple[ReplicaSettings, bool]]] = {service.name: [] for service, _ in found}
    for ready in (True, False):
        for service, each in found:
            likeness = _likeness(service)
            for endpoint in _bounded(service, each, notes[service.name]):
                if endpoint.ready is not ready:
                    continue
                replica = _replica(service, likeness, endpoint, notes[service.name])
                if replica is None:
                    continue
                if replica.url in urls or replica.name in names:
                    known = "address" if replica.url in urls else "name"
                    notes[service.name].append(f"{replica.name} at {replica.url}: another replica has this {known}")
                    continue
                urls.add(replica.url)
                names.add(replica.name)
                taken[service.name].append((replica, ready))
    listed = [pair for pairs in taken.values() for pair in sorted(pairs, key=lambda pair: pair[0].name)]
    return Replicas(
        (*static, *(replica for replica, _ in listed)),
        frozenset(replica.name for replica, ready in listed if not ready),
        {name: tuple(lines) for name, lines in notes.items() if lines},
    )


def _bounded(service: ServiceSettings, found: Found, notes: list[str]) -> tuple[Endpoint, ...]:
    most, there = service.max_replicas, found.endpoints
    note = f"{len(there)} endpoints are more than max_replicas ({most}); the first {most} by name are taken"
    if len(there) > most and note not in notes:
        notes.append(note)
    return there[:most]


def _likeness(service: ServiceSettings) -> ReplicaSettings:
    """A replica with all that those of the service have in common."""
    alike = {key: getattr(service, key) for key in ReplicaTemplate.model_fields}
    return ReplicaSettings(name=service.name, url=f"{service.scheme}://host", **alike)


def _replica(
    service: ServiceSettings, likeness: ReplicaSettings, endpoint: Endpoint, notes: list[str]
) -> ReplicaSettings | None:
    name = replica_name(service.name, endpoint.name)
    try:
        url = _url(service.scheme, endpoint.address, endpoint.port)
    except ValueError:
        notes.append(f"{name}: {endpoint.address[:80]!r} is no address")
        return None
    # Both are checked; checking what is alike again for every endpoint would take ten times as long.
    return likeness.model_copy(update={"name": name, "url": url})


@functools.lru_cache(maxsize=4096)
def _url(scheme: str, address: str, port: int) -> str:
    """Kept, as all are looked at again whenever one changes. Raises ValueError."""
    host = f"[{address}]" if ":" in address else address
    return engine_url(f"{scheme}://{host}:{port}")
