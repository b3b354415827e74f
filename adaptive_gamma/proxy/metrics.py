"""The proxy's own metrics, in a registry of their own. Engine series are never re-exported.

Counters are bound to their labels once and kept; nothing is looked up or counted per chunk. What the fleet knows is
read when a scrape asks for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from adaptive_gamma.routing import GammaSchedule

if TYPE_CHECKING:
    from adaptive_gamma.fleet import Fleet

__all__ = ["NO_REPLICA", "OUTCOMES", "ProxyMetrics"]

OUTCOMES = (
    "ok",
    "client_closed",
    "client_error",
    "engine_error",
    "connect_error",
    "protocol_error",
    "timeout",
    "rejected",
)
NO_REPLICA = "none"
"""Label of requests that ended before a replica or a class was chosen."""

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class ProxyMetrics:
    """Counters and histograms of the data path, gauges of the fleet.

    ``clock`` is the fleet's: monotonic seconds.
    """

    def __init__(self, fleet: Fleet, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "adaptive_gamma_requests",
            "Requests by the replica that served them, their class and how they ended.",
            ["replica", "class", "outcome"],
            registry=self.registry,
        )
        self._decisions = Counter(
            "adaptive_gamma_decisions",
            "Decisions by class, pool chosen and reason.",
            ["class", "pool", "reason"],
            registry=self.registry,
        )
        self._retries = Counter(
            "adaptive_gamma_retries", "Requests sent again, by reason.", ["reason"], registry=self.registry
        )
        self._opened = Counter(
            "adaptive_gamma_upstream_connections_opened",
            "Connections opened to engines.",
            ["replica"],
            registry=self.registry,
        )
        self.config_reload_failures = Counter(
            "adaptive_gamma_config_reload_failures",
            "Reloads refused because a file was wrong; the state before stays in force.",
            registry=self.registry,
        )
        self._first_byte = Histogram(
            "adaptive_gamma_time_to_first_byte_seconds",
            "From the end of the request to the head of the engine's answer.",
            ["pool"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._duration = Histogram(
            "adaptive_gamma_request_duration_seconds",
            "From the end of the request to the last byte of the answer.",
            ["pool"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._request_children: dict[tuple[str, str, str], Counter] = {}
        self._decision_children: dict[tuple[str, str, str], Counter] = {}
        self._retry_children = {
            reason: self._retries.labels(reason)
            for reason in ("connect_error", "rejected_429", "rejected_503", "stale_connection")
        }
        self.first_byte = {pool: self._first_byte.labels(pool) for pool in ("speculative", "plain")}
        self.duration = {pool: self._duration.labels(pool) for pool in ("speculative", "plain")}
        for replica in fleet.replicas:
            self._opened.labels(replica.name)
        self.registry.register(_FleetCollector(fleet, clock))

    def request_ended(self, replica: str, request_class: str, outcome: str) -> None:
        key = (replica, request_class, outcome)
        child = self._request_children.get(key)
        if child is None:
            child = self._request_children[key] = self._requests.labels(*key)
        child.inc()

    def decided(self, request_class: str, pool: str, reason: str) -> None:
        key = (request_class, pool, reason)
        child = self._decision_children.get(key)
        if child is None:
            child = self._decision_children[key] = self._decisions.labels(*key)
        child.inc()

    def retried(self, reason: str) -> None:
        self._retry_children[reason].inc()

    def connection_opened(self, replica: str) -> Callable[[], None]:
        """The counter of one replica's connections, bound."""
        inc = self._opened.labels(replica).inc

        def opened() -> None:
            inc()

        return opened

    def render(self) -> bytes:
        """The page, in the text exposition format 0.0.4."""
        return generate_latest(self.registry)


class _FleetCollector(Collector):
    """Reads the fleet when asked. A value that is not known has no sample."""

    def __init__(self, fleet: Fleet, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        now = self._clock()
        in_flight = GaugeMetricFamily(
            "adaptive_gamma_in_flight", "Requests this proxy has open on a replica now.", labels=["replica"]
        )
        gamma = GaugeMetricFamily(
            "adaptive_gamma_gamma", "Draft tokens per step now, 0 where none.", labels=["replica"]
        )
        age = GaugeMetricFamily("adaptive_gamma_scrape_age_seconds", "Age of the last good scrape.", labels=["replica"])
        healthy = GaugeMetricFamily("adaptive_gamma_replica_healthy", "1 when healthy, else 0.", labels=["replica"])
        failures = CounterMetricFamily(
            "adaptive_gamma_scrape_failures", "Scrapes that gave no reading, by reason.", labels=["replica", "reason"]
        )
        for replica in self._fleet.replicas:
            state = replica.state
            name = [replica.name]
            in_flight.add_metric(name, state.in_flight)
            healthy.add_metric(name, 1.0 if state.healthy else 0.0)
            setting = state.gamma
            if isinstance(setting, GammaSchedule):
                running = state.running if now <= state.fresh_until else None
                setting = None if running is None else setting.at(running)
            if setting is not None:
                gamma.add_metric(name, setting)
            if replica.scraped_at is not None:
                age.add_metric(name, max(now - replica.scraped_at, 0.0))
            for reason, count in sorted(replica.scrape_failures.items()):
                failures.add_metric([replica.name, reason], count)
        yield in_flight
        yield gamma
        yield age
        yield healthy
        yield failures
        yield self._acceptance()

    def _acceptance(self) -> GaugeMetricFamily:
        """Acceptance by position over the fleet's windows, weighted by the drafts that reached a position.

        Engines count drafts without classes, so the only class is ``all``.
        """
        family = GaugeMetricFamily(
            "adaptive_gamma_acceptance",
            "Conditional acceptance by draft position (0 is the first, as engines count) over the decayed window.",
            labels=["class", "position"],
        )
        weights: list[float] = []
        accepted: list[float] = []
        for replica in self._fleet.replicas:
            for index, rate in enumerate(replica.position_acceptance() or ()):
                if index == len(weights):
                    weights.append(0.0)
                    accepted.append(0.0)
                weights[index] += rate.trials
                accepted[index] += rate.trials * rate.rate
        for index, weight in enumerate(weights):
            if weight > 0:
                family.add_metric(["all", str(index)], accepted[index] / weight)
        return family
