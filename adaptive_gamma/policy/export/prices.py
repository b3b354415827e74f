"""What each gamma gains at each batch, for a mix of classes at one context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adaptive_gamma.policy.table import Policy
from adaptive_gamma.roofline import FloatArray

__all__ = ["Loss", "Prices", "prices_of"]


@dataclass(frozen=True, slots=True)
class Loss:
    """Predicted tokens per second given away against the best gamma at each batch, as a share."""

    mean: float
    """Each doubling of the batch counts alike."""
    worst: float
    worst_batch: int


@dataclass(frozen=True, slots=True)
class Prices:
    """Predicted tokens per second over plain decoding."""

    gammas: tuple[int, ...]
    """Rising."""
    speedup: FloatArray
    """[gamma, batch - 1], over a plain replica at the same batch; gamma 0 pays the policy's tax."""
    allowed: npt.NDArray[np.bool_]
    """[gamma, batch - 1], by the capture limit."""

    @property
    def batches(self) -> int:
        return int(self.speedup.shape[1])

    @property
    def weights(self) -> FloatArray:
        """Of each batch, adding up to 1: 1 / batch, for the load is not known and each doubling counts alike."""
        inverse = 1.0 / np.arange(1, self.batches + 1, dtype=np.float64)
        weights: FloatArray = inverse / inverse.sum()
        return weights

    @property
    def best(self) -> FloatArray:
        """The highest speed-up at each batch among the allowed gammas."""
        best: FloatArray = np.where(self.allowed, self.speedup, -np.inf).max(axis=0)
        return best

    def losses(self) -> FloatArray:
        """[gamma, batch - 1]: share lost against the best gamma there; infinite where the gamma is not allowed."""
        lost: FloatArray = np.where(self.allowed, 1.0 - self.speedup / self.best, np.inf)
        return lost

    def loss_of(self, gamma_by_batch: Sequence[int]) -> Loss:
        """What a schedule loses; ``gamma_by_batch[b - 1]`` is its gamma at batch b, one of ``gammas``.

        A gamma beyond the capture limit counts at its captured speed, which flatters it.
        """
        index = np.searchsorted(np.asarray(self.gammas), np.asarray(gamma_by_batch))
        chosen = self.speedup[index, np.arange(self.batches)]
        lost = np.maximum(1.0 - chosen / self.best, 0.0)
        worst = int(np.argmax(lost))
        return Loss(float((lost * self.weights).sum()), float(lost[worst]), worst + 1)

    def plain_wins_from(self) -> int | None:
        """The first batch from which no gamma above 0 reaches plain decoding; None where there is none."""
        drafting = np.asarray(self.gammas) >= 1
        reached = np.where(self.allowed[drafting], self.speedup[drafting], -np.inf).max(axis=0) >= 1.0
        last = np.flatnonzero(reached)
        first = int(last[-1]) + 2 if last.size else 1
        return first if first <= self.batches else None


def prices_of(
    policy: Policy,
    mix: Mapping[str, float],
    context_tokens: float,
    gammas: Sequence[int],
    batches: int,
    capture_limit_tokens: int | None,
) -> Prices:
    """Price every gamma at every batch 1 .. ``batches``.

    A step takes as long whatever the classes in it are, so the mix's tokens per second are the weighted mean of the
    classes' expected tokens over the step time. ``mix`` holds shares of the running sequences.
    """
    wanted = np.asarray(sorted(gammas), dtype=np.int64)
    sequences = np.arange(1, batches + 1)
    expected = sum(
        weight * policy.curves[name].expected_tokens(wanted.astype(np.float64)) for name, weight in mix.items()
    )
    prompts = policy.inputs.limits.prompt_tokens_per_output_token * (sequences - 1)
    plain = np.asarray(policy.cost.plain_seconds(sequences, context_tokens, prompts))
    spec_prompts = prompts * np.asarray(expected)[:, None]
    spec = np.asarray(policy.cost.speculative_seconds(sequences, wanted[:, None], context_tokens, spec_prompts))
    tokens = sequences * (wanted[:, None] + 1)
    allowed = np.ones(tokens.shape, dtype=np.bool_)
    if capture_limit_tokens is not None:
        allowed = (tokens <= capture_limit_tokens) | (wanted[:, None] == 0)
    return Prices(
        gammas=tuple(int(g) for g in wanted),
        speedup=np.asarray(expected)[:, None] * plain[None, :] / spec,
        allowed=allowed,
    )
