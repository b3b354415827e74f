"""Which fleets are worth a replay, and which of them is proposed.

Where there are few fleets, all are tried. Else uniform ones come first, one for each way of starting a replica. The two
best ways that draft are then mixed with plain replicas in a few shares, and the best fleet so far is bettered by moving
replicas from one way to another, half of them at a time, then fewer, until moving a single one brings nothing.

Fleets whose mean latency is within half a percent of the best are alike, and of those the one with the fewest ways of
starting a replica is proposed, and among those the one with the fewest schedules.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from adaptive_gamma.routing import GammaSchedule
from adaptive_gamma.simulation.plan.start_up import StartUp
from adaptive_gamma.simulation.plan.trial import FleetTrials, Shape, Trial

__all__ = ["ALIKE", "MOST_TRIALS", "Plan", "search"]

ALIKE = 0.005
"""Mean latencies this close (relative) are alike."""
MOST_TRIALS = 60
"""Fleets tried unless told otherwise."""
_WAYS_IN_A_MIX = 4
"""Ways that draft which the last stage moves replicas to, besides plain."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The fleet proposed, and what it was chosen from."""

    chosen: Trial
    plain: Trial
    """All replicas plain."""
    uniform: tuple[Trial, ...]
    """All replicas started alike, each way that drafts; the best first."""
    tried: tuple[Trial, ...]
    """Every fleet of the full number of replicas, the best first."""
    plain_instead: Trial | None
    """The proposed fleet with one replica that drafts made plain; None where it has none that drafts."""
    without_plain: Trial | None
    """The best fleet tried without a plain replica."""
    fewest: Trial | None
    """Fewer replicas that still keep within the limits; None where there are no limits, or none fewer do."""
    luck: float | None
    """How much the mean latency of the proposed fleet moves (relative) with other luck of the drafts; None: not
    looked at."""


def search(
    trials: FleetTrials, replicas: int, other_luck: Callable[[Shape], Trial] | None = None, most: int = MOST_TRIALS
) -> Plan:
    """Find the fleet of ``replicas`` replicas that serves the trace best.

    Args:
        trials: replays fleets.
        replicas: how many to start.
        other_luck: tries a shape with another seed.
        most: fleets to try, beside the first two stages and what the questions of the plan need.
    """
    ways = range(len(trials.start_ups))
    uniform = [trials.trial(_alone(way, replicas, len(ways))) for way in ways]
    drafting = sorted(uniform[1:], key=lambda trial: trial.rank)
    if math.comb(replicas + len(ways) - 1, replicas) <= most:
        for chosen_ways in itertools.combinations_with_replacement(ways, replicas):
            trials.trial(tuple(chosen_ways.count(way) for way in ways))
    else:
        by_rank = [trial.shape.index(replicas) for trial in drafting]
        for way in by_rank[:2]:
            for plain in _shares(replicas):
                trials.trial(_moved(_alone(way, replicas, len(ways)), way, 0, plain))
        _better(trials, replicas, [0, *by_rank[:_WAYS_IN_A_MIX]], most)
    chosen = _simplest(_ranked(trials, replicas), trials.start_ups)
    plain_instead = None
    if chosen.plain < replicas:
        way = max(range(1, len(ways)), key=lambda way: chosen.shape[way])
        plain_instead = trials.trial(_moved(chosen.shape, way, 0, 1))
    fewest = _fewest(trials, chosen) if trials.limits.any and chosen.within else None
    tried = _ranked(trials, replicas)
    luck = None
    if other_luck is not None:
        luck = abs(other_luck(chosen.shape).latency_s / chosen.latency_s - 1.0)
    return Plan(
        chosen=chosen,
        plain=uniform[0],
        uniform=tuple(drafting),
        tried=tuple(tried),
        plain_instead=plain_instead,
        without_plain=next((trial for trial in tried if not trial.plain), None),
        fewest=fewest,
        luck=luck,
    )


def _alone(way: int, replicas: int, ways: int) -> Shape:
    return tuple(replicas if each == way else 0 for each in range(ways))


def _moved(shape: Shape, source: int, target: int, count: int) -> Shape:
    moved = list(shape)
    moved[source] -= count
    moved[target] += count
    return tuple(moved)


def _shares(replicas: int) -> list[int]:
    """Numbers of plain replicas to mix in: one, all but one, and quarters between."""
    wanted = {1, replicas - 1, *(round(replicas * quarter / 4) for quarter in (1, 2, 3))}
    return sorted(count for count in wanted if 0 < count < replicas)


def _ranked(trials: FleetTrials, replicas: int) -> list[Trial]:
    return sorted((t for t in trials.made.values() if t.replicas == replicas), key=lambda trial: trial.rank)


def _better(trials: FleetTrials, replicas: int, ways: Sequence[int], most: int) -> None:
    """Move replicas between ways while that helps."""
    step = max(replicas // 2, 1)
    best = _ranked(trials, replicas)[0]
    while len(trials.made) < most:
        tried = [trials.trial(shape) for shape in _room(_neighbours(best.shape, ways, step), trials, most)]
        ahead = min(tried, key=lambda trial: trial.rank, default=best)
        if ahead.rank < best.rank:
            best = ahead
        elif step == 1:
            return
        else:
            step //= 2


def _neighbours(shape: Shape, ways: Sequence[int], step: int) -> list[Shape]:
    return [
        _moved(shape, source, target, step)
        for source in range(len(shape))
        if shape[source] >= step
        for target in ways
        if target != source
    ]


def _room(shapes: Iterable[Shape], trials: FleetTrials, most: int) -> list[Shape]:
    """Those that were tried already, and as many new ones as may still be."""
    left = most - len(trials.made)
    kept = []
    for shape in shapes:
        new = shape not in trials.made
        if not new or left > 0:
            kept.append(shape)
            left -= new
    return kept


def _simplest(ranked: Sequence[Trial], ways: Sequence[StartUp]) -> Trial:
    best = ranked[0]
    alike = [
        trial for trial in ranked if trial.rank[0] == best.rank[0] and trial.latency_s <= best.latency_s * (1.0 + ALIKE)
    ]
    return min(alike, key=lambda trial: (len(trial.parts), _schedules(trial, ways), trial.rank))


def _schedules(trial: Trial, ways: Sequence[StartUp]) -> int:
    """Replicas that need a schedule; one gamma for every batch is less to set up."""
    return sum(count for count, way in zip(trial.shape, ways, strict=True) if isinstance(way.gamma, GammaSchedule))


def _fewest(trials: FleetTrials, chosen: Trial) -> Trial | None:
    """By halving: fewer replicas in the same proportions, as near as whole replicas allow."""
    found, low, high = None, 1, chosen.replicas - 1
    while low <= high:
        count = (low + high) // 2
        trial = trials.trial(_scaled(chosen.shape, count))
        if trial.within:
            found, high = trial, count - 1
        else:
            low = count + 1
    return found


def _scaled(shape: Shape, count: int) -> Shape:
    """``count`` replicas in the proportions of a shape: the largest remainders get what rounding down leaves."""
    total = sum(shape)
    exact = [part * count / total for part in shape]
    whole = [int(part) for part in exact]
    by_rest = sorted(range(len(shape)), key=lambda way: (whole[way] - exact[way], way))
    for way in by_rest[: count - sum(whole)]:
        whole[way] += 1
    return tuple(whole)
