"""Names that several of the files share."""

from __future__ import annotations

__all__ = [
    "ADMIN_FILE",
    "ANY_MODEL",
    "BOOTSTRAP_FILE",
    "CLUSTERS_FILE",
    "CLUSTER_HEADER",
    "DEMAND_SAMPLING",
    "DEMAND_STRUCTURE",
    "ENDPOINTS_FOLDER",
    "LISTENERS_FILE",
    "LUA_FILTER",
    "METADATA",
    "OUT_FILES",
    "ROUTES_FILE",
    "SEARCH_CLUSTER",
    "STATISTICS",
    "TYPE",
    "UNREAD_MODELS",
    "address_of",
    "duration",
    "silence",
]

from adaptive_gamma.config.settings import LimitSettings
from adaptive_gamma.config.values import host_port

TYPE = "type.googleapis.com/"

BOOTSTRAP_FILE = "envoy.json"
LISTENERS_FILE = "listeners.json"
ROUTES_FILE = "routes.json"
CLUSTERS_FILE = "clusters.json"
OUT_FILES = (BOOTSTRAP_FILE, LISTENERS_FILE, ROUTES_FILE, CLUSTERS_FILE)
"""All that is written, beside one of each cluster in the folder of endpoints."""
ENDPOINTS_FOLDER = "endpoints"
ADMIN_FILE = "admin-address.txt"
"""Envoy writes here where its admin port listens."""

CLUSTER_HEADER = "x-adaptive-gamma-cluster"
"""Set by the class filter, read by the routes, taken off before the engine. A client's own is dropped first."""
METADATA = "adaptive_gamma"
"""Namespace of an endpoint's metadata: what the response headers say of it."""
LUA_FILTER = "envoy.filters.http.lua"
STATISTICS = "adaptive_gamma"
"""What Envoy calls the statistics of the data port."""

_AFTER_FIRST_BYTE_S = 1.0

ANY_MODEL = "any"
UNREAD_MODELS = "unread"
SEARCH_CLUSTER = "any-search"
DEMAND_SAMPLING = "-sampling"
DEMAND_STRUCTURE = "-structure"


def address_of(text: str) -> dict[str, object]:
    """``host:port`` as Envoy's address. Raises ValueError for what is none."""
    host, _, port = host_port(text).rpartition(":")
    return {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}


def duration(seconds: float) -> str:
    """Seconds as Envoy's files spell them."""
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def silence(limits: LimitSettings) -> str:
    """The longest silence of a stream: Envoy has one timer for it before and behind the first byte. The limit on the
    first byte has its own timer, which must come first, as it knows what to say."""
    return duration(max(limits.first_byte_timeout_s + _AFTER_FIRST_BYTE_S, limits.idle_timeout_s))
