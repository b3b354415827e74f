"""What acting would have changed, as sums over requests, and how sure that is: a bootstrap over blocks of time.

Of each request that ended well its observed time is taken, and the part of it that decoding took is multiplied by the
predicted ratio of its time per token where the decision would have sent it to that where it went. Errors that all
predictions share cancel in the ratio; those that differ between the pools do not, so that the ratio is also corrected
by what each pool was observed to take over what was predicted of it, where enough was observed of both.

Requests that are open together share loads and so luck; whole blocks of time are drawn, not single requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_gamma.observe.observation import Observation

__all__ = [
    "BLOCKS_FROM",
    "MEASURED_ENOUGH",
    "Interval",
    "Resampling",
    "Sums",
    "error_ratios",
    "resampling",
    "usable",
    "whole_sums",
]

Floats = NDArray[np.float64]

MEASURED_ENOUGH = 30
"""Requests with a measured time per token that a pool needs for its predictions to be corrected."""
DRAWS = 2000
_BLOCK_S = 60.0
_FEWEST_BLOCKS = 20
_PER_BLOCK = 5
BLOCKS_FROM = _FEWEST_BLOCKS * _PER_BLOCK
"""Requests from which blocks of time are drawn and not single requests."""
_SEED = 20_240_901
_POOLS = ("plain", "speculative")


class Interval(NamedTuple):
    """A figure with the bounds that 95 % of the draws lie between."""

    value: float
    low: float
    high: float


class Sums:
    """Sums over requests, one row a block of them; what is wanted is a function of sums.

    Columns: requests, those that would have gone elsewhere, seconds observed, seconds that do not scale, seconds that
    do by (pool it went to, pool decided) and scaled; the same decode seconds over requests whose tokens are known, and
    their tokens; predicted seconds with the delay to others where it went and where decided; log of observed over
    predicted, and their number, by pool.
    """

    def __init__(self, table: Floats) -> None:
        self.table = table

    def _column(self, *columns: int) -> Floats:
        return self.table[:, list(columns)]

    @property
    def requests(self) -> Floats:
        return self.table[:, 0]

    @property
    def moved(self) -> Floats:
        return self.table[:, 1]

    @property
    def seconds(self) -> Floats:
        return self.table[:, 2]

    def seconds_had_it_acted(self, *, corrected: bool) -> Floats:
        """What the observed seconds would have been."""
        total: Floats = self.table[:, 3] + (self._column(4, 5, 6, 7) * self._correction(corrected)).sum(axis=1)
        return total

    @property
    def tokens(self) -> Floats:
        return self.table[:, 9]

    @property
    def decode_seconds(self) -> Floats:
        """Observed, over the requests whose tokens are known."""
        return self.table[:, 8]

    def decode_seconds_had_it_acted(self, *, corrected: bool) -> Floats:
        total: Floats = (self._column(10, 11, 12, 13) * self._correction(corrected)).sum(axis=1)
        return total

    @property
    def cost(self) -> Floats:
        """Predicted seconds with the delay to others, where the requests went."""
        return self.table[:, 14]

    @property
    def cost_had_it_acted(self) -> Floats:
        return self.table[:, 15]

    def measured(self, pool: int) -> Floats:
        """Requests with a measured time per token that went to a pool."""
        return self.table[:, 18 + pool]

    def error(self, pool: int) -> Floats:
        """Observed over predicted time of a pool, geometric mean; NaN where nothing was measured."""
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio: Floats = np.exp(self.table[:, 16 + pool] / self.table[:, 18 + pool])
        return ratio

    def _correction(self, corrected: bool) -> Floats:
        """By (went, decided) for each row; 1 where the two are of one pool."""
        factors = np.ones((len(self.table), 4))
        if corrected:
            plain, speculative = self.error(0), self.error(1)
            factors[:, 1], factors[:, 2] = speculative / plain, plain / speculative
        return factors


def usable(observation: Observation) -> bool:
    """Whether it ended well, so that its time means something."""
    status = observation.status
    return observation.outcome == "ok" and status is not None and 200 <= status < 300 and observation.total_s > 0


def _rows(observations: Sequence[Observation]) -> Floats:
    table = np.zeros((len(observations), 20))
    for row, each in zip(table, observations, strict=True):
        sent, decided = each.sent, each.decided
        tokens = each.output_tokens or None
        streamed = each.stream and each.first_byte_s is not None
        wait = min(each.first_byte_s or 0.0, each.total_s) if streamed else 0.0
        scales = each.total_s - wait
        expected = tokens or each.expected_tokens
        if streamed:
            predicted, other = sent.tpot_s, decided.tpot_s
        else:
            predicted = sent.prefill_s + expected * sent.tpot_s
            other = decided.prefill_s + expected * decided.tpot_s
        ratio = other / predicted
        went, wanted = _POOLS.index(sent.pool), _POOLS.index(decided.pool)
        row[0], row[1], row[2], row[3] = 1.0, sent.replica != decided.replica, each.total_s, wait
        row[4 + 2 * went + wanted] = scales * ratio
        row[14], row[15] = expected * sent.cost_s, expected * decided.cost_s
        steps = None if tokens is None else tokens - 1 if streamed else tokens
        if steps and scales > 0:
            row[8], row[9] = scales, steps
            row[10 + 2 * went + wanted] = scales * ratio
            row[16 + went] = np.log(scales / (steps * predicted if streamed else predicted))
            row[18 + went] = 1.0
    return table


class Resampling(NamedTuple):
    """Blocks of requests and draws of them."""

    blocks: int
    block_s: float | None
    """Length of a block; None where each request is one."""
    draws: Sums
    """One row a draw."""


def whole_sums(observations: Sequence[Observation]) -> Sums:
    """Sums over all of them, in one row."""
    return Sums(_rows(observations).sum(axis=0, keepdims=True))


def error_ratios(observations: Sequence[Observation], pool: int) -> Floats:
    """Observed over predicted time of each request whose tokens are known and that went to a pool (0: plain)."""
    rows = _rows(observations)
    ratios: Floats = np.exp(rows[rows[:, 18 + pool] > 0, 16 + pool])
    return ratios


def resampling(observations: Sequence[Observation]) -> Resampling:
    """Draw blocks with replacement, as many as there are, a good many times. The same input gives the same draws.

    Blocks are a minute long; of a shorter stretch they are a twentieth of it, or, where too little happened in that,
    single requests.
    """
    rows = _rows(observations)
    times = np.array([each.time_s for each in observations])
    span = float(times.max() - times.min())
    length: float | None = min(_BLOCK_S, span / _FEWEST_BLOCKS)
    if not length or len(observations) < BLOCKS_FROM:
        length, sums = None, rows
    else:
        _, index = np.unique(((times - times.min()) // length).astype(np.int64), return_inverse=True)
        sums = np.zeros((int(index.max()) + 1, rows.shape[1]))
        np.add.at(sums, index, rows)
    generator = np.random.default_rng(_SEED)
    blocks = len(sums)
    drawn = np.empty((DRAWS, rows.shape[1]))
    for start in range(0, DRAWS, 100):
        weights = generator.multinomial(blocks, np.full(blocks, 1.0 / blocks), size=100)
        drawn[start : start + 100] = weights @ sums
    return Resampling(blocks, length, Sums(drawn))
