"""Clients that hold the load: as many requests open at each moment as asked for, a new one for each that ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from adaptive_gamma.simulation.replay.session import Session
from adaptive_gamma.simulation.replay.synthetic_trace import synthetic_trace
from adaptive_gamma.simulation.replay.workload import Workload

__all__ = ["HeldRun", "Sent", "hold", "queue_of_requests"]

TICK_S = 0.02
"""How often clients look whether a request has ended: less than an engine step."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One request on its way."""

    at: float
    request_class: str
    pool: str


@dataclass(frozen=True, slots=True)
class HeldRun:
    """What came of a held load."""

    tokens_per_second: float
    """Output tokens after the warm-up, those of unfinished requests among them, over its seconds."""
    mean_load: float
    """Requests open, mean over the ticks after the warm-up."""
    sent: list[Sent]


def queue_of_requests(shares: Sequence[tuple[str, float]], classes: Sequence[str], count: int, seed: int) -> Workload:
    """Requests of the synthetic conversation trace's lengths, of mixed classes, to be sent when there is room.

    Args:
        shares: (class, share) of the mix, adding up to 1.
        classes: all of the policy's.
        count: how many.
        seed: of lengths and classes.
    """
    trace = synthetic_trace("conversation", seed, count)
    which = [list(classes).index(name) for name, _ in shares]
    rng = np.random.Generator(np.random.PCG64([seed, 3]))
    class_of = rng.choice(which, size=count, p=[share for _, share in shares]).tolist()
    return Workload(tuple(classes), [float("inf")] * count, trace.prompt_tokens, trace.output_tokens, class_of)


def hold(session: Session, clients: Callable[[float], int], seconds: float, warmup_s: float = 0.0) -> HeldRun:
    """Keep ``clients(t)`` requests open for ``seconds``; where there are too many, none is sent until enough end.

    The workload's times of arrival are written as its requests are sent.

    Raises:
        ValueError: the workload has too few requests.
    """
    workload = session.world.workload
    sent: list[Sent] = []
    loads: list[int] = []
    before: int | None = None
    for tick in range(round(seconds / TICK_S)):
        now = tick * TICK_S
        session.advance(now)
        room = clients(now) - session.open
        for request in range(len(sent), len(sent) + max(room, 0)):
            if request == len(workload):
                raise ValueError(f"{len(workload)} requests are too few to hold the load for {seconds} s")
            workload.arrival_s[request] = now
            chosen = session.send(request, now)
            name = workload.classes[workload.class_of[request]]
            sent.append(Sent(now, name, session.states[chosen].pool))
        if now >= warmup_s:
            loads.append(session.open)
            if before is None:
                before = _tokens(session)
    after = _tokens(session)
    session.world.draws.release()
    return HeldRun((after - (before or 0)) / (seconds - warmup_s), float(np.mean(loads)), sent)


def _tokens(session: Session) -> int:
    return sum(replica.output_tokens() for replica in session.replicas)
