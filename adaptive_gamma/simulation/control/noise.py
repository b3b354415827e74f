"""How noisy a simulated replica's tokens per second are, as ``serve`` measures it from an engine's counters."""

from __future__ import annotations

from collections.abc import Mapping

from adaptive_gamma.policy import Policy
from adaptive_gamma.routing import GammaSetting
from adaptive_gamma.routing.gamma_candidates import GammaScores
from adaptive_gamma.routing.gamma_loads import gamma_for
from adaptive_gamma.routing.rate_noise import RateNoise
from adaptive_gamma.simulation.replay.replica import Replica

__all__ = ["MeasuredNoise"]


class MeasuredNoise:
    """Looks at what a replica counts: steps of sequences, the seconds they took, and output tokens."""

    def __init__(self) -> None:
        self._noise = RateNoise()
        self._last = (0.0, 0, 0.0, 0, 0)

    def look(
        self,
        replica: Replica,
        at: float,
        policy: Policy,
        setting: GammaSetting,
        mix: Mapping[str, int],
        ratio: float | None,
    ) -> float | None:
        """The relative standard error of observed over predicted tokens per second; None while it is not known.

        Args:
            replica: looked at.
            at: seconds.
            policy: in use.
            setting: the gamma or schedule in force since the last look.
            mix: open requests by class.
            ratio: acceptance seen over expected.
        """
        totals = replica.totals
        now = (at, totals.sequence_steps, totals.sequence_s, replica.output_tokens(), totals.prompt_tokens)
        elapsed, steps, seconds, tokens, prompts = (a - b for a, b in zip(now, self._last, strict=True))
        self._last = now
        if steps > 0 and seconds > 0 and elapsed > 0:
            scores = GammaScores(policy, mix, acceptance_ratio=ratio)
            batch = max(seconds / elapsed, 1.0)
            gamma = gamma_for(setting, batch)
            step_s = scores.step_seconds(batch, gamma) + policy.prefill_seconds(round(prompts * batch / steps))
            self._noise.saw(tokens, scores.tokens_per_step(gamma) * seconds / step_s, elapsed)
        return self._noise.relative_error
