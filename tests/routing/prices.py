"""A policy small enough to check by hand: a linear step time and two classes."""

from __future__ import annotations

from dataclasses import dataclass, field

from adaptive_gamma.routing import canonical_class


@dataclass
class LinearPrices:
    """t(B, gamma) = fixed + per_token B (gamma + 1) + draft gamma; E = 1 + sum of alpha^k."""

    fixed: float = 0.020
    per_token: float = 0.0004
    draft: float = 0.001
    alpha: dict[str, float] = field(default_factory=lambda: {"structured": 0.85, "chat": 0.55, "unsure": 0.7})
    max_batch: int = 64

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.alpha)

    def class_for(self, name: str) -> str:
        name = canonical_class(name)
        return name if name in self.alpha else "unsure"

    def context_bucket(self, context_tokens: float | None) -> int:
        return 0

    def expected_tokens(self, request_class: str, gamma: int) -> float:
        return 1.0 + sum(self.alpha[self.class_for(request_class)] ** k for k in range(1, gamma + 1))

    def step_seconds(
        self, batch: int, gamma: int, context_tokens: float | None = None, speculative: bool = True
    ) -> float:
        tax = 1.1 if speculative and gamma == 0 else 1.0
        return tax * (self.fixed + self.per_token * batch * (gamma + 1) + self.draft * gamma)

    def step_row(self, gamma: int, context_tokens: float | None = None, speculative: bool = True) -> list[float]:
        return [
            self.step_seconds(max(batch, 1), gamma, context_tokens, speculative) for batch in range(self.max_batch + 1)
        ]

    def marginal_row(self, gamma: int, context_tokens: float | None = None, speculative: bool = True) -> list[float]:
        def t(batch: int) -> float:
            return self.step_seconds(batch, gamma, context_tokens, speculative)

        return [t(n + 1) + n * (t(n + 1) - t(n)) if n else t(1) for n in range(self.max_batch)]

    def prefill_seconds(self, tokens: int) -> float:
        return self.per_token * tokens
