"""What a replica carries, as the decision counts it."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_gamma.routing.replica import ReplicaState

__all__ = ["batch_of", "load_of", "ramped_load", "typical_foreign_load"]

_LEAST_SHARE = 0.1
"""What a replica is good for at the very start of its ramp."""


def load_of(state: ReplicaState, now: float) -> int | None:
    """Requests on a replica: our own open ones now, plus those of others at the last scrape; None when not known.

    What the engine counted beyond our own requests at that moment came from elsewhere and is assumed still there. Our
    own are counted as they are now, so that a gauge up to an interval old cannot draw a herd.
    """
    if state.running is None or state.fresh_until < now:
        return None
    return state.in_flight + max(0, state.running + (state.waiting or 0) - state.in_flight_at_scrape)


def batch_of(state: ReplicaState, now: float) -> int | None:
    """Sequences that share a step of the engine; None when not known.

    While requests wait in the engine its batch is what it runs; else what has come and gone since the scrape counts.
    """
    if state.running is None or state.fresh_until < now:
        return None
    if state.waiting:
        return state.running
    return max(0, state.running + state.in_flight - state.in_flight_at_scrape)


def typical_foreign_load(states: Sequence[ReplicaState], now: float) -> int:
    """What an unread replica is assumed to carry for others: as much as its read peers do on average, rounded up."""
    known = [
        max(0, s.running + (s.waiting or 0) - s.in_flight_at_scrape)
        for s in states
        if s.running is not None and s.fresh_until >= now
    ]
    return -(-sum(known) // len(known)) if known else 0


def ramped_load(state: ReplicaState, load: int, now: float) -> int:
    """The load a replica is priced at while it ramps up: ``load`` over the share of the ramp that has passed.

    An idle replica takes its first request at once; its second waits for the others to be busy or for the ramp to go
    on.
    """
    left = state.ramp_until - now
    if left <= 0 or state.ramp_s <= 0 or not load:
        return load
    return round(load / max(1.0 - left / state.ramp_s, _LEAST_SHARE))
