"""The schedule of at most n ranges that loses least: exact, by dynamic programming over batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adaptive_gamma.roofline import FloatArray

__all__ = ["Candidate", "fewest_ranges"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """The best schedule of at most some number of ranges."""

    cost: float
    rows: npt.NDArray[np.int64]
    """Index of the gamma at each batch."""


def fewest_ranges(
    cost: FloatArray,
    most: int,
    may_start: Callable[[int], bool],
    first_is_largest: bool,
) -> list[Candidate | None]:
    """For 1 .. ``most`` ranges, the schedule of least total cost; an entry may use fewer ranges than it may.

    Args:
        cost: [gamma, batch - 1], infinite where a gamma may not run; gammas rise.
        most: ranges at most.
        may_start: whether a range other than the first may start at a batch.
        first_is_largest: no later range may have a larger gamma than the first one.

    Returns:
        One candidate for each number of ranges, None where so few allow no schedule.
    """
    starts = [may_start(batch) for batch in range(1, cost.shape[1] + 1)]
    free = _search(cost, most, starts, None)
    if not first_is_largest:
        return free
    if all(candidate is None or candidate.rows[0] == candidate.rows.max() for candidate in free):
        return free
    bound = [_search(cost[: top + 1], most, starts, top) for top in range(cost.shape[0])]
    return [
        min((c for c in by_start if c is not None), key=lambda c: c.cost, default=None)
        for by_start in zip(*bound, strict=True)
    ]


def _search(cost: FloatArray, most: int, starts: list[bool], start: int | None) -> list[Candidate | None]:
    gammas, batches = cost.shape
    total = np.full((most, gammas), np.inf)
    total[0, :] = cost[:, 0]
    if start is not None:
        total[0, np.arange(gammas) != start] = np.inf
    # came[b, s, g]: the gamma before, where a range starts at batch b + 1 with gamma g as the (s + 1)th range; else -1.
    came = np.full((batches, most, gammas), -1, dtype=np.int16)
    for b in range(1, batches):
        stay = total
        if starts[b] and most > 1:
            before = stay[:-1].argmin(axis=1)
            switched = stay[np.arange(most - 1), before][:, None]
            better = switched < stay[1:]
            total = stay.copy()
            total[1:] = np.where(better, switched, stay[1:])
            came[b, 1:] = np.where(better, before[:, None], -1)
        total = total + cost[:, b]
    found: list[Candidate | None] = []
    for n in range(most):
        ranges, gamma = np.unravel_index(int(total[: n + 1].argmin()), (n + 1, gammas))
        cost_of_it = float(total[ranges, gamma])
        possible = np.isfinite(cost_of_it)
        found.append(Candidate(cost_of_it, _path(came, int(ranges), int(gamma))) if possible else None)
    return found


def _path(came: npt.NDArray[np.int16], ranges: int, gamma: int) -> npt.NDArray[np.int64]:
    rows = np.empty(came.shape[0], dtype=np.int64)
    for b in range(came.shape[0] - 1, -1, -1):
        rows[b] = gamma
        previous = int(came[b, ranges, gamma])
        if previous >= 0:
            ranges, gamma = ranges - 1, previous
    return rows
