"""Requests that speculate on several replicas, step by step, and what they and the replicas would tell of it.

A sequence makes one draft per step of its replica. A request is open from its arrival to its last token, its prompt
takes the first part of that without a draft, and a scrape falls somewhere between two steps, as on an engine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from adaptive_gamma.roofline import AcceptanceCurve

Truth = Callable[[str, float], AcceptanceCurve]
"""The acceptance of a class at a time."""


@dataclass
class Finished:
    """What one request reports at its end."""

    at: float
    replica: int
    request_class: str
    histogram: list[int]

    @property
    def drafts(self) -> int:
        return sum(self.histogram)

    @property
    def accepted(self) -> int:
        return sum(j * steps for j, steps in enumerate(self.histogram))


@dataclass
class Scraped:
    """What one replica counted since its last scrape, and the request-seconds of each class."""

    at: float
    replica: int
    drafts: int
    accepted_per_position: list[int]
    seconds: dict[str, float]


@dataclass
class _Request:
    request_class: str
    begin: float
    drafts_from: float
    tokens_left: int
    histogram: list[int]


@dataclass
class _Replica:
    phase: float
    running: list[_Request] = field(default_factory=list)
    drafts: int = 0
    accepted: list[int] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    counted_from: float = 0.0


@dataclass(frozen=True)
class Scenario:
    """The traffic and the fleet."""

    truth: Truth
    mix: Mapping[str, float]
    """Share of the requests by class."""
    requests_per_s: float = 5.0
    replicas: int = 6
    gamma: int = 4
    step_s: float = 0.025
    prefill_s: float = 0.06
    tokens: float = 150.0
    """Mean output tokens, exponentially distributed."""
    spread: float = 0.0
    """Standard deviation of a request's own shift of every rate, clipped to 0.02..0.98."""


def run(scenario: Scenario, seconds: float, seed: int) -> Iterator[Finished | Scraped]:
    """Everything that is told, in the order of time."""
    draw = random.Random(seed)
    fleet = [_Replica(phase=draw.random(), accepted=[0] * scenario.gamma) for _ in range(scenario.replicas)]
    own: dict[int, float] = {}
    names, weights = list(scenario.mix), list(scenario.mix.values())
    arrival = draw.expovariate(scenario.requests_per_s)
    steps = round(seconds / scenario.step_s)
    for step in range(1, steps + 1):
        now = step * scenario.step_s
        while arrival < now:
            replica = min(fleet, key=lambda r: (len(r.running), draw.random()))
            request = _Request(
                draw.choices(names, weights)[0], arrival, arrival + scenario.prefill_s,
                1 + int(draw.expovariate(1.0 / scenario.tokens)), [0] * (scenario.gamma + 1),
            )  # fmt: skip
            own[id(request)] = draw.gauss(0.0, scenario.spread) if scenario.spread else 0.0
            replica.running.append(request)
            arrival += draw.expovariate(scenario.requests_per_s)
        for index, replica in enumerate(fleet):
            for request in list(replica.running):
                if request.drafts_from > now - scenario.step_s:
                    continue
                curve, accepted, shift = scenario.truth(request.request_class, now), 0, own[id(request)]
                while accepted < scenario.gamma:
                    rate = curve.conditional_at(accepted + 1)
                    if shift:
                        rate = min(max(rate + shift, 0.02), 0.98)
                    if draw.random() >= rate:
                        break
                    replica.accepted[accepted] += 1
                    accepted += 1
                replica.drafts += 1
                request.histogram[accepted] += 1
                request.tokens_left -= accepted + 1
                if request.tokens_left <= 0:
                    replica.running.remove(request)
                    own.pop(id(request))
                    _accrue(replica, request, now)
                    yield Finished(now, index, request.request_class, request.histogram)
            if now - replica.phase >= replica.counted_from - replica.phase + 1.0 or (
                replica.counted_from == 0.0 and now >= 1.0 + replica.phase
            ):
                for request in replica.running:
                    _accrue(replica, request, now)
                if replica.drafts:
                    yield Scraped(now, index, replica.drafts, replica.accepted, replica.seconds)
                    replica.drafts, replica.accepted, replica.seconds = 0, [0] * scenario.gamma, {}
                replica.counted_from = now


def _accrue(replica: _Replica, request: _Request, now: float) -> None:
    since = max(request.begin, replica.counted_from)
    replica.seconds[request.request_class] = replica.seconds.get(request.request_class, 0.0) + max(now - since, 0.0)
