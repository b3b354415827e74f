"""The endpoints of a cluster with their weights: the file that is written most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from adaptive_gamma.envoy.addresses import Address
from adaptive_gamma.envoy.files.names import METADATA, TYPE
from adaptive_gamma.envoy.files.plan import ClusterPlan
from adaptive_gamma.routing import ReplicaState
from adaptive_gamma.routing.shares import Share, Shares

__all__ = ["Ending", "endpoints_file"]

TLS_MATCH = "envoy.transport_socket_match"
_FALLBACK = "fallback"


class Ending(NamedTuple):
    """A replica that gets nothing new while what is open on it ends."""

    state: ReplicaState
    address: Address


def endpoints_file(
    cluster: ClusterPlan,
    shares: Shares,
    states: Mapping[str, ReplicaState],
    addresses: Mapping[str, Address],
    reasons: Mapping[tuple[str, str], str],
    ending: Sequence[Ending] = (),
) -> dict[str, Any]:
    """The replicas that share the requests come first; the others are for when these fail, those that may refuse such
    requests after all others.

    A replica whose address is not known is left out. One that is down is said to be, and used when all are.

    ``reasons`` has by cluster and replica why it was chosen last. Envoy reads it when the answer comes, and by then the
    replica may no longer be among the first: because of this very request.

    Those ``ending`` are listed so that Envoy goes on telling what is open on them; removed, they would end what is open
    just as well. They are left out while no other replica is healthy, as Envoy turns to everyone then.
    """
    gammas = {share.replica: share for share in shares.first}
    tiers = [
        [gammas[name] for name in gammas if name in addresses],
        *(
            [
                Share(name, 1, reasons.get((cluster.name, name), _FALLBACK), _gamma(states[name]))
                for name in names
                if name in addresses
            ]
            for names in (shares.spare, shares.last)
        ),
    ]
    request_class = cluster.needs.request_class
    listed = [
        [_endpoint(share, request_class, states[share.replica], addresses[share.replica]) for share in tier]
        for tier in tiers
    ]
    if any(endpoint["health_status"] == "HEALTHY" for tier in listed for endpoint in tier):
        listed.append([_endpoint(_nothing(state), request_class, state, address) for state, address in ending])
    endpoints = [
        {"priority": priority, "lb_endpoints": tier} for priority, tier in enumerate(tier for tier in listed if tier)
    ]
    assignment: dict[str, Any] = {
        "@type": TYPE + "envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": cluster.name,
        "endpoints": endpoints,
    }
    if shares.at_capacity:
        assignment["policy"] = {
            "drop_overloads": [{"category": "at_capacity", "drop_percentage": {"numerator": 100}}],
        }
    return {"resources": [assignment]}


def _nothing(state: ReplicaState) -> Share:
    return Share(state.name, 1, _FALLBACK, _gamma(state))


def _endpoint(share: Share, request_class: str, state: ReplicaState, address: Address) -> dict[str, Any]:
    gamma = _gamma(state) if share.gamma is None else share.gamma
    health = "DRAINING" if state.draining else "HEALTHY" if state.healthy else "UNHEALTHY"
    return _made(state.name, state.pool, request_class, share.reason, gamma, health, share.weight, address)


@lru_cache(maxsize=16_384)
def _made(
    name: str, pool: str, request_class: str, reason: str, gamma: int | None, health: str, weight: int, address: Address
) -> dict[str, Any]:
    """Not to be changed by anybody: most are as they were at the last rewrite, and known to be so by being the same."""
    shown = {"replica": name, "pool": pool, "class": request_class, "reason": reason}
    if gamma is not None:
        shown["gamma"] = str(gamma)
    metadata: dict[str, Any] = {METADATA: shown}
    if address.tls:
        metadata[TLS_MATCH] = {"tls": True}
    return {
        "endpoint": {
            "address": {"socket_address": {"address": address.ip, "port_value": address.port}},
            "hostname": address.host,
        },
        "health_status": health,
        "load_balancing_weight": weight,
        "metadata": {"filter_metadata": metadata},
    }


def _gamma(state: ReplicaState) -> int | None:
    """Where no decision said: 0 on a plain replica, a fixed gamma on another."""
    if state.speculative is False:
        return 0
    return state.gamma if isinstance(state.gamma, int) and state.speculative else None
