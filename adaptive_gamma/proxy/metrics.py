"""The proxy's own metrics. Engine series are never re-exported.

What is counted per request are plain numbers in plain dicts: everything here runs in the one thread of the event loop,
so that the locks of a metrics library would guard nothing and cost most of the counting. Nothing is counted per chunk.
What the fleet knows is read when a scrape asks for it.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from adaptive_gamma.fleet.exposition import Family, FamilyCollector, Row, page_of, pieces
from adaptive_gamma.fleet.metric_families import fleet_families

if TYPE_CHECKING:
    from adaptive_gamma.fleet import Fleet, FleetLearning

__all__ = ["NO_REPLICA", "OUTCOMES", "Histogram", "ProxyMetrics"]

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
NO_REPLICA = "none"
"""Label of requests that ended before a replica or a class was chosen."""

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_EDGES = (*(repr(bound) for bound in _SECONDS), "+Inf")


class Histogram:
    """Seconds, counted by bucket."""

    __slots__ = ("_counts", "sum")

    def __init__(self) -> None:
        self._counts = [0] * len(_EDGES)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(_SECONDS, seconds)] += 1
        self.sum += seconds

    @property
    def count(self) -> int:
        return sum(self._counts)

    def rows(self, *labels: str) -> Iterator[Row]:
        """The samples: buckets that count all up to their edge, the count and the sum."""
        count = 0
        for edge, count in zip(_EDGES, accumulate(self._counts), strict=True):
            yield "_bucket", (*labels, edge), count
        yield "_count", labels, count
        yield "_sum", labels, self.sum


class ProxyMetrics:
    """Counters and histograms of the data path, gauges of the fleet.

    Series carry the name of a replica only as long as the fleet has a replica of that name, were it one that waits
    for its last request to end.

    Args:
        fleet: the replicas.
        clock: the fleet's: monotonic seconds.
        queued: number of requests that wait for a place on a replica.
        affinity_entries: number of entries of the affinity index.
        stored_responses: number of responses whose replica is known.
        observing: families of what was observed.
        reports: answers that reported on their drafts, by replica.
        discovering: families of the places where replicas are found.
    """

    def __init__(
        self,
        fleet: Fleet,
        clock: Callable[[], float] = time.monotonic,
        *,
        queued: Callable[[], int] = lambda: 0,
        affinity_entries: Callable[[], int] = lambda: 0,
        stored_responses: Callable[[], int] = lambda: 0,
        observing: Callable[[], Iterator[Family]] = lambda: iter(()),
        reports: Callable[[], dict[str, int]] = dict,
        discovering: Callable[[], Iterator[Family]] = lambda: iter(()),
    ) -> None:
        self.learning: FleetLearning | None = None
        """What acceptance was learned, where it is."""
        self._fleet = fleet
        self._clock = clock
        self._queued = queued
        self._affinity_entries = affinity_entries
        self._stored_responses = stored_responses
        self._observing = observing
        self._reports = reports
        self._discovering = discovering
        self._requests: dict[tuple[str, str, str], int] = {}
        self._decisions: dict[tuple[str, str, str], int] = {}
        self._opened = dict.fromkeys((replica.name for replica in fleet.replicas), 0)
        self._retries = dict.fromkeys(("connect_error", "rejected_429", "rejected_503", "stale_connection"), 0)
        self._reload_failures = 0
        self.first_byte = {pool: Histogram() for pool in ("speculative", "plain")}
        self.duration = {pool: Histogram() for pool in ("speculative", "plain")}
        self.registry = CollectorRegistry(auto_describe=False)
        """For readers in this process."""
        self.registry.register(FamilyCollector(_Again(self.families)))

    def request_ended(self, replica: str, request_class: str, outcome: str) -> None:
        """Count a request by where it was served and how it ended."""
        key = (replica, request_class, outcome)
        try:
            self._requests[key] += 1
        except KeyError:
            self._requests[key] = 1

    def decided(self, request_class: str, pool: str, reason: str) -> None:
        """Count a decision."""
        key = (request_class, pool, reason)
        try:
            self._decisions[key] += 1
        except KeyError:
            self._decisions[key] = 1

    def decision_counts(self) -> list[tuple[str, str, str, int]]:
        """(class, pool, reason, decisions) since the start."""
        return [(*key, count) for key, count in self._decisions.items()]

    def outcome_counts(self) -> dict[str, int]:
        """Requests since the start by how they ended, those of replicas that are gone left out."""
        counts: dict[str, int] = {}
        for (_, _, outcome), count in self._requests.items():
            counts[outcome] = counts.get(outcome, 0) + count
        return counts

    def retried(self, reason: str) -> None:
        """Count a request that was sent again."""
        self._retries[reason] = self._retries.get(reason, 0) + 1

    def connection_opened(self, replica: str) -> Callable[[], None]:
        """The counter of one replica's connections, bound."""
        opened = self._opened
        opened.setdefault(replica, 0)

        def one_more() -> None:
            opened[replica] = opened.get(replica, 0) + 1

        return one_more

    def reload_failed(self) -> None:
        """Count a reload that was refused."""
        self._reload_failures += 1

    def forget_gone(self) -> None:
        """Drop the series of replicas that the fleet no longer has."""
        known = self._fleet.in_flight().keys() | {NO_REPLICA}
        for key in [key for key in self._requests if key[0] not in known]:
            del self._requests[key]
        for name in [name for name in self._opened if name not in known]:
            del self._opened[name]

    def render(self) -> bytes:
        """The page, in the text exposition format 0.0.4, in one go."""
        return "".join(pieces(self.families())).encode()

    async def page(self) -> bytes:
        """The exposition page; see ``page_of``."""
        return await page_of(self.families())

    def families(self) -> Iterator[Family]:
        """All families, of what is counted when they are read."""
        self.forget_gone()
        yield Family(
            "adaptive_gamma_requests",
            "counter",
            "Requests by the replica that served them, their class and how they ended.",
            ("replica", "class", "outcome"),
            _totals(self._requests),
        )
        yield Family(
            "adaptive_gamma_decisions",
            "counter",
            "Decisions by class, pool chosen and reason.",
            ("class", "pool", "reason"),
            _totals(self._decisions),
        )
        yield Family(
            "adaptive_gamma_retries",
            "counter",
            "Requests sent again, by reason.",
            ("reason",),
            [("_total", (reason,), count) for reason, count in self._retries.items()],
        )
        yield Family(
            "adaptive_gamma_upstream_connections_opened",
            "counter",
            "Connections opened to engines.",
            ("replica",),
            [("_total", (name,), count) for name, count in self._opened.items()],
        )
        yield Family(
            "adaptive_gamma_config_reload_failures",
            "counter",
            "Reloads refused because a file was wrong; the state before stays in force.",
            (),
            [("_total", (), self._reload_failures)],
        )
        for name, text, by_pool in (
            ("time_to_first_byte", "From the end of the request to the head of the engine's answer.", self.first_byte),
            ("request_duration", "From the end of the request to the last byte of the answer.", self.duration),
        ):
            rows = [row for pool, histogram in by_pool.items() for row in histogram.rows(pool)]
            yield Family(f"adaptive_gamma_{name}_seconds", "histogram", text, ("pool",), rows)
        yield Family(
            "adaptive_gamma_queued",
            "gauge",
            "Requests that wait here because every replica that could serve them is at its cap.",
            (),
            [("", (), self._queued())],
        )
        yield Family(
            "adaptive_gamma_affinity_entries",
            "gauge",
            "Sessions and prompt blocks remembered by the replica that has them cached.",
            (),
            [("", (), self._affinity_entries())],
        )
        yield Family(
            "adaptive_gamma_acceptance_reports",
            "counter",
            "Answers from which the acceptance of their own drafts was learned.",
            ("replica",),
            [("_total", (name,), count) for name, count in self._reports().items()],
        )
        yield Family(
            "adaptive_gamma_stored_responses",
            "gauge",
            "Responses of the Responses API remembered by the replica that stores them.",
            (),
            [("", (), self._stored_responses())],
        )
        yield from self._observing()
        yield from self._discovering()
        yield from fleet_families(self._fleet, self._clock(), self.learning)


class _Again:
    """An iterable that starts anew each time."""

    def __init__(self, start: Callable[[], Iterator[Family]]) -> None:
        self._start = start

    def __iter__(self) -> Iterator[Family]:
        return self._start()


def _totals(counts: dict[tuple[str, str, str], int]) -> Iterator[Row]:
    """Over a copy: requests end while the page is made."""
    return (("_total", key, count) for key, count in list(counts.items()))
