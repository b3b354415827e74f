"""Predicted against observed: seconds of an engine step, and tokens a sequence gets from it.

Observed are the sums of an engine's inter-token latency (one sample per step of a sequence) and its generation tokens.
How many sequences shared the steps follows from the same sum by Little's law, seconds of decoding over seconds passed;
on engines that count a request when it ends, from their gauge. Each look predicts what the policy says of that batch
and the gamma in force, and both sides are added up over a decayed window, so that a gamma or a load that changes leaves
no trace in their ratio.

The prediction is that of pure decode steps: the prompts of other requests lengthen what is observed, and are named as a
cause where they explain it. The first token of a request comes from its prompt's step and not from a decode step, so
tokens per step read 1/(tokens of an answer) too high.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from adaptive_gamma.config.settings import CostCheckSettings
from adaptive_gamma.engines.reading import EngineReading, LatencySum
from adaptive_gamma.fleet.cost_causes import StepEvidence, likely_causes
from adaptive_gamma.routing.rate_noise import RateNoise
from adaptive_gamma.routing.replica import GammaSchedule, GammaSetting

__all__ = ["CostCheck", "CostFinding", "StepPrices"]

_LEAST_STEPS = 100.0
"""Decayed number of steps of sequences below which nothing is said."""


class StepPrices(Protocol):
    """What the check asks of a policy."""

    @property
    def default_class(self) -> str: ...

    def class_for(self, name: str) -> str: ...

    def expected_tokens(self, request_class: str, gamma: int) -> float: ...

    def step_seconds(
        self, batch: int, gamma: int, context_tokens: float | None = None, speculative: bool = True
    ) -> float: ...

    def prefill_seconds(self, tokens: int) -> float: ...

    def largest_gamma(self, batch: int) -> int | None: ...


@dataclass(frozen=True, slots=True)
class CostFinding:
    """What the window says. Means over the steps of sequences."""

    step_s: float
    predicted_step_s: float
    tokens_per_step: float | None
    """Of one sequence. None on engines that do not count tokens."""
    predicted_tokens_per_step: float
    batch: float
    """Mean number of sequences in a step."""
    speculative: bool
    """Whether the engine has a drafter."""
    noise: float | None
    """Relative standard error of the observed tokens, prompts accounted for (``RateNoise``); None after too few
    looks."""

    @property
    def step_time_ratio(self) -> float:
        """Observed over predicted seconds of a step."""
        return self.step_s / self.predicted_step_s

    @property
    def tokens_ratio(self) -> float | None:
        """Observed over predicted tokens of a step."""
        return None if self.tokens_per_step is None else self.tokens_per_step / self.predicted_tokens_per_step

    def gain_over_plain(self, prices: StepPrices) -> float | None:
        """Observed tokens per second over those that the policy predicts of plain decoding of the same batch, less 1.

        None where the engine does not count tokens, and where it has no drafter: against itself there is no gain.
        """
        if self.tokens_per_step is None or not self.speculative:
            return None
        plain_s = prices.step_seconds(max(round(self.batch), 1), 0, None, False)
        return self.tokens_per_step * plain_s / self.step_s - 1.0


@dataclass(slots=True)
class _Sums:
    """Decayed totals over steps of sequences."""

    steps: float = 0.0
    observed_s: float = 0.0
    predicted_s: float = 0.0
    prefill_s: float = 0.0
    tokens: float = 0.0
    token_steps: float = 0.0
    """Those of ``steps`` whose tokens were counted."""
    predicted_tokens: float = 0.0
    batch: float = 0.0
    """Batch times steps."""

    def decay(self, factor: float) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) * factor)


class CostCheck:
    """One replica's prices, checked.

    Args:
        settings: from which error a replica is flagged, after how long, and how far its predictions are corrected.
        half_life_s: half-life of the window, in seconds in which something was decoded.
    """

    def __init__(self, settings: CostCheckSettings, half_life_s: float) -> None:
        self.settings = settings
        """May be replaced; holds from the next look on."""
        self.half_life_s = half_life_s
        self.forget()

    def forget(self) -> None:
        """The engine began anew."""
        self.flagged = False
        """The error of the step time has been above the limit for long enough."""
        self.causes: tuple[str, ...] = ()
        """Likely causes in words, while flagged; the likeliest first."""
        self._sums = _Sums()
        self._noise = RateNoise()
        self._last: tuple[float, EngineReading] | None = None
        self._gauge = self._gauge_squared = 0.0
        self._turning_since: float | None = None
        """Since when the error has been on the other side of the limit."""
        self._evidence: StepEvidence | None = None

    @property
    def finding(self) -> CostFinding | None:
        """None before there was enough to go by."""
        sums = self._sums
        if sums.steps < _LEAST_STEPS or sums.predicted_s <= 0:
            return None
        return CostFinding(
            step_s=sums.observed_s / sums.steps,
            predicted_step_s=sums.predicted_s / sums.steps,
            tokens_per_step=sums.tokens / sums.token_steps if sums.token_steps >= _LEAST_STEPS else None,
            predicted_tokens_per_step=sums.predicted_tokens / sums.steps,
            batch=sums.batch / sums.steps,
            speculative=self._evidence is not None and self._evidence.gamma is not None,
            noise=self._noise.relative_error,
        )

    @property
    def correction(self) -> float | None:
        """What the replica's predicted seconds are to be multiplied by; None leaves them as they are."""
        finding = self.finding
        if not self.flagged or finding is None:
            return None
        most = self.settings.largest_correction
        return min(max(finding.step_time_ratio, 1.0 / most), most)

    @property
    def words(self) -> str:
        """The flag in one sentence, for notes and the log."""
        finding = self.finding
        ratio = "another" if finding is None else f"{finding.step_time_ratio:.2f} times the"
        return f"steps take {ratio} predicted time; likely: {'; '.join(self.causes)}"

    def as_dict(self) -> dict[str, Any] | None:
        """The check in ``/status``; None before there was enough to go by."""
        finding = self.finding
        if finding is None:
            return None
        return {
            "step_s": round(finding.step_s, 6),
            "predicted_step_s": round(finding.predicted_step_s, 6),
            "step_time_error_ratio": round(finding.step_time_ratio - 1.0, 4),
            "tokens_per_step": None if finding.tokens_per_step is None else round(finding.tokens_per_step, 4),
            "predicted_tokens_per_step": round(finding.predicted_tokens_per_step, 4),
            "noise": None if finding.noise is None else round(finding.noise, 4),
            "flagged": self.flagged,
            "likely_causes": list(self.causes),
            "correction": None if self.correction is None else round(self.correction, 4),
        }

    def look(
        self,
        reading: EngineReading,
        at: float,
        prices: StepPrices | None,
        *,
        speculative: bool | None,
        gamma: GammaSetting | None,
        class_shares: Mapping[str, float],
        acceptance_ratio: float | None = None,
    ) -> None:
        """Take in a scrape.

        Args:
            reading: what it gave; a restart has been dealt with by ``forget``.
            at: monotonic seconds of the scrape.
            prices: the policy; None where there is none.
            speculative: whether the engine has a drafter.
            gamma: in force since the last look.
            class_shares: share of the sequences of each class; need not sum to 1.
            acceptance_ratio: accepted tokens seen over expected: a part of the prediction as the decision makes it.
        """
        previous, self._last = self._last, (at, reading)
        if previous is None or prices is None or speculative is None or (speculative and gamma is None):
            return
        before_at, before = previous
        steps = _grown(before.inter_token_latency, reading.inter_token_latency)
        elapsed = at - before_at
        if elapsed <= 0:
            return
        self._note_gauge(before, reading, elapsed)
        if steps is None or steps.count <= 0:
            return
        batch = self._batch(steps, elapsed)
        self._add(before, reading, steps, batch, elapsed, prices, gamma if speculative else None, class_shares,
                  acceptance_ratio)  # fmt: skip
        self._judge(at)

    def _note_gauge(self, before: EngineReading, reading: EngineReading, elapsed: float) -> None:
        if before.running is None or reading.running is None:
            return
        kept = 0.5 ** (elapsed / self.half_life_s)
        self._gauge *= kept
        self._gauge_squared *= kept
        for running in (before.running, reading.running):
            self._gauge += running * elapsed
            self._gauge_squared += running * running * elapsed

    def _batch(self, steps: LatencySum, elapsed: float) -> float:
        """Mean number of sequences in a step, as a sequence meets it."""
        if steps.at_end and self._gauge > 0:
            return max(self._gauge_squared / self._gauge, 1.0)
        return max(steps.seconds / elapsed, 1.0)

    def _add(
        self,
        before: EngineReading,
        reading: EngineReading,
        steps: LatencySum,
        batch: float,
        elapsed: float,
        prices: StepPrices,
        gamma: GammaSetting | None,
        shares: Mapping[str, float],
        acceptance_ratio: float | None,
    ) -> None:
        drafted = gamma.at(round(batch)) if isinstance(gamma, GammaSchedule) else gamma
        count, below = steps.count, math.floor(batch)
        step_s = prices.step_seconds(below, drafted or 0, None, drafted is not None)
        if batch > below:
            above = prices.step_seconds(below + 1, drafted or 0, None, drafted is not None)
            step_s += (batch - below) * (above - step_s)
        expected = _expected(prices, drafted, shares, acceptance_ratio)
        prompts = _difference(before.prompt_tokens, reading.prompt_tokens)
        prompts_per_step = 0.0 if prompts is None else prompts * batch / count
        tokens = _difference(before.generation_tokens, reading.generation_tokens)

        sums = self._sums
        sums.decay(0.5 ** (elapsed / self.half_life_s))
        sums.steps += count
        sums.observed_s += steps.seconds
        sums.predicted_s += count * step_s
        prefill_s = prices.prefill_seconds(round(prompts_per_step))
        sums.prefill_s += count * prefill_s
        sums.predicted_tokens += count * expected
        sums.batch += count * batch
        if tokens is not None:
            sums.tokens += tokens
            sums.token_steps += count
            if steps.seconds > 0 and not steps.at_end:
                self._noise.saw(tokens, steps.seconds / (step_s + prefill_s) * expected, elapsed)
        mean_batch = sums.batch / sums.steps
        self._evidence = StepEvidence(
            batch=mean_batch,
            gamma=drafted,
            largest_captured=prices.largest_gamma(max(1, round(mean_batch))),
            prefill_ratio=sums.prefill_s / sums.predicted_s if sums.predicted_s > 0 else 0.0,
            prompt_tokens_per_step=prompts_per_step,
            kv_usage=reading.kv_usage,
            waiting=reading.waiting,
        )

    def _judge(self, at: float) -> None:
        finding, settings = self.finding, self.settings
        if finding is None or self._evidence is None:
            return
        ratio = finding.step_time_ratio
        wrong = abs(ratio - 1.0) > settings.flag_above
        if wrong == self.flagged:
            self._turning_since = None
        elif self._turning_since is None:
            self._turning_since = at
        elif at - self._turning_since >= settings.flag_after_s:
            self.flagged, self._turning_since = wrong, None
        evidence = replace(self._evidence, step_time_ratio=ratio, tokens_ratio=finding.tokens_ratio)
        self.causes = likely_causes(evidence, settings.flag_above) if self.flagged else ()


def _grown(before: LatencySum | None, after: LatencySum | None) -> LatencySum | None:
    if before is None or after is None or after.count < before.count or after.seconds < before.seconds:
        return None
    return LatencySum(after.seconds - before.seconds, after.count - before.count, after.at_end)


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None or after < before else after - before


def _expected(
    prices: StepPrices, gamma: int | None, shares: Mapping[str, float], acceptance_ratio: float | None
) -> float:
    """Tokens per step of the mix."""
    if not gamma:
        return 1.0
    total = math.fsum(share for share in shares.values() if share > 0)
    if total > 0:
        expected = math.fsum(
            share / total * prices.expected_tokens(prices.class_for(name), gamma)
            for name, share in shares.items()
            if share > 0
        )
    else:
        expected = prices.expected_tokens(prices.default_class, gamma)
    return 1.0 + (expected - 1.0) * (1.0 if acceptance_ratio is None else acceptance_ratio)
