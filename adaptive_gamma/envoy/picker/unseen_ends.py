"""How many requests a replica has, for a picker that sees them come and never sees them end.

What is believed of a replica with a fresh reading is what its engine says it has running and waiting, whoever sent it,
and the picks made since that reading was begun: those the engine cannot have counted. So a stale gauge draws no herd,
and several pickers in front of one fleet see each other's requests from the next scrape on. Without a fresh reading
only own picks are known; each is believed to last for so long and is forgotten then.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from adaptive_gamma.fleet import Fleet, FleetReplica

__all__ = ["BELIEVED_S", "OpenEstimates"]

BELIEVED_S = 30.0
"""How long a pick is believed to be open on a replica that does not say."""
_ON_ITS_WAY_S = 0.05
"""A pick made so long before a scrape began may not have reached the engine when it counted: counted twice for one
interval rather than not at all."""
_MIX = 256
"""Picks after which the share of classes is halved, so that it follows what comes."""


@dataclass(slots=True)
class _Picks:
    read_at: float | None = None
    fresh: bool = False
    told: int = 0
    """What the engine said it had."""
    since: deque[tuple[float, str]] = field(default_factory=deque)
    mix: Counter[str] = field(default_factory=Counter)


class OpenEstimates:
    """Keeps ``in_flight`` of the fleet's replicas as it is believed to be.

    Args:
        fleet: whose counts are kept; nothing else may count requests there.
        clock: the fleet's: monotonic seconds.
    """

    def __init__(self, fleet: Fleet, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._picks: dict[FleetReplica, _Picks] = {}

    def picked(self, name: str, request_class: str) -> None:
        """A request was sent to a replica."""
        replica = self._fleet.by_name(name)
        picks = self._of(replica)
        picks.since.append((self._clock(), request_class))
        picks.mix[request_class] += 1
        if picks.mix.total() > _MIX:
            picks.mix = Counter({each: half for each, count in picks.mix.items() if (half := count // 2)})
        replica.open_requests.opened(request_class)

    def refresh(self) -> None:
        """Take in what was read since; to be called before each decision and each look at the counts."""
        now = self._clock()
        for replica in self._fleet.replicas:
            picks, state = self._of(replica), replica.state
            fresh = state.running is not None and state.fresh_until >= now
            since = picks.since
            if (
                picks.read_at == replica.scraped_at
                and picks.fresh == fresh
                and not (since and since[0][0] < now - BELIEVED_S)
            ):
                continue
            picks.read_at, picks.fresh = replica.scraped_at, fresh
            counted_to = now - BELIEVED_S
            if fresh and replica.scraped_at is not None:
                counted_to = max(counted_to, replica.scraped_at - _ON_ITS_WAY_S)
            while since and since[0][0] < counted_to:
                since.popleft()
            picks.told = (state.running or 0) + (state.waiting or 0) if fresh else 0
            replica.open_requests.counted(_shared_out(picks))
            state.in_flight_at_scrape = picks.told

    def forget_gone(self) -> None:
        """Drop what belongs to replicas that have left the fleet; nobody can say when their requests end."""
        here = set(self._fleet.replicas)
        for replica in [replica for replica in self._picks if replica not in here]:
            del self._picks[replica]
            replica.open_requests.counted({})

    def _of(self, replica: FleetReplica) -> _Picks:
        picks = self._picks.get(replica)
        if picks is None:
            picks = self._picks[replica] = _Picks()
        return picks


def _shared_out(picks: _Picks) -> Counter[str]:
    """Counts by class: own picks as they were, what the engine told by the classes that came lately."""
    counts = Counter(request_class for _, request_class in picks.since)
    mix, total = picks.mix, picks.mix.total()
    left = picks.told
    for request_class, count in mix.items():
        share = picks.told * count // total
        counts[request_class] += share
        left -= share
    if left:
        counts[max(mix, key=lambda each: mix[each]) if mix else "unsure"] += left
    return counts
