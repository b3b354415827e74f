"""The proxy as ``serve`` runs it, inside the test's process, in front of scripted engines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from adaptive_gamma.config import Settings
from adaptive_gamma.fleet import Fleet
from adaptive_gamma.policy import Policy, load_policy
from adaptive_gamma.proxy import DataPlane, ProxyServer
from tests.support.gated_engine import GatedEngine, until
from tests.support.raw_client import Answer, RawClient

__all__ = ["RunningProxy", "running_proxy"]


POLICY = "h200-llama3-70b-fp8"


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
        api_key=loaded.engine_api_key,
        policy=policy,
    )
    plane = DataPlane(loaded, fleet, policy)
    server = ProxyServer(plane)
    await server.start()
    proxy = RunningProxy(server, plane)
    try:
        yield proxy
        await until(lambda: proxy.in_flight == 0, "in_flight back to 0")
    finally:
        await server.drain()
