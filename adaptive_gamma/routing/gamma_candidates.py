"""What each gamma a replica could run with would bring, at the load and for the mix of classes it has now."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from adaptive_gamma.routing.gamma_loads import Loads, gamma_for
from adaptive_gamma.routing.replica import GammaSchedule, GammaSetting

__all__ = ["CAPTURE_LIMIT", "SLO", "GammaCandidate", "GammaPrices", "GammaScores"]

CAPTURE_LIMIT = "capture_limit"
SLO = "slo"
_LEAST_SHARE = 0.01
"""A class with less of the traffic does not decide whether the SLO is met."""


class GammaPrices(Protocol):
    """What is asked of a policy; ``adaptive_gamma.policy.Policy`` answers it."""

    @property
    def default_class(self) -> str: ...

    @property
    def min_gamma(self) -> int: ...

    @property
    def max_gamma(self) -> int: ...

    def class_for(self, name: str) -> str: ...

    def expected_tokens(self, request_class: str, gamma: int) -> float: ...

    def step_seconds(
        self, batch: int, gamma: int, context_tokens: float | None = None, speculative: bool = True
    ) -> float: ...

    def largest_gamma(self, batch: int) -> int | None:
        """The largest gamma whose step is captured at a batch (0 at least); None where there is no limit."""
        ...


@dataclass(frozen=True, slots=True)
class GammaCandidate:
    """One gamma, priced."""

    gamma: int
    tokens_per_s: float
    """Of the whole replica, at its usual load."""
    tpot_s: float
    """Time per output token of the slowest class in the mix, at its highest load lately."""
    forbidden: str | None
    """Why it must not run: ``capture_limit`` or ``slo``; None when it may."""


class GammaScores:
    """Prices gammas for one replica; loads and gammas vary.

    tokens/s = B E(gamma) / t(B, gamma), where E is the mean over the mix of 1 + accepted x acceptance_ratio.

    Args:
        prices: the policy.
        mix: share of the traffic of each class, by any name; need not sum to 1. Empty: the default class.
        context_tokens: mean context; None takes the policy's middle bucket.
        acceptance_ratio: accepted tokens seen over those the policy expects.
        step_time_ratio: observed over predicted step time.
        slo_tpot_s: longest time per output token, in seconds.
    """

    def __init__(
        self,
        prices: GammaPrices,
        mix: Mapping[str, float],
        *,
        context_tokens: float | None = None,
        acceptance_ratio: float | None = None,
        step_time_ratio: float | None = None,
        slo_tpot_s: float | None = None,
    ) -> None:
        self._prices = prices
        self._context = context_tokens
        self._accepted_ratio = 1.0 if acceptance_ratio is None else acceptance_ratio
        self._time_ratio = 1.0 if step_time_ratio is None else step_time_ratio
        self._slo = slo_tpot_s
        shares: dict[str, float] = {}
        for name, share in mix.items():
            if share > 0:
                known = prices.class_for(name)
                shares[known] = shares.get(known, 0.0) + share
        total = math.fsum(shares.values())
        self._mix = (
            {name: share / total for name, share in shares.items()} if total > 0 else {prices.default_class: 1.0}
        )

    def tokens_per_step(self, gamma: int) -> float:
        """E of the mix."""
        return math.fsum(share * self._expected(name, gamma) for name, share in self._mix.items())

    def tokens_per_s(self, load: float, gamma: int) -> float:
        """Of the whole replica at a number of sequences (below 1 counts as 1)."""
        load = max(load, 1.0)
        return load * self.tokens_per_step(gamma) / self.step_seconds(load, gamma)

    def rate(self, loads: Loads, setting: GammaSetting) -> float:
        """Mean tokens per second over the loads."""
        return math.fsum(share * self.tokens_per_s(load, gamma_for(setting, load)) for load, share in loads)

    def gain(self, loads: Loads, setting: GammaSetting, over: GammaSetting) -> float:
        """Relative difference in tokens per second over the loads: 0.1 is 10 % more."""
        return self.rate(loads, setting) / self.rate(loads, over) - 1.0

    def gain_if_all_accepted(self, loads: Loads, gamma: int, over: GammaSetting) -> float:
        """The most that a gamma could bring over another, whatever acceptance is."""
        best = math.fsum(
            share * max(load, 1.0) * (1.0 + gamma) / self.step_seconds(max(load, 1.0), gamma) for load, share in loads
        )
        return best / self.rate(loads, over) - 1.0

    def step_seconds(self, load: float, gamma: int) -> float:
        """Of a speculative replica; linear between whole batches."""
        below = math.floor(load)
        seconds = self._prices.step_seconds(below, gamma, self._context, True)
        if load > below:
            seconds += (load - below) * (self._prices.step_seconds(below + 1, gamma, self._context, True) - seconds)
        return seconds * self._time_ratio

    def candidate(self, load: float, peak: int, gamma: int) -> GammaCandidate:
        """A gamma with all that is asked of it."""
        peak = max(peak, 1)
        tpot_s = self.step_seconds(peak, gamma) / self._slowest(gamma)
        return GammaCandidate(gamma, self.tokens_per_s(load, gamma), tpot_s, self._forbidden(peak, gamma, tpot_s))

    def column(self, batches: Sequence[int], gamma: int) -> list[tuple[float, str | None]]:
        """For each batch: tokens per second of one sequence, and why the gamma must not run there."""
        expected, slowest = self.tokens_per_step(gamma), self._slowest(gamma)
        found = []
        for batch in batches:
            seconds = self._prices.step_seconds(batch, gamma, self._context, True) * self._time_ratio
            found.append((expected / seconds, self._forbidden(batch, gamma, seconds / slowest)))
        return found

    def limit_broken(self, setting: GammaSetting, peak: int) -> str | None:
        """The limit that a setting breaks at a load up to the highest one, the capture's before the SLO's."""
        peak = max(peak, 1)
        if not isinstance(setting, GammaSchedule):
            return self.candidate(peak, peak, setting).forbidden
        starts = [part[0] for part in setting.ranges if part[0] <= peak]
        ends = [*(start - 1 for start in starts[1:]), peak]
        broken = {self.candidate(end, end, setting.at(end)).forbidden for end in ends}
        return next((limit for limit in (CAPTURE_LIMIT, SLO) if limit in broken), None)

    def _slowest(self, gamma: int) -> float:
        """Tokens per step of the class in the mix that gets fewest."""
        per_step = [(share, self._expected(name, gamma)) for name, share in self._mix.items()]
        return min((e for share, e in per_step if share >= _LEAST_SHARE), default=min(e for _, e in per_step))

    def _forbidden(self, batch: int, gamma: int, tpot_s: float) -> str | None:
        limit = self._prices.largest_gamma(batch)
        if limit is not None and gamma > limit:
            return CAPTURE_LIMIT
        return SLO if self._slo is not None and tpot_s > self._slo else None

    def _expected(self, name: str, gamma: int) -> float:
        if not gamma:
            return 1.0
        return 1.0 + (self._prices.expected_tokens(name, gamma) - 1.0) * self._accepted_ratio
