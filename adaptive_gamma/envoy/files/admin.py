"""Envoy's admin port: the one module that knows its pages and their names."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from adaptive_gamma.envoy.files.names import STATISTICS
from adaptive_gamma.errors import ScrapeError
from adaptive_gamma.fleet.scrape import EngineClient

__all__ = ["EnvoyAdmin", "EnvoyLoad", "read_clusters"]

_CLUSTERS = "/clusters?format=json"
_OPEN = f"/stats?format=json&filter=^http\\.{STATISTICS}\\.downstream_rq_active$"
_DRAIN = "/drain_listeners?graceful&skip_exit"
_FAIL_HEALTH = "/healthcheck/fail"
_QUIT = "/quitquitquit"
_MAX_BYTES = 64 * 1024 * 1024
_SHORT = 65_536


@dataclass(slots=True)
class EnvoyLoad:
    """What Envoy has to do, by cluster and endpoint; an endpoint is (address, port)."""

    active: dict[str, Counter[tuple[str, int]]] = field(default_factory=dict)
    """Requests open now."""
    total: Counter[str] = field(default_factory=Counter)
    """Requests since Envoy's start, by cluster; of endpoints that are still there."""
    begun: Counter[tuple[str, int]] = field(default_factory=Counter)
    """The same by endpoint."""


def read_clusters(page: bytes) -> EnvoyLoad:
    """The page of all clusters. Raises ScrapeError for what is none."""
    load = EnvoyLoad()
    try:
        for cluster in json.loads(page).get("cluster_statuses", ()):
            active = load.active.setdefault(cluster["name"], Counter())
            for host in cluster.get("host_statuses", ()):
                socket = host["address"]["socket_address"]
                stats = {stat["name"]: int(stat.get("value", 0)) for stat in host.get("stats", ())}
                endpoint = socket["address"], socket["port_value"]
                active[endpoint] += stats["rq_active"]
                load.begun[endpoint] += stats["rq_total"]
                load.total[cluster["name"]] += stats["rq_total"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ScrapeError("protocol", f"no page of Envoy's clusters: {error!r}") from error
    return load


class EnvoyAdmin:
    """The admin port of one Envoy.

    Args:
        address: ``host:port``.
        timeout_s: for each call, in seconds.
    """

    def __init__(self, address: str, timeout_s: float) -> None:
        self._client = EngineClient(f"http://{address}")
        self._timeout_s = timeout_s

    async def load(self) -> EnvoyLoad:
        """What is open and was begun. Raises ScrapeError."""
        return read_clusters(await self._client.fetch(_CLUSTERS, timeout_s=self._timeout_s, max_bytes=_MAX_BYTES))

    async def open(self) -> int:
        """Requests that clients have open, wherever they are: also on endpoints that are listed no more. Raises
        ScrapeError."""
        page = await self._client.fetch(_OPEN, timeout_s=self._timeout_s, max_bytes=_SHORT)
        try:
            (gauge,) = json.loads(page)["stats"]
            return int(gauge["value"])
        except (ValueError, KeyError, TypeError) as error:
            raise ScrapeError("protocol", f"no page of Envoy's statistics: {error!r}") from error

    async def drain(self) -> None:
        """Say that this Envoy is going, and take no more connections; open streams go on. Raises ScrapeError."""
        await self._post(_FAIL_HEALTH)
        await self._post(_DRAIN)

    async def quit(self) -> None:
        """End it. Raises ScrapeError."""
        await self._post(_QUIT)

    async def close(self) -> None:
        """Close the connections to it."""
        await self._client.close()

    async def _post(self, path: str) -> Any:
        status, _ = await self._client.exchange("POST", path, timeout_s=self._timeout_s, max_bytes=_SHORT)
        if status != 200:
            raise ScrapeError(f"status_{status}")
