"""What the decision gets to see: the engines' gauges as they were at the last scrape, never the engines themselves.

As in the live proxy, gauges are read at a fixed interval, are believed until ``stale_after_s`` after that, and the
proxy's own count of open requests is added to what others had there. The acceptance ratio is learned from the same
scrapes, in a window whose weights halve every ``half_life_s`` seconds of traffic: on replicas with one gamma, and on
those whose gamma is set while they run, whose drafts are counted by their length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adaptive_gamma.routing import PolicyPrices, ReplicaState
from adaptive_gamma.simulation.replay.replica import Replica

__all__ = ["ScrapeRule", "Scraper"]

_LEAST_DRAFTS = 100.0
"""Decayed drafts below which the ratio is unknown."""
_RATIO_BOUNDS = (0.5, 1.5)


@dataclass(frozen=True, slots=True)
class ScrapeRule:
    """How often and for how long; the defaults are those of ``serve``."""

    interval_s: float = 1.0
    stale_after_s: float = 3.0
    half_life_s: float = 30.0
    learn: bool = True
    """Whether acceptance seen is fed back to the decision."""


class Scraper:
    """Reads replicas into the states that the decision reads; index i of both is one replica."""

    def __init__(self, replicas: Sequence[Replica], states: Sequence[ReplicaState], rule: ScrapeRule) -> None:
        self._replicas = replicas
        self._states = states
        self._rule = rule
        self._last = -1
        self._windows = [_Window(rule.half_life_s) for _ in replicas]

    def run_until(self, now: float) -> None:
        """Do the last scrape due by ``now``, unless it has been done. Scrapes skipped before it would be overwritten.

        Replicas move on to the time of the scrape.
        """
        due = int(now / self._rule.interval_s)
        if due > self._last:
            self.scrape(due)

    def scrape(self, number: int) -> None:
        """Do the scrape of that number; number 0 is at time 0."""
        self._last = number
        at = number * self._rule.interval_s
        for replica, state, window in zip(self._replicas, self._states, self._windows, strict=True):
            replica.advance(at)
            state.running = replica.running
            state.waiting = replica.waiting
            state.in_flight = state.in_flight_at_scrape = replica.open
            state.fresh_until = at + self._rule.stale_after_s
            if self._rule.learn and state.speculative and (isinstance(state.gamma, int) or replica.counts_by_length):
                totals = replica.totals
                state.acceptance_ratio = window.update(
                    at, totals.sequence_steps, replica.accepted(), totals.predicted_accepted
                )

    def expect(self, policy: PolicyPrices) -> None:
        """Another policy is in use: what was seen is compared with its expectation from now on."""
        for replica, window in zip(self._replicas, self._windows, strict=True):
            replica.expect(policy)
            window.forget()


class _Window:
    """Accepted over predicted draft tokens, recent ones weighing more."""

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._at = 0.0
        self._seen = (0.0, 0.0, 0.0)
        self._sums = (0.0, 0.0, 0.0)

    def forget(self) -> None:
        """Only what is seen from the last look on counts."""
        self._sums = (0.0, 0.0, 0.0)

    def update(self, at: float, drafts: float, accepted: float, predicted: float) -> float | None:
        """Take in totals since the start; the ratio, or None while it is not known."""
        now = (drafts, accepted, predicted)
        if drafts > self._seen[0]:
            kept = 0.5 ** ((at - self._at) / self._half_life_s)
            self._sums = (
                self._sums[0] * kept + now[0] - self._seen[0],
                self._sums[1] * kept + now[1] - self._seen[1],
                self._sums[2] * kept + now[2] - self._seen[2],
            )
        self._at, self._seen = at, now
        if self._sums[0] < _LEAST_DRAFTS or self._sums[2] <= 0.0:
            return None
        low, high = _RATIO_BOUNDS
        return min(max(self._sums[1] / self._sums[2], low), high)
