"""The proxy as ``serve`` runs it, inside the test's process, in front of scripted engines."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from adaptive_gamma.config import Settings
from adaptive_gamma.fleet import Fleet
from adaptive_gamma.policy import Policy, load_policy
from adaptive_gamma.proxy import DataPlane, ProxyServer
from tests.support.gated_engine import DEADLINE_S, GatedEngine, until
from tests.support.metrics_page import MetricsPage
from tests.support.raw_client import Answer, RawClient

__all__ = ["RunningProxy", "running_proxy"]


POLICY = "h200-llama3-70b-fp8"
OUTCOMES = (
    "ok",
    "client_closed",
    "client_error",
    "engine_error",
    "connect_error",
    "protocol_error",
    "timeout",
    "rejected",
    "internal_error",
)
"""The contract's, so that one with another name is seen as missing."""
DRAWS = 1
"""Ties between replicas fall alike in every run; the first two draws from this seed fall to either side."""


@cache
def _policy() -> Policy:
    return load_policy(POLICY)


@dataclass
class RunningProxy:
    """A proxy that serves."""

    server: ProxyServer
    plane: DataPlane

    @property
    def port(self) -> int:
        return self.server.data.port

    def client(self, **options: Any) -> RawClient:
        return RawClient(self.port, **options)

    async def ask(self, request: bytes, method: str = "POST") -> Answer:
        """One request on a connection of its own."""
        async with self.client() as client:
            return await client.ask(request, method)

    async def admin(self, path: str) -> Answer:
        async with RawClient(self.server.admin.port) as client:
            return await client.ask(f"GET {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode(), "GET")

    async def metrics(self) -> MetricsPage:
        """The exposition page, as a scrape gets it."""
        answer = await self.admin("/metrics")
        assert answer.status == 200
        return MetricsPage(answer.body.decode())

    async def status(self) -> dict[str, dict[str, Any]]:
        """``replicas`` of ``/status``, by name."""
        return {row["name"]: row for row in json.loads((await self.admin("/status")).body)["replicas"]}

    async def decisions(self) -> list[dict[str, Any]]:
        """The page ``/decisions``, newest first."""
        rows: list[dict[str, Any]] = json.loads((await self.admin("/decisions?limit=1000")).body)["decisions"]
        return rows

    async def ended(self, **outcomes: int) -> MetricsPage:
        """Wait until exactly these outcomes are counted and nothing is in flight, on the exposition page."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                page = await self.metrics()
                counted = {name: count for name in OUTCOMES if (count := page.requests(name))}
                if counted == outcomes and not any(page.in_flight):
                    return page
                if sum(counted.values()) > sum(outcomes.values()):
                    raise AssertionError(f"expected {outcomes}, counted {counted}")
                await asyncio.sleep(0.01)

    def count(self, outcome: str | None = None, replica: str | None = None, request_class: str | None = None) -> float:
        """``adaptive_gamma_requests_total`` over the labels given."""
        total = 0.0
        wanted = {"outcome": outcome, "replica": replica, "class": request_class}
        for family in self.plane.metrics.registry.collect():
            for sample in family.samples:
                if sample.name == "adaptive_gamma_requests_total" and all(
                    value is None or sample.labels[key] == value for key, value in wanted.items()
                ):
                    total += sample.value
        return total

    def retries(self, reason: str) -> float:
        value = self.plane.metrics.registry.get_sample_value("adaptive_gamma_retries_total", {"reason": reason})
        assert value is not None
        return value

    async def counted(self, outcome: str, count: int = 1) -> None:
        """Wait until so many requests ended so."""
        await until(lambda: self.count(outcome) == count, f"{count} requests counted {outcome}")

    @property
    def in_flight(self) -> int:
        return sum(state.in_flight for state in self.plane.fleet.states)


@asynccontextmanager
async def running_proxy(
    engines: Sequence[GatedEngine | str], gammas: Sequence[int] | None = None, **settings: Any
) -> AsyncIterator[RunningProxy]:
    """Serve ``engines`` (or urls) as replicas r0, r1, ...; afterwards nothing may be open any more."""
    values: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "admin": "127.0.0.1:00",
        "policy": POLICY,
        "scrape": {"interval_s": 60, "stale_after_s": 3600},
        "health": {"interval_s": 3600},
        "drain": {"grace_s": 0},
        "replicas": [
            {
                "name": f"r{index}",
                "url": engine if isinstance(engine, str) else engine.url,
                "gamma": gammas[index] if gammas else 0,
            }
            for index, engine in enumerate(engines)
        ],
    }
    values.update(settings)
    loaded = Settings(**values)
    policy = _policy()
    fleet = Fleet(
        loaded.replicas,
        scrape=loaded.scrape,
        health=loaded.health,
        load=loaded.load,
        capability=loaded.capability,
        api_key=loaded.engine_api_key,
        policy=policy,
    )
    plane = DataPlane(loaded, fleet, policy, draw=random.Random(DRAWS).random)
    server = ProxyServer(plane)
    await server.start()
    proxy = RunningProxy(server, plane)
    try:
        yield proxy
        await until(lambda: proxy.in_flight == 0, "in_flight back to 0")
    finally:
        await server.drain()
