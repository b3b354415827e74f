"""All files as they should be now, and the same in one piece for Envoy to check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from adaptive_gamma.config import Settings
from adaptive_gamma.envoy.addresses import Address
from adaptive_gamma.envoy.files.bootstrap import bootstrap_file
from adaptive_gamma.envoy.files.clusters import clusters_file
from adaptive_gamma.envoy.files.endpoints import Ending, endpoints_file
from adaptive_gamma.envoy.files.listener import listeners_file
from adaptive_gamma.envoy.files.names import (
    BOOTSTRAP_FILE,
    CLUSTERS_FILE,
    ENDPOINTS_FOLDER,
    LISTENERS_FILE,
    ROUTES_FILE,
)
from adaptive_gamma.envoy.files.plan import Plan
from adaptive_gamma.envoy.files.routes import routes_file
from adaptive_gamma.routing import ReplicaState
from adaptive_gamma.routing.shares import Shares

__all__ = ["DEFAULT_CA_FILE", "Place", "render_endpoints", "render_frame", "whole_configuration"]

DEFAULT_CA_FILE = "/etc/ssl/certs/ca-certificates.crt"


@dataclass(frozen=True, slots=True)
class Place:
    """Where things are."""

    folder: Path
    """Of the files, as Envoy sees it."""
    listen: str
    """``host:port`` of the data port."""
    envoy_admin: str
    """``host:port`` of Envoy's admin port."""
    ca_file: str = DEFAULT_CA_FILE
    """Certificates that engines with https are checked against, as Envoy sees it."""


def render_endpoints(
    plan: Plan,
    shares: Sequence[Shares],
    states: Sequence[ReplicaState],
    addresses: Mapping[str, Address],
    reasons: Mapping[tuple[str, str], str] = MappingProxyType({}),
    ending: Sequence[Ending] = (),
) -> dict[str, dict[str, Any]]:
    """The files with the weights, by name; ``shares`` in the order of the plan's clusters, ``reasons`` and ``ending``
    as in :func:`endpoints_file`."""
    by_name = {state.name: state for state in states}
    return {
        f"{ENDPOINTS_FOLDER}/{cluster.name}.json": endpoints_file(cluster, shared, by_name, addresses, reasons, ending)
        for cluster, shared in zip(plan.clusters, shares, strict=True)
    }


def render_frame(
    plan: Plan, settings: Settings, place: Place, models_page: dict[str, Any] | None
) -> dict[str, dict[str, Any]]:
    """The other files, in the order in which they must be written."""
    return {
        CLUSTERS_FILE: clusters_file(plan, settings, place.folder, place.ca_file),
        ROUTES_FILE: routes_file(plan, settings, models_page),
        LISTENERS_FILE: listeners_file(settings, place.listen, place.folder),
        BOOTSTRAP_FILE: bootstrap_file(place.envoy_admin, place.folder),
    }


def whole_configuration(files: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The same configuration without any other file, as ``envoy --mode validate`` looks into no other file."""

    def resources(name: str) -> list[dict[str, Any]]:
        return [{key: value for key, value in each.items() if key != "@type"} for each in files[name]["resources"]]

    clusters = []
    for cluster in resources(CLUSTERS_FILE):
        found = {**cluster, "type": "STATIC"}
        del found["eds_cluster_config"]
        found["load_assignment"] = resources(f"{ENDPOINTS_FOLDER}/{cluster['name']}.json")[0]
        clusters.append(found)
    listeners = resources(LISTENERS_FILE)
    for listener in listeners:
        (filters,) = listener["filter_chains"]
        (network,) = filters["filters"]
        manager = {key: value for key, value in network["typed_config"].items() if key != "rds"}
        manager["route_config"] = resources(ROUTES_FILE)[0]
        listener["filter_chains"] = [{"filters": [{**network, "typed_config": manager}]}]
    bootstrap = {key: value for key, value in files[BOOTSTRAP_FILE].items() if key != "dynamic_resources"}
    return {**bootstrap, "static_resources": {"listeners": listeners, "clusters": clusters}}
