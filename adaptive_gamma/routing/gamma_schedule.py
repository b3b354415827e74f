"""Which schedule a replica should run with: a gamma for each number of sequences in a step. Pure.

The schedule wanted is made of the best gamma at each batch, for the mix of classes, the acceptance and the step times
of late, among those that keep within the capture limit and the SLO at that batch. Then it is made plain:

* It has the fewest ranges with which no batch loses more than 1 % of the tokens per second that its own best gamma
  would bring, so neighbours that hardly differ are one range, and a gamma that is best at one batch alone has none.
* An edge lies where the two gammas on either side are worth the same. Where that is right at the usual load, it goes
  to the nearer side of it, unless that loses more than 3 % anywhere: gamma would change there in every other step.

It replaces what is in force under the rules of :mod:`.set_gamma`. Its gain is that over the loads of late, each with
its share of the time, so an edge that would lie elsewhere by a few batches, or where the load never is, changes
nothing. As a schedule of ours keeps within the limits at every batch, a rising load breaks none; only the capture
limit, which the schedule of the start-up may break, does not wait for the dwell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from adaptive_gamma.policy.dead_band import edge_on_load
from adaptive_gamma.routing.gamma_candidates import CAPTURE_LIMIT, SLO, GammaScores
from adaptive_gamma.routing.gamma_change import GammaDecision, GammaInputs
from adaptive_gamma.routing.gamma_loads import Loads, drafted_at, mean_load, median_load
from adaptive_gamma.routing.replica import GammaSchedule, GammaSetting
from adaptive_gamma.routing.set_gamma import GammaCase, decide_change, scores_for, settable_gammas, undecided

__all__ = ["choose_schedule", "make_schedule", "schedule_for"]

_TOLERANCE = 0.01
_BAND_TOLERANCE = 0.03
_MOST_BATCHES = 8192


def choose_schedule(inputs: GammaInputs) -> GammaDecision:
    """The schedule a replica should have. Reads no clock and changes nothing; follow ``GammaDecision.memory``."""
    current, load, peak, loads = inputs.gamma, inputs.load, inputs.peak, inputs.loads
    if current is None or load is None or peak is None or not loads:
        return undecided(inputs)
    best: GammaSetting | None = schedule_for(inputs) if inputs.schedule is None else inputs.schedule
    if best is None or inputs.largest is None or inputs.largest_batch is None:
        return undecided(inputs)
    if all(_at(current, batch) == _at(best, batch) for batch in range(1, inputs.largest_batch + 1)):
        best = current
    scores, settable = scores_for(inputs), settable_gammas(inputs, inputs.largest)
    mean = mean_load(loads)
    candidates = tuple(scores.candidate(mean, peak, gamma) for gamma in settable)
    probe, probe_gain = _probe(scores, current, settable, loads, peak, inputs.largest_batch)
    case = GammaCase(
        scores=scores,
        loads=loads,
        current=current,
        best=best,
        gain=scores.gain(loads, best, current),
        forbidden=scores.limit_broken(current, min(peak, inputs.largest_batch)),
        best_forbidden=scores.limit_broken(best, min(peak, inputs.largest_batch)),
        probe=probe,
        probe_gain=probe_gain,
        candidates=candidates,
        at_once=frozenset({CAPTURE_LIMIT}),
    )
    return decide_change(inputs, case)


def schedule_for(inputs: GammaInputs) -> GammaSchedule | None:
    """The best schedule; None where it is not known what the engine can be set to."""
    largest, batches = inputs.largest, inputs.largest_batch
    if largest is None or batches is None or not 1 <= batches <= _MOST_BATCHES:
        return None
    gammas = settable_gammas(inputs, largest)
    return make_schedule(scores_for(inputs), gammas, batches, inputs.loads or ()) if gammas else None


def make_schedule(scores: GammaScores, gammas: Sequence[int], largest_batch: int, loads: Loads) -> GammaSchedule:
    """The schedule of few ranges with the most tokens per second at each batch from 1 to ``largest_batch``.

    Where no gamma keeps within the limits, the ones that break the milder one may run: time per token rather than the
    capture.

    Args:
        scores: the prices.
        gammas: those that may be set, rising; one at least.
        largest_batch: where the schedule ends.
        loads: those of late; edges keep off the usual one.
    """
    lost = _losses(scores, gammas, largest_batch)
    rows, firsts = _cover(lost, largest_batch)
    weights = [1.0 / largest_batch] * largest_batch
    for load, share in loads:
        weights[min(max(round(load), 1), largest_batch) - 1] += share
    firsts = _settled(lost, rows, firsts, weights)
    usual = median_load(loads)
    if usual is not None:
        firsts = _off_the_load(lost, rows, firsts, weights, usual)
    ends = [*(first - 1 for first in firsts[1:]), largest_batch - 1]
    return GammaSchedule(
        [(first + 1, end + 1, gammas[row]) for row, first, end in zip(rows, firsts, ends, strict=True)]
    )


# Below, batches count from 0, and ``lost[row][batch]`` is the share of the best tokens per second that the gamma of a
# row loses there, infinite where it must not run.


def _losses(scores: GammaScores, gammas: Sequence[int], largest_batch: int) -> list[list[float]]:
    columns = [scores.column(range(1, largest_batch + 1), gamma) for gamma in gammas]
    lost = [[math.inf] * largest_batch for _ in gammas]
    for batch in range(largest_batch):
        at = [column[batch] for column in columns]
        for broken in (set[str](), {SLO}, {SLO, CAPTURE_LIMIT}):
            top = max((rate for rate, forbidden in at if forbidden is None or forbidden in broken), default=None)
            if top is not None:
                for row, (rate, forbidden) in enumerate(at):
                    if forbidden is None or forbidden in broken:
                        lost[row][batch] = 1.0 - rate / top
                break
    return lost


def _cover(lost: list[list[float]], batches: int) -> tuple[list[int], list[int]]:
    """Rows and first batches of the fewest ranges within the tolerance: the gamma that lasts longest, each time."""
    rows: list[int] = []
    firsts: list[int] = []
    first = 0
    while first < batches:
        ends = [_end_of_run(row, first, batches) for row in lost]
        end = max(ends)
        rows.append(
            min((r for r, each in enumerate(ends) if each == end), key=lambda r: (math.fsum(lost[r][first:end]), r))
        )
        firsts.append(first)
        first = end
    return rows, firsts


def _end_of_run(lost: list[float], first: int, batches: int) -> int:
    return next((batch for batch in range(first, batches) if lost[batch] > _TOLERANCE), batches)


def _settled(lost: list[list[float]], rows: list[int], firsts: list[int], weights: list[float]) -> list[int]:
    """Each edge where it loses least, within what the tolerance allows: a range found above ends as late as it can."""
    settled = list(firsts)
    for k in range(1, len(rows)):
        before, after, last = lost[rows[k - 1]], lost[rows[k]], firsts[k]
        edge = cheapest = last
        cost = least = 0.0
        while edge - 1 > settled[k - 1] and after[edge - 1] <= _TOLERANCE:
            edge -= 1
            cost += weights[edge] * (after[edge] - before[edge])
            if cost < least:
                cheapest, least = edge, cost
        settled[k] = cheapest
    return settled


def _off_the_load(
    lost: list[list[float]], rows: list[int], firsts: list[int], weights: list[float], usual: float
) -> list[int]:
    """Edges that lie at the usual load, moved to the side of it that loses less, where that is little."""
    moved = list(firsts)
    for k in range(1, len(rows)):
        if not edge_on_load(moved[k] + 1, usual):
            continue
        most = (moved[k + 1] if k + 1 < len(rows) else len(weights)) - 1
        costs = []
        for step, side in ((-1, lost[rows[k]]), (1, lost[rows[k - 1]])):
            edge, cost = moved[k], 0.0
            while edge_on_load(edge + 1, usual):
                batch = edge - 1 if step < 0 else edge
                edge += step
                if not moved[k - 1] < edge <= most or side[batch] > _BAND_TOLERANCE:
                    break
                cost += weights[batch] * side[batch]
            else:
                costs.append((cost, edge))
        if costs:
            moved[k] = min(costs)[1]
    return moved


def _probe(
    scores: GammaScores, current: GammaSetting, gammas: Sequence[int], loads: Loads, peak: int, largest_batch: int
) -> tuple[GammaSetting | None, float]:
    """What to try where nothing is drafted at any load of late, and the most that it could bring."""
    if drafted_at(current, loads) > 0:
        return None, 0.0
    tried = next((g for g in gammas if g > 0 and scores.candidate(peak, peak, g).forbidden is None), None)
    if tried is None:
        return None, 0.0
    # Up to the highest load it drafts what is tried; beyond, where it has not been, what it does now.
    by_batch = [tried if batch <= max(peak, 1) else _at(current, batch) for batch in range(1, largest_batch + 1)]
    return _of_batches(by_batch), scores.gain_if_all_accepted(loads, tried, current)


def _at(setting: GammaSetting, batch: int) -> int:
    return setting.at(batch) if isinstance(setting, GammaSchedule) else setting


def _of_batches(by_batch: Sequence[int]) -> GammaSchedule:
    """The schedule with these gammas at batch 1, 2, ..."""
    ranges: list[tuple[int, int, int]] = []
    for batch, gamma in enumerate(by_batch, 1):
        if ranges and ranges[-1][2] == gamma:
            ranges[-1] = (ranges[-1][0], batch, gamma)
        else:
            ranges.append((batch, batch, gamma))
    return GammaSchedule(ranges)
