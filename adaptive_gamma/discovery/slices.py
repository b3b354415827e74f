"""EndpointSlices (discovery.k8s.io/v1) of one Service: what they say, put together. Pure.

A Service has as many slices as it takes: one for each address family, and several where it has many endpoints. While
an endpoint moves from one to another both may have it, and a client is told to expect that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from adaptive_gamma.discovery.endpoints import Endpoint, Found

__all__ = ["EndpointSlice", "SliceStore", "read_slice"]

_FAMILIES = {"IPv4": 0, "IPv6": 1, "FQDN": 2}
_MOST_NOTES = 5


@dataclass(frozen=True, slots=True)
class _Member:
    address: str
    pod: str | None
    ready: bool


@dataclass(frozen=True, slots=True)
class EndpointSlice:
    """One slice, as far as it matters here."""

    name: str
    family: int
    """0 for IPv4, 1 for IPv6, 2 for host names: the order in which addresses of one pod are preferred."""
    ports: tuple[tuple[str, int | None], ...]
    members: tuple[_Member, ...]
    unusable: int = 0
    """Endpoints without an address."""


def read_slice(item: Mapping[str, Any]) -> EndpointSlice | None:
    """A slice from its JSON object; None where it has no name. What is malformed inside is left out."""
    name = _at(item, "metadata").get("name")
    if not isinstance(name, str) or not name:
        return None
    members, unusable = [], 0
    for each in _objects(item.get("endpoints")):
        member = _member(each)
        if member is None:
            unusable += 1
        else:
            members.append(member)
    ports = tuple((_text(port.get("name")) or "", _port(port.get("port"))) for port in _objects(item.get("ports")))
    return EndpointSlice(
        name, _FAMILIES.get(str(item.get("addressType")), len(_FAMILIES)), ports, tuple(members), unusable
    )


class SliceStore:
    """The slices of a Service, by name."""

    def __init__(self) -> None:
        self._slices: dict[str, EndpointSlice] = {}

    def replace(self, items: Iterable[Mapping[str, Any]]) -> bool:
        """Take a whole list; whether anything differs from before."""
        slices = {each.name: each for item in items if (each := read_slice(item)) is not None}
        changed, self._slices = slices != self._slices, slices
        return changed

    def put(self, item: Mapping[str, Any]) -> bool:
        """A slice was added or is another now; whether that matters here."""
        each = read_slice(item)
        if each is None or self._slices.get(each.name) == each:
            return False
        self._slices[each.name] = each
        return True

    def drop(self, item: Mapping[str, Any]) -> bool:
        """A slice is gone."""
        return self._slices.pop(str(_at(item, "metadata").get("name")), None) is not None

    def adopt(self, other: SliceStore) -> None:
        """Take what another store has."""
        self._slices = dict(other._slices)

    def found(self, port: int | str | None) -> Found:
        """Every pod once, by name.

        An address in several slices is ready if one of them says so. Of a pod with addresses of both families the
        IPv4 one is taken, and of two pods of one name (one ends, its successor is there) the one that is ready.

        Args:
            port: a number, the name of a port of the slices, or None for their only one.
        """
        notes: list[str] = []
        by_address: dict[tuple[int, str, int], Endpoint] = {}
        for each in sorted(self._slices.values(), key=lambda slice_: slice_.name):
            if each.unusable:
                notes.append(f"{each.name}: {each.unusable} endpoints without an address")
            if not each.members:
                continue
            number = port if isinstance(port, int) else _chosen(each, port, notes)
            if number is None:
                continue
            for member in each.members:
                key = (each.family, member.address, number)
                known = by_address.get(key)
                by_address[key] = _joined(known, member, number)
        by_name: dict[str, tuple[tuple[bool, int, str], Endpoint]] = {}
        for (family, address, _), endpoint in by_address.items():
            rank = (not endpoint.ready, family, address)
            best = by_name.get(endpoint.name)
            if best is None or rank < best[0]:
                by_name[endpoint.name] = rank, endpoint
        if len(notes) > _MOST_NOTES:
            notes[_MOST_NOTES:] = [f"and {len(notes) - _MOST_NOTES} more"]
        return Found(tuple(sorted(endpoint for _, endpoint in by_name.values())), tuple(notes))


def _joined(known: Endpoint | None, member: _Member, port: int) -> Endpoint:
    """What two slices say of one address; the pod's name wins over none, and the first by alphabet over another."""
    if known is None:
        return Endpoint(member.pod or member.address, member.address, port, member.ready)
    pods = {name for name in (known.name, member.pod) if name is not None and name != member.address}
    return Endpoint(min(pods, default=member.address), member.address, port, known.ready or member.ready)


def _chosen(each: EndpointSlice, port: str | None, notes: list[str]) -> int | None:
    """The number of the port that the settings name."""
    if port is None and len(each.ports) == 1:
        number = each.ports[0][1]
    else:
        number = next((number for name, number in each.ports if name == port), None)
    if number is None:
        there = ", ".join(sorted(name or str(number) for name, number in each.ports)) or "none"
        wanted = "which of its ports is meant" if port is None else f"a port named {port!r}"
        notes.append(f"{each.name}: {wanted} is not known; it has {there}")
    return number


def _member(item: Mapping[str, Any]) -> _Member | None:
    addresses = item.get("addresses")
    # All addresses of an endpoint are the same backend, and consumers are told to use the first.
    address = _text(addresses[0]) if isinstance(addresses, list) and addresses else None
    if address is None:
        return None
    conditions, target = _at(item, "conditions"), _at(item, "targetRef")
    pod = _text(target.get("name")) if target.get("kind", "Pod") == "Pod" else None
    # Not known is to be taken as ready, and as not terminating.
    ready = conditions.get("ready") is not False and conditions.get("terminating") is not True
    return _Member(address, pod, ready)


def _at(item: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = item.get(key)
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _port(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 65_535 else None
