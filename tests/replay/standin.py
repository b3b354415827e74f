"""A policy with prices that a person can compute by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul

from adaptive_gamma.routing import canonical_class

BASE_S = 0.0200137
PER_SEQUENCE_S = 0.000_203_1
PER_TOKEN_S = 0.0001
"""Above ``FREE_TOKENS`` tokens a step, as if compute bound."""
FREE_TOKENS = 64
DRAFT_S = 0.001
ZERO_GAMMA_TAX = 1.1


class HandPolicy:
    """t = base + per sequence B + per token max(B (gamma + 1) - free, 0) + gamma draft; gamma 0 with a tax.

    ``curves`` are conditional acceptance rates by class, the last one repeated.
    """

    name = "by-hand"
    max_gamma = 8
    max_batch = 512

    def __init__(self, curves: Mapping[str, Sequence[float]] | None = None, prefill_s: float = 0.0001) -> None:
        self._curves = dict(curves or {"chat": (0.73, 0.69), "structured": (0.84, 0.83)})
        self.classes = tuple(self._curves)
        self.default_class = self.classes[0]
        self._prefill_s = prefill_s
        self._rows: dict[tuple[int, bool], list[float]] = {}
        self._marginal: dict[tuple[int, bool], list[float]] = {}

    def class_for(self, name: str) -> str:
        name = name if name in self._curves else canonical_class(name)
        return name if name in self._curves else self.default_class

    def survival(self, request_class: str) -> list[float]:
        curve = list(self._curves[request_class])
        return list(accumulate(curve + [curve[-1]] * (self.max_gamma - len(curve)), mul))

    def context_bucket(self, context_tokens: float | None) -> int:
        return 0

    def expected_tokens(self, request_class: str, gamma: int) -> float:
        return 1.0 + sum(self.survival(request_class)[:gamma])

    def step_seconds(
        self, batch: int, gamma: int, context_tokens: float | None = None, speculative: bool = True
    ) -> float:
        seconds = BASE_S + PER_SEQUENCE_S * batch + PER_TOKEN_S * max(batch * (gamma + 1) - FREE_TOKENS, 0)
        seconds += DRAFT_S * gamma
        return seconds * ZERO_GAMMA_TAX if speculative and not gamma else seconds

    def step_row(self, gamma: int, context_tokens: float | None = None, speculative: bool = True) -> list[float]:
        key = (gamma, speculative)
        if key not in self._rows:
            self._rows[key] = [self.step_seconds(max(b, 1), gamma, None, speculative) for b in range(513)]
        return self._rows[key]

    def marginal_row(self, gamma: int, context_tokens: float | None = None, speculative: bool = True) -> list[float]:
        key = (gamma, speculative)
        if key not in self._marginal:
            t = self.step_row(gamma, None, speculative)
            self._marginal[key] = [t[1], *(t[n + 1] + n * (t[n + 1] - t[n]) for n in range(1, 512))]
        return self._marginal[key]

    def best_gamma(self, request_class: str, batch: int, context_tokens: float | None = None) -> int:
        def rate(gamma: int) -> float:
            return self.expected_tokens(request_class, gamma) / self.step_seconds(batch, gamma, None, gamma > 0)

        return max(range(self.max_gamma + 1), key=rate)

    def prefill_seconds(self, tokens: int) -> float:
        return self._prefill_s * tokens
