"""The table from the inputs: every class, context, batch and gamma at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adaptive_gamma.policy.physics import curves_of, speculation_cost
from adaptive_gamma.policy.schema import CellTable, PolicyInputs, PolicyTable
from adaptive_gamma.roofline import AcceptanceCurve, FloatArray, SpeculationCost

__all__ = ["SPEEDUP_DIGITS", "Grid", "build_grid", "listed_batches", "ranges_of"]

SPEEDUP_DIGITS = 4
"""Decimals of a stored speed-up."""
_TIE = 1e-9
"""Relative difference below which two gammas are equally good, so that the last bits of a float decide nothing."""


@dataclass(frozen=True, slots=True)
class Grid:
    """What the inputs give, in full resolution."""

    cost: SpeculationCost
    curves: dict[str, AcceptanceCurve]
    gammas: tuple[int, ...]
    contexts: tuple[int, ...]
    speedup: FloatArray
    """[class, context, gamma, batch - 1], over plain decoding."""
    allowed: npt.NDArray[np.bool_]
    """[gamma, batch - 1], by the capture limit."""
    best: npt.NDArray[np.int64]
    """[class, context, batch - 1]."""
    plain_wins_from: tuple[tuple[int | None, ...], ...]
    """[class][context]."""
    within_slo: tuple[tuple[tuple[int, int], ...], ...] | None
    """[class][context]: last batch within the time per token asked for, with the best gamma and plain."""

    def table(self) -> PolicyTable:
        """The table as a policy file stores it."""
        return PolicyTable(
            gammas=list(self.gammas),
            classes={
                name: {context: self._cell(c, x) for x, context in enumerate(self.contexts)}
                for c, name in enumerate(self.curves)
            },
        )

    def _cell(self, c: int, x: int) -> CellTable:
        return CellTable(
            best_gamma=ranges_of(self.best[c, x]),
            plain_wins_from=self.plain_wins_from[c][x],
            speedup={
                batch: [
                    round(float(self.speedup[c, x, g, batch - 1]), SPEEDUP_DIGITS)
                    if self.allowed[g, batch - 1]
                    else None
                    for g in range(len(self.gammas))
                ]
                for batch in listed_batches(self.best.shape[2])
            },
            within_slo=None if self.within_slo is None else list(self.within_slo[c][x]),
        )


def build_grid(inputs: PolicyInputs, source: str = "inputs") -> Grid:
    """Compute everything a policy answers.

    The best gamma is the one of highest predicted speed-up in min_gamma .. max_gamma among those the capture limit
    allows, the smaller of equals; 0 where it allows none.

    Raises PolicyError for inputs that do not describe a step time, a drafter or a curve.
    """
    cost, curves = speculation_cost(inputs, source), curves_of(inputs, source)
    limits = inputs.limits
    gammas = np.arange(limits.min_gamma, limits.max_gamma + 1)
    batches = np.arange(1, limits.max_batch + 1)
    contexts = np.asarray(limits.context_buckets, dtype=np.float64)
    expected = np.stack([curve.expected_tokens(gammas.astype(np.float64)) for curve in curves.values()])
    prompts = limits.prompt_tokens_per_output_token
    plain = cost.plain_seconds(batches, contexts[:, None], prompts * (batches - 1))
    # A step of the prompts that keep pace with what it puts out knows the class; one without them does not.
    spec_prompts = prompts * (batches - 1) * expected[:, None, :, None] if prompts else 0.0
    spec = cost.speculative_seconds(batches, gammas[:, None], contexts[:, None, None], spec_prompts)
    speedup = expected[:, None, :, None] * (plain[:, None, :] / spec)
    allowed = cost.allowed(batches, gammas[:, None])

    reachable = np.where(allowed, speedup, -np.inf)
    top = reachable.max(axis=2, keepdims=True)
    first = np.argmax(reachable >= top * (1.0 - _TIE), axis=2)
    best = np.where(np.isfinite(top[:, :, 0, :]), gammas[first], 0)

    drafting = reachable[:, :, gammas >= 1, :].max(axis=2)
    return Grid(
        cost=cost,
        curves=curves,
        gammas=tuple(int(g) for g in gammas),
        contexts=tuple(limits.context_buckets),
        speedup=speedup,
        allowed=allowed,
        best=best,
        plain_wins_from=tuple(tuple(_from_where_below_one(row) for row in rows) for rows in drafting),
        within_slo=None
        if limits.slo_tpot_seconds is None
        else _within_slo(limits.slo_tpot_seconds, prompts, cost, list(curves.values()), best, contexts),
    )


def ranges_of(values: npt.NDArray[np.int64]) -> list[list[int]]:
    """Runs of equal values as [first, last, value], counted from 1."""
    starts = np.concatenate(([0], np.flatnonzero(np.diff(values)) + 1))
    ends = np.concatenate((starts[1:], [values.size]))
    return [[int(a) + 1, int(b), int(values[a])] for a, b in zip(starts, ends, strict=True)]


def listed_batches(max_batch: int) -> list[int]:
    """The batches whose speed-ups a file lists: powers of two, and the largest batch."""
    powers = [1 << i for i in range(max_batch.bit_length()) if 1 << i <= max_batch]
    return powers if powers[-1] == max_batch else [*powers, max_batch]


def _within_slo(
    slo: float,
    prompts: float,
    cost: SpeculationCost,
    curves: list[AcceptanceCurve],
    best: npt.NDArray[np.int64],
    contexts: FloatArray,
) -> tuple[tuple[tuple[int, int], ...], ...]:
    batches = np.arange(1, best.shape[2] + 1)
    others = prompts * (batches - 1)
    plain = np.asarray(cost.plain_seconds(batches, contexts[:, None], others))
    found = []
    for c, curve in enumerate(curves):
        expected = curve.expected_tokens(best[c].astype(np.float64))
        tpot = cost.speculative_seconds(batches, best[c], contexts[:, None], others * expected) / expected
        found.append(tuple((_last_within(t, slo), _last_within(p, slo)) for t, p in zip(tpot, plain, strict=True)))
    return tuple(found)


def _last_within(tpot: FloatArray, slo: float) -> int:
    """The last batch before the first one that takes longer."""
    longer = np.flatnonzero(tpot > slo)
    return int(longer[0]) if longer.size else int(tpot.size)


def _from_where_below_one(best_speedup: FloatArray) -> int | None:
    """The first batch from which every later one is below 1; None where the last one is not."""
    reached = np.flatnonzero(best_speedup >= 1.0)
    first = int(reached[-1]) + 2 if reached.size else 1
    return first if first <= best_speedup.size else None
