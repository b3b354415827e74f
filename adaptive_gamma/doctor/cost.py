"""The arithmetic of what speculation costs and brings: steps, tokens of a step, and what a slow step can be owed to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from adaptive_gamma.doctor.evidence import LoadSeen, ServerEvidence, ServerStart, StepsSeen
from adaptive_gamma.engines import EngineReading

__all__ = [
    "DRAFT_PASS_SHARE",
    "LEAST_STEPS",
    "Pace",
    "Span",
    "best_gamma",
    "conditional",
    "expected_tokens",
    "explained_step_ratio",
    "mean_pace",
    "pace_of_log",
    "pace_of_server",
    "unconditional",
]

LEAST_STEPS = 100.0
"""Steps of sequences below which no mean is believed."""
DRAFT_PASS_SHARE = 0.10
"""A pass of an autoregressive drafter over a step of its target, at the least (0.10-0.15 measured, vLLM #20780)."""
_MOST_DRAFT_PASS_SHARE = 0.20
_FIXED_SHARE = 0.20
"""What drafting adds to a step whatever its length: 9 to 18 % measured (EAGLE and EAGLE-3, vLLM #20780)."""
_FREE_TOKENS = 64.0
"""Tokens that cost at most as much again as the first: 5.11 ms for 1, 7.90 for 64 (MoE on B300, vLLM blog 2026-08-14);
dense models have more of them."""
_LEAST_SECONDS = 1e-6

Span: TypeAlias = Literal["while watched", "since its start", "of its log"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the sequences of a server went, on average over their steps."""

    step_s: float
    tokens_per_step: float | None
    """Of one sequence."""
    batch: float | None
    """Sequences in a step."""
    steps: float
    """Over which these are means, counted for each sequence by itself."""
    span: Span

    @property
    def tokens_per_s(self) -> float | None:
        """Of one sequence."""
        return None if self.tokens_per_step is None else self.tokens_per_step / self.step_s

    @property
    def words(self) -> str:
        """The figures in a line."""
        parts = [f"step {self.step_s * 1e3:.4g} ms"]
        if self.tokens_per_step is not None:
            parts.append(f"{self.tokens_per_step:.3g} token{'' if self.tokens_per_step == 1 else 's'} a step")
        if (rate := self.tokens_per_s) is not None:
            parts.append(f"{rate:.4g} tokens/s for each request")
        if self.batch is not None:
            parts.append(f"batch {self.batch:.3g}")
        return ", ".join(parts) + f" ({self.span})"


def mean_pace(first: EngineReading | None, last: EngineReading, span: Span) -> Pace | None:
    """Means between two readings, or since the server's start where ``first`` is None.

    None where too little happened, where the engine does not say, and where a counter fell.
    """
    latency = last.inter_token_latency
    if latency is None:
        return None
    seconds, count = latency.seconds, latency.count
    tokens, first_tokens, engine_steps = last.generation_tokens, last.first_tokens, last.engine_steps
    if first is not None:
        before = first.inter_token_latency
        if before is None:
            return None
        seconds, count = seconds - before.seconds, count - before.count
        tokens = _less(tokens, first.generation_tokens)
        first_tokens = _less(first_tokens, first.first_tokens)
        engine_steps = _less(engine_steps, first.engine_steps)
    if not count >= LEAST_STEPS or not seconds / count > _LEAST_SECONDS:
        return None
    return Pace(
        step_s=seconds / count,
        tokens_per_step=_tokens_per_step(tokens, first_tokens, count, at_end=latency.at_end),
        # Steps that only fill in prompts are counted too, so the batch reads a little low.
        batch=max(count / engine_steps, 1.0) if engine_steps else None,
        steps=count,
        span=span,
    )


def _less(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None or after < before else after - before


def _tokens_per_step(tokens: float | None, first_tokens: float | None, steps: float, *, at_end: bool) -> float | None:
    """Tokens after a request's first, which the prompt's step gives, over decode steps."""
    if tokens is None:
        return None
    if not at_end and first_tokens is not None:
        tokens -= first_tokens
    per_step = tokens / steps
    return per_step if 0 < per_step < math.inf else None


def pace_of_server(server: ServerEvidence | None) -> Pace | None:
    """While it was watched, where enough happened then; else since its start."""
    if server is None or server.last is None:
        return None
    watched = None
    if server.first is not None and server.first is not server.last and server.reset_between is None:
        watched = mean_pace(server.first, server.last, "while watched")
    return watched or mean_pace(None, server.last, "since its start")


def pace_of_log(start: ServerStart | None) -> Pace | None:
    """Of steps listed one by one, else of the periodic lines on load and drafts."""
    if start is None:
        return None
    length = start.load.acceptance_length if start.load is not None else None
    if start.steps is not None and (pace := _pace_of_steps(start.steps, length)) is not None:
        return pace
    return _pace_of_load(start.load, start.told.speculative is not None and not start.told.speculative.value)


def _pace_of_steps(steps: StepsSeen, length: float | None) -> Pace | None:
    if steps.sequences < LEAST_STEPS:
        return None
    scheduled = steps.tokens / steps.sequences
    return Pace(
        steps.seconds / steps.steps, length if scheduled > 1 else 1.0, steps.sequences / steps.steps, steps.sequences,
        "of its log",
    )  # fmt: skip


def _pace_of_load(load: LoadSeen | None, plain: bool) -> Pace | None:
    """Lines come every ten seconds, so each is worth ten seconds of steps."""
    if load is None:
        return None
    length = load.acceptance_length if load.acceptance_length is not None else 1.0 if plain else None
    rate = load.tokens_per_s / load.running
    if length is None or rate <= 0:
        return None
    steps = 10.0 * load.tokens_per_s / length
    if steps < LEAST_STEPS:
        return None
    return Pace(length / rate, length, load.running / load.lines, steps, "of its log")


def explained_step_ratio(gamma: int, batch: float, plain_batch: float, passes: int) -> float:
    """The largest ratio of a speculative step to a plain one that drafting and verifying can be blamed for.

    Drafting: a fifth of a plain step, and another for each of ``passes`` (measured: 0.10-0.15). Verifying: as if each
    ``_FREE_TOKENS`` tokens beyond those of the plain step cost one step more, which is more than any engine measured.
    """
    more = max(batch * (gamma + 1) - plain_batch, 0.0)
    return 1.0 + _FIXED_SHARE + more / _FREE_TOKENS + passes * _MOST_DRAFT_PASS_SHARE


def conditional(unconditional_rates: Sequence[float]) -> tuple[float, ...]:
    """Accepted at a position, given that all before it were; ends where nothing was accepted."""
    rates: list[float] = []
    before = 1.0
    for rate in unconditional_rates:
        if before <= 0:
            break
        rates.append(min(max(rate / before, 0.0), 1.0))
        before = rate
    return tuple(rates)


def unconditional(drafts: float, accepted_per_position: Sequence[float]) -> tuple[float, ...] | None:
    """Accepted at a position over all drafts; None where the counts do not add up."""
    if drafts <= 0:
        return None
    rates = [count / drafts for count in accepted_per_position]
    falls = all(after <= before + 1e-9 for before, after in zip([1.0, *rates], rates, strict=False))
    return tuple(rates) if rates and falls and min(rates) >= 0 else None


def expected_tokens(unconditional_rates: Sequence[float], gamma: int) -> float:
    """Tokens of a step that drafts ``gamma``, the model's own one included."""
    return 1.0 + math.fsum(unconditional_rates[:gamma])


def best_gamma(unconditional_rates: Sequence[float], pass_share: float) -> tuple[int, float]:
    """The gamma with the most tokens per second while verifying is free, and how much better it is than the longest.

    ``pass_share`` is a drafter's pass over a step of the target. Zero is among the choices.
    """
    longest = len(unconditional_rates)
    rates = [expected_tokens(unconditional_rates, gamma) / (1.0 + gamma * pass_share) for gamma in range(longest + 1)]
    best = max(range(longest + 1), key=lambda gamma: (rates[gamma], -gamma))
    return best, rates[best] / rates[longest] - 1.0
