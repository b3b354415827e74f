"""One way of running a fleet at work in a world: requests go in, time moves on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from adaptive_gamma.routing import ReplicaState
from adaptive_gamma.simulation.replay.policies import Engine, Route
from adaptive_gamma.simulation.replay.replica import DraftRun, Replica, RunLog
from adaptive_gamma.simulation.replay.scrape import Scraper

if TYPE_CHECKING:
    from adaptive_gamma.simulation.replay.run import World
    from adaptive_gamma.simulation.replay.timeline import Timeline

__all__ = ["Session", "SessionReport", "Tender"]

SessionReport: TypeAlias = Callable[[int, int, Sequence[DraftRun], float], None]
"""Told of each finished request: index of the replica, then as ``Replica`` tells it."""


class Tender(Protocol):
    """Looks after the fleet while it runs, once after every scrape."""

    def join(self, session: Session) -> None:
        """Called once, before time moves."""
        ...

    def look(self, at: float) -> None:
        """The states have just been read; ``at`` is the time of the scrape, in seconds."""
        ...


class Session:
    """The engines, what is known of them, and the rule that sends requests to them.

    Args:
        world: what is run.
        engines: the fleet.
        route: where requests go.
        tender: looks after the fleet; without one, scrapes that nobody would see are left out.
        report: told how the drafts of each finished request fared.
        timeline: told of the steps of each replica.
    """

    def __init__(
        self,
        world: World,
        engines: Sequence[Engine],
        route: Route,
        *,
        tender: Tender | None = None,
        report: SessionReport | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        self.world = world
        self.log = RunLog.empty(len(world.workload))
        self.engines = engines
        self.replicas = [
            Replica(
                e.name, e.choice, e.max_num_seqs, world.workload, world.draws, world.prices, world.policy, self.log,
                None if report is None else partial(report, i),
                None if timeline is None else timeline.recorder(e.name),
            )
            for i, e in enumerate(engines)
        ]  # fmt: skip
        self.states = [ReplicaState(e.name, speculative=e.speculative, gamma=e.gamma) for e in engines]
        self.pools: Counter[str] = Counter()
        """Requests by pool."""
        self.reasons: Counter[str] = Counter()
        """Requests by the reason of the decision."""
        self.scraper = Scraper(self.replicas, self.states, world.scrape)
        self._route = route
        self._index = {e.name: i for i, e in enumerate(engines)}
        self._tender = tender
        self._looks = 0
        if tender is not None:
            tender.join(self)

    @property
    def open(self) -> int:
        """Requests that are not finished, as of the time each replica has reached."""
        return sum(replica.open for replica in self.replicas)

    def run_until(self, now: float) -> None:
        """Make the scrapes that are due by ``now``, each followed by a look of the tender."""
        if self._tender is None:
            self.scraper.run_until(now)
            return
        interval = self.world.scrape.interval_s
        while self._looks * interval <= now:
            self.scraper.scrape(self._looks)
            self._tender.look(self._looks * interval)
            self._looks += 1

    def advance(self, now: float) -> None:
        """``run_until``, and every replica that is busy then moves on to ``now``."""
        self.run_until(now)
        for replica, state in zip(self.replicas, self.states, strict=True):
            if state.in_flight:
                replica.advance(now)
                state.in_flight = replica.open

    def send(self, request: int, now: float) -> int:
        """Send a request where the rule sends it, once ``advance(now)`` has been called; the index of the replica.

        Raises:
            NoReplica: the rule found no replica for it.
        """
        world = self.world
        name, reason = self._route(world.needs[request], self.states, now, world.tie_breaks[request])
        chosen = self._index[name]
        self.reasons[reason] += 1
        self.pools[self.states[chosen].pool] += 1
        self.states[chosen].in_flight += 1
        self.replicas[chosen].enqueue(request, now)
        return chosen

    def finish(self) -> None:
        """Run until every request is done."""
        if self._tender is not None:
            interval = self.world.scrape.interval_s
            while self.open:
                self.run_until(self._looks * interval)
        for replica in self.replicas:
            replica.advance(float("inf"))
