"""How the next requests of each class are shared out, for a data path that is told weights and not single choices.

Between two rewrites of the weights some requests arrive that nobody decides about one by one. So they are decided
beforehand: as many of each class as are expected are placed one after the other by :func:`decide`, each on the loads
that those before it leave behind, and a replica's weight is the number it got. At low load that is all on the cheapest
replica; the more are expected, the more their marginal costs spread them. Equals share, however few are expected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from adaptive_gamma.errors import NoReplica
from adaptive_gamma.routing.capability import is_capable
from adaptive_gamma.routing.decide import DecisionLimits, decide, weigh
from adaptive_gamma.routing.decision import Decision, RequestNeeds
from adaptive_gamma.routing.pricing import PolicyPrices, PriceBook
from adaptive_gamma.routing.replica import ReplicaState
from adaptive_gamma.routing.verdict import gamma_shown
from adaptive_gamma.routing.weighing import Weighed

__all__ = ["Expected", "Share", "Shares", "even_shares", "shares_of"]

_MOST_PLACED = 512
"""Requests placed one by one at a time; of more, each placed stands for several."""
_MOST_WEIGHED = 8192
"""Replicas weighed for them in all, as each request is weighed against every replica; some 40 ms of work."""


class Expected(NamedTuple):
    """Requests to come, all with the same needs."""

    needs: RequestNeeds
    requests: float
    """How many are expected before the next rewrite, a fraction where that is less than one."""
    replicas: frozenset[str] | None = None
    """Names of those that may serve them; None: all."""


class Share(NamedTuple):
    """What a replica gets."""

    replica: str
    weight: int
    reason: str
    """Of the first request placed on it."""
    gamma: int | None


@dataclass(frozen=True, slots=True)
class Shares:
    """Where requests of one kind go. A replica that is draining is in none of these."""

    first: tuple[Share, ...] = ()
    """Those that share them."""
    spare: tuple[str, ...] = ()
    """Those to turn to when all of the first have failed, equals among each other."""
    last: tuple[str, ...] = ()
    """Those that may refuse such a request."""
    at_capacity: bool = False
    """There is room nowhere: every replica has as many requests open as it may."""


@dataclass(slots=True)
class _Counted:
    placed: dict[str, int] = field(default_factory=dict)
    shown: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    """Reason and gamma of the first request placed on a replica."""
    dearest_s: float = 0.0
    """The highest cost of those."""

    def add(self, decision: Decision) -> None:
        name = decision.replica
        self.placed[name] = self.placed.get(name, 0) + 1
        if name not in self.shown:
            self.shown[name] = decision.reason, decision.gamma
            self.dearest_s = max(self.dearest_s, decision.chosen.cost_s)


def shares_of(
    expected: Sequence[Expected],
    states: Sequence[ReplicaState],
    policy: PolicyPrices,
    *,
    now: float,
    limits: DecisionLimits,
    prices: PriceBook | None = None,
) -> list[Shares]:
    """The shares of each kind of request, in the order of ``expected``.

    Kinds of which at least one request is expected are placed together, mixed as they arrive; of each other kind one
    is placed as if it came now. ``states`` are only read.
    """
    prices = prices or PriceBook()
    after = [replace(state) for state in states]
    counted = [_Counted() for _ in expected]
    full: set[int] = set()

    def able(index: int, on: Sequence[ReplicaState]) -> Sequence[ReplicaState]:
        among = expected[index].replicas
        return on if among is None else [state for state in on if state.name in among]

    def place(index: int, on: Sequence[ReplicaState]) -> ReplicaState | None:
        """Decide about one more; None when there is no replica."""
        on = able(index, on)
        try:
            decision = decide(expected[index].needs, on, policy, now=now, tie_break=0.0, limits=limits, prices=prices)
        except NoReplica as error:
            if error.at_capacity and not counted[index].placed:
                full.add(index)
            return None
        full.discard(index)  # there is room, were it only without those placed before
        counted[index].add(decision)
        return next(state for state in on if state.name == decision.replica)

    def place_on_equals(index: int, on: Sequence[ReplicaState]) -> None:
        """One more on each that has none, where it would cost no more than those that were placed."""
        count, on, ranked = counted[index], able(index, on), list[Weighed]()
        needs = expected[index].needs
        try:
            verdict = weigh(
                needs, on, policy, now=now, tie_break=0.0, limits=limits, prices=prices, ranked=ranked
            )  # fmt: skip
        except NoReplica:
            return
        for cost_s, at, load in ranked:
            state = on[at]
            if cost_s <= count.dearest_s * (1.0 + limits.tie_margin) and state.name not in count.placed:
                count.placed[state.name] = 1
                count.shown[state.name] = verdict.reason, gamma_shown(state.speculative, state.gamma, load + 1)

    most = min(_MOST_PLACED, _MOST_WEIGHED // max(1, len(states)))
    order, step = _mixed([kind.requests for kind in expected], most)
    for index in order:
        chosen = place(index, after)
        if chosen is not None:
            chosen.in_flight += step
    as_it_is = [replace(state) for state in states]
    for index, count in enumerate(counted):
        if count.placed:
            place_on_equals(index, after)
        elif (chosen := place(index, as_it_is)) is not None:
            chosen.in_flight += 1
            place_on_equals(index, as_it_is)
            chosen.in_flight -= 1
    return [
        _shares(kind, count, states, at_capacity=index in full)
        for index, (kind, count) in enumerate(zip(expected, counted, strict=True))
    ]


def even_shares(kind: Expected, states: Sequence[ReplicaState]) -> Shares:
    """All replicas alike, as far as they are healthy and can serve the request: for whoever only observes."""
    able = [s for s in states if not s.draining and (kind.replicas is None or s.name in kind.replicas)]
    fit = [s for s in able if s.healthy and is_capable(kind.needs, s)]
    chosen = fit or [s for s in able if is_capable(kind.needs, s)] or able
    count = _Counted(dict.fromkeys((state.name for state in chosen), 1))
    return _shares(kind, count, states, at_capacity=False)


def _shares(kind: Expected, count: _Counted, states: Sequence[ReplicaState], *, at_capacity: bool) -> Shares:
    able = [s for s in states if not s.draining and (kind.replicas is None or s.name in kind.replicas)]
    rest = [s for s in able if s.name not in count.placed]
    first = []
    for name, weight in sorted(count.placed.items()):
        reason, gamma = count.shown.get(name, ("observe", None))
        first.append(Share(name, weight, reason, gamma))
    return Shares(
        tuple(first),
        tuple(s.name for s in rest if is_capable(kind.needs, s)),
        tuple(s.name for s in rest if not is_capable(kind.needs, s)),
        at_capacity,
    )


def _mixed(requests: Sequence[float], most: int) -> tuple[Iterator[int], int]:
    """Indices in an order in which kinds alternate by their numbers, and for how many requests each stands, so that
    there are no more than ``most`` or one of each kind."""
    counts = [round(number) for number in requests]
    step = max(1, -(-sum(counts) // max(1, most)))
    places = sorted(
        ((position + 0.5) / placed, index)
        for index, count in enumerate(counts)
        if count
        for placed in (max(1, round(count / step)),)
        for position in range(placed)
    )
    return (index for _, index in places), step
