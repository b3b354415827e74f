"""Paired tests over prompts, and how small a difference they would have seen.

What they rest on: by the null hypothesis a candidate behaves as the reference's own further runs do, so that for each
prompt the candidate's distance from the reference's first run and the distance of those further runs could change
places. Then the sign of their difference is a coin's, whatever the distribution of the distances, and prompts are
independent of each other. Tokens of one prompt are not, so none is counted by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammaln, ndtri, xlog1py, xlogy

__all__ = [
    "detectable_mean",
    "detectable_share",
    "fewest_prompts",
    "holm",
    "sign_flip_p",
    "sign_p",
]

POWER = 0.8
"""The probability with which a difference called detectable is found."""
_EXACT_UP_TO = 16
_FLIPS = 20_000
_CHUNK = 1_000
_Counts = NDArray[np.int64]


def sign_p(more: int, fewer: int) -> float:
    """One-sided exact sign test (McNemar): so many pairs in which the candidate is further off, and so many in which
    it is nearer. Ties do not count."""
    return float(_at_least(np.array([more]), np.array([more + fewer]), 0.5)[0])


def sign_flip_p(differences: Sequence[float], seed: int = 0) -> float:
    """One-sided permutation test that the mean of ``differences`` is above 0, by flipping their signs.

    Exact up to 16 differences other than 0; beyond that from 20,000 random flips, seeded, so that it cannot come below
    1 in 20,001.
    """
    values = np.asarray([value for value in differences if value != 0.0], dtype=np.float64)
    if values.size == 0:
        return 1.0
    seen = math.fsum(values)
    # Sums that differ by rounding alone count as equal, which is on the side of no difference.
    least = seen - 1e-9 * math.fsum(np.abs(values))
    if values.size <= _EXACT_UP_TO:
        sums: NDArray[np.float64] = np.zeros(1)
        for value in values:
            sums = np.concatenate([sums + value, sums - value])
        return float(np.count_nonzero(sums >= least) / sums.size)
    rng = np.random.default_rng(seed)
    as_large = 0
    for _ in range(_FLIPS // _CHUNK):
        signs = rng.integers(0, 2, size=(_CHUNK, values.size)) * 2 - 1
        as_large += int(np.count_nonzero(signs @ values >= least))
    return (1 + as_large) / (1 + _FLIPS)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values adjusted for their number (Holm), in the order given."""
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        largest = max(largest, min((len(p_values) - rank) * p_values[place], 1.0))
        adjusted[place] = largest
    return adjusted


def fewest_prompts(level: float) -> int:
    """Prompts below which not even a difference in each of them would be significant."""
    return max(math.ceil(-math.log2(level) - 1e-9), 1)


def detectable_share(prompts: int, nearer: int, level: float) -> float | None:
    """The smallest share of prompts, beyond the floor's own, that the sign test would have found.

    Args:
        prompts: pairs in all.
        nearer: pairs in which the candidate was nearer than the floor: how often chance alone tells the two apart.
        level: of the test, already shared out among all tests.

    Returns:
        A share of 0..1, found with a probability of 80 %; None where even differences everywhere would not do.
    """
    chance = min(nearer / prompts, 0.5)
    low, high = 0.0, 1.0 - 2 * chance
    if high <= 0 or _sign_power(prompts, chance, high, level) < POWER:
        return None
    for _ in range(40):
        middle = (low + high) / 2
        if _sign_power(prompts, chance, middle, level) < POWER:
            low = middle
        else:
            high = middle
    return high


def _sign_power(prompts: int, chance: float, extra: float, level: float) -> float:
    """Probability that the sign test rejects, with chance differences either way and ``extra`` one way."""
    apart = 2 * chance + extra
    if apart <= 0:
        return 0.0
    counts = np.arange(prompts + 1)
    needed = _least_significant(counts, level)
    found = np.where(needed <= counts, _at_least(needed, counts, (chance + extra) / apart), 0.0)
    share = min(apart, 1.0)
    ways = gammaln(prompts + 1) - gammaln(counts + 1) - gammaln(prompts - counts + 1)
    likely = np.exp(ways + xlogy(counts, share) + xlog1py(prompts - counts, -share))
    return float(np.sum(likely * found))


def _at_least(least: _Counts, counts: _Counts, share: float) -> NDArray[np.float64]:
    """Probability of at least so many successes."""
    inside = np.clip(least, 1, np.maximum(counts, 1))
    tail = betainc(inside, np.maximum(counts, 1) - inside + 1, share)
    return np.where(least <= 0, 1.0, np.where(least > counts, 0.0, tail))


def _least_significant(counts: _Counts, level: float) -> _Counts:
    """The least number of heads that is significant, of each number of throws; more than there are where none is."""
    needed: _Counts = np.floor(counts / 2 + 0.5 * ndtri(1 - level) * np.sqrt(counts)).astype(np.int64)
    while np.any(low := (needed <= counts) & (_at_least(needed, counts, 0.5) > level)):
        needed = needed + low
    while np.any(high := (needed > 0) & (_at_least(needed - 1, counts, 0.5) <= level)):
        needed = needed - high
    return needed


def detectable_mean(differences: Sequence[float], level: float) -> float:
    """The smallest mean difference, in the unit of the differences, that would have been found with a probability of
    80 % were they as scattered as these (normal approximation)."""
    values = np.asarray(differences, dtype=np.float64)
    spread = float(np.std(values, ddof=1)) if values.size > 1 else 0.0
    return float(ndtri(1 - level) + ndtri(POWER)) * spread / math.sqrt(max(values.size, 1))
