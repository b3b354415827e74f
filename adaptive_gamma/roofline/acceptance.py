"""How many tokens a verify step yields: acceptance by draft position.

Two readings of "the acceptance rate at position i" are in use, and mixing them up costs a wrong gamma:

* **conditional**: accepted at i, among drafts whose first i-1 tokens were accepted. This is what E(gamma) multiplies.
* **unconditional**: accepted at i, among all drafts. This is what vLLM reports (accepted at the position / drafts);
  conditional = u_i / u_(i-1). Measured so, conditional acceptance is nearly flat by position.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, overload

import numpy as np

from adaptive_gamma.roofline.arrays import FloatArray, Numbers

__all__ = ["AcceptanceCurve", "Reading", "draft_length_varies"]

Reading: TypeAlias = Literal["conditional", "unconditional"]

_RISE_ALLOWED = 1e-9


@dataclass(frozen=True, slots=True)
class AcceptanceCurve:
    """Conditional acceptance by draft position, with one value for every position beyond the data.

    Raises ValueError for a rate outside 0..1.
    """

    conditional: tuple[float, ...]
    """c_1 .. c_n: position i accepted, given that positions 1 .. i-1 were."""
    plateau: float
    """c_i for every i > n."""

    def __post_init__(self) -> None:
        for position, rate in enumerate(self.conditional, 1):
            _check_rate(rate, f"rate at position {position}")
        _check_rate(self.plateau, "plateau")

    def conditional_at(self, position: int) -> float:
        """c_i for a position counted from 1."""
        if position < 1:
            raise ValueError(f"draft positions count from 1, not {position}")
        return self.conditional[position - 1] if position <= len(self.conditional) else self.plateau

    def conditionals(self, gamma: int) -> FloatArray:
        """c_1 .. c_gamma."""
        rates = np.full(gamma, self.plateau, dtype=np.float64)
        known = self.conditional[:gamma]
        rates[: len(known)] = known
        return rates

    def unconditional(self, gamma: int) -> FloatArray:
        """u_1 .. u_gamma: the share of drafts whose first i tokens are all accepted."""
        rates: FloatArray = np.cumprod(self.conditionals(gamma), dtype=np.float64)
        return rates

    @overload
    def expected_tokens(self, gamma: int) -> float: ...

    @overload
    def expected_tokens(self, gamma: Sequence[int] | FloatArray) -> FloatArray: ...

    def expected_tokens(self, gamma: int | Numbers) -> float | FloatArray:
        """E(gamma) = 1 + sum over k of prod_{i<=k} c_i: accepted draft tokens plus the one the target adds.

        Args:
            gamma: draft tokens per step, a whole number >= 0 or an array of them.

        >>> curve = AcceptanceCurve.two_parameter(first=0.9, plateau=0.5)
        >>> curve.expected_tokens(2)  # 1 + 0.9 + 0.9 x 0.5
        2.35
        >>> curve.expected_tokens([0, 1, 2]).tolist()
        [1.0, 1.9, 2.35]
        """
        gammas = np.asarray(gamma)
        if gammas.size == 0:
            return np.zeros(gammas.shape)
        wanted = gammas.astype(np.int64)
        if np.any(wanted != gammas) or np.any(wanted < 0):
            raise ValueError(f"gamma must be a whole number >= 0, not {gamma!r}")
        sums = np.concatenate(([1.0], 1.0 + np.cumsum(self.unconditional(int(wanted.max())))))
        if gammas.ndim == 0:
            return float(sums[int(wanted)])
        values: FloatArray = sums[wanted]
        return values

    @classmethod
    def from_conditional(cls, rates: Iterable[float], plateau: float | None = None) -> AcceptanceCurve:
        """From conditional rates; beyond them ``plateau``, or the last rate where it is None."""
        known = tuple(float(r) for r in rates)
        if plateau is None:
            if not known:
                raise ValueError("no rates and no plateau")
            plateau = known[-1]
        return cls(known, float(plateau))

    @classmethod
    def from_unconditional(cls, rates: Iterable[float], plateau: float | None = None) -> AcceptanceCurve:
        """From unconditional rates (accepted at position i / drafts), as vLLM reports them.

        Beyond them the conditional rate is ``plateau``, or the last ratio of neighbours where it is None.

        Raises ValueError where the rates rise: a draft accepted to position i was accepted to i-1.

        >>> AcceptanceCurve.from_unconditional([0.5, 0.25]).conditional  # half of those that got there
        (0.5, 0.5)
        """
        known = [float(r) for r in rates]
        conditional: list[float] = []
        before = 1.0
        for position, rate in enumerate(known, 1):
            _check_rate(rate, f"rate at position {position}")
            if rate > before + _RISE_ALLOWED:
                raise ValueError(
                    f"unconditional rates cannot rise, but position {position} has {rate:g} after {before:g}; "
                    "are these conditional rates?"
                )
            conditional.append(min(rate / before, 1.0) if before > 0 else 0.0)
            before = rate
        return cls.from_conditional(conditional, plateau)

    @classmethod
    def from_per_position(
        cls, rates: Iterable[float], reading: Reading = "unconditional", plateau: float | None = None
    ) -> AcceptanceCurve:
        """From per-position rates under a named reading; the default is what vLLM's counters give."""
        if reading == "unconditional":
            return cls.from_unconditional(rates, plateau)
        if reading == "conditional":
            return cls.from_conditional(rates, plateau)
        raise ValueError(f"reading must be 'unconditional' or 'conditional', not {reading!r}")

    @classmethod
    def independent(cls, alpha: float) -> AcceptanceCurve:
        """Every position accepted with the same probability: E = (1 - alpha^(gamma+1)) / (1 - alpha).

        >>> AcceptanceCurve.independent(0.5).expected_tokens(3)
        1.875
        """
        return cls((), float(alpha))

    @classmethod
    def line(
        cls, first: float, step: float, positions: int, reading: Reading = "conditional", plateau: float | None = None
    ) -> AcceptanceCurve:
        """Rates on a falling line: ``first - step * (i - 1)`` for positions 1 .. ``positions``."""
        if positions < 1:
            raise ValueError(f"a line needs at least one position, not {positions}")
        return cls.from_per_position((first - step * i for i in range(positions)), reading, plateau)

    @classmethod
    def two_parameter(cls, first: float, plateau: float) -> AcceptanceCurve:
        """Acceptance ``first`` at position 1 and the conditional rate ``plateau`` at every later one.

        Both readings agree on it: u_i = first * plateau^(i-1).

        >>> AcceptanceCurve.two_parameter(0.8, 0.5).unconditional(3).tolist()
        [0.8, 0.4, 0.2]
        """
        return cls((float(first),), float(plateau))

    @classmethod
    def from_counters(
        cls,
        drafts: float,
        accepted_per_position: Sequence[float],
        prior: AcceptanceCurve,
        pseudo_drafts: float,
        draft_tokens: float | None = None,
    ) -> AcceptanceCurve:
        """Posterior mean from an engine's counters, with the prior counted as ``pseudo_drafts`` further drafts.

        Each position has a Beta prior whose weight is the pseudo-drafts that reach it under the prior curve, so deep
        positions, which few drafts reach, lean on the prior for longer. Beyond the counted positions the prior's own
        rates follow, scaled by what the last counted position (from the second on) did to its prior.

        Args:
            drafts: verify steps that had a draft.
            accepted_per_position: for each position, drafts accepted at least that far.
            prior: the curve believed before any data.
            pseudo_drafts: its weight, > 0 (20 to 50 is usual).
            draft_tokens: tokens drafted in all; given, drafts of varying length are refused.

        Raises ValueError for counts that are negative, exceed the position before them, or come from drafts of
        varying length: a short draft counts against positions it never had, so the rates are biased low.
        """
        if pseudo_drafts <= 0 or not math.isfinite(pseudo_drafts):
            raise ValueError(f"pseudo_drafts must be > 0, not {pseudo_drafts!r}")
        if draft_tokens is not None and draft_length_varies(drafts, draft_tokens, len(accepted_per_position)):
            raise ValueError(
                f"draft length varied: {draft_tokens:g} draft tokens in {drafts:g} drafts is below "
                f"{len(accepted_per_position)} per draft, so the per-position rates are biased low"
            )
        positions = len(accepted_per_position)
        conditional: list[float] = []
        reached, pseudo_reached = float(drafts), float(pseudo_drafts)
        for position, accepted in enumerate(accepted_per_position, 1):
            if not 0 <= accepted <= reached:
                raise ValueError(f"accepted at position {position} must be in 0..{reached:g}, not {accepted!r}")
            believed = prior.conditional_at(position)
            weight = reached + pseudo_reached
            conditional.append((accepted + pseudo_reached * believed) / weight if weight > 0 else believed)
            reached, pseudo_reached = float(accepted), pseudo_reached * believed
        scale = 1.0
        if positions >= 2 and prior.conditional_at(positions) > 0:
            scale = conditional[-1] / prior.conditional_at(positions)
        conditional += [min(rate * scale, 1.0) for rate in prior.conditional[positions:]]
        return cls(tuple(conditional), min(prior.plateau * scale, 1.0))

    @classmethod
    def from_histogram(cls, accepted_counts: Sequence[float]) -> AcceptanceCurve:
        """From a histogram: ``accepted_counts[k]`` drafts had exactly k tokens accepted, k = 0 .. gamma."""
        counts = np.asarray(accepted_counts, dtype=np.float64)
        if counts.ndim != 1 or counts.size < 2:
            raise ValueError("a histogram needs counts for 0 and for at least 1 accepted token")
        if np.any(counts < 0) or not counts.sum() > 0:
            raise ValueError("a histogram needs counts >= 0, not all of them 0")
        at_least = np.cumsum(counts[::-1])[::-1]
        return cls.from_unconditional(float(r) for r in at_least[1:] / at_least[0])


def draft_length_varies(
    drafts: float | None, draft_tokens: float | None, positions: int, tolerance: float = 0.005
) -> bool | None:
    """Whether drafts were shorter than the number of per-position counters, which biases per-position rates low.

    So it is with n-gram drafting, gamma schedules and adaptive verification. None while there is nothing to tell from.

    Args:
        drafts: verify steps that had a draft.
        draft_tokens: tokens drafted in all.
        positions: number of per-position counters.
        tolerance: share of missing tokens that is put down to drafts cut short by the end of a request.
    """
    if drafts is None or draft_tokens is None or drafts <= 0 or positions < 1:
        return None
    return draft_tokens / drafts < positions * (1.0 - tolerance)


def _check_rate(rate: float, what: str) -> None:
    if not (math.isfinite(rate) and 0.0 <= rate <= 1.0):
        raise ValueError(f"{what} must be in 0..1, not {rate!r}")
