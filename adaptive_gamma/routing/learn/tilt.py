"""Moving a whole acceptance curve up or down by one number: the same step in log-odds at every position.

The priors of published drafters differ between classes in about this way: an n-gram drafter's code (.37, then .92) lies
1.13 above its chat (.16, then .80) at the first position and 1.05 at the later ones, an EAGLE-3 drafter's code 0.67 and
0.79 above its chat. So what was seen at some positions tells of the others through the step, and a mean alone, which
cannot tell positions apart, tells the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from adaptive_gamma.roofline import AcceptanceCurve

__all__ = ["MeanEvidence", "accepted_moments", "log_odds", "step_of_counts", "step_of_means", "tilted", "tilted_rate"]

_EDGE = 1e-4
"""Rates nearer to 0 or 1 than this have no log-odds worth the name."""
_FARTHEST = 12.0
_ROUNDS = 60
_CLOSE = 1e-9

MeanEvidence = tuple[float, float, float]
"""(effective drafts, mean draft length, mean accepted tokens of a draft)."""


def log_odds(rate: float) -> float:
    """ln(p / (1 - p)), finite for every rate in 0..1."""
    clipped = min(max(rate, _EDGE), 1.0 - _EDGE)
    return math.log(clipped / (1.0 - clipped))


def tilted_rate(rate: float, step: float) -> float:
    """The rate whose log-odds are ``step`` above those of ``rate``; the rate itself where the step is 0."""
    return rate if step == 0.0 else 1.0 / (1.0 + math.exp(-(log_odds(rate) + step)))


def tilted(curve: AcceptanceCurve, step: float) -> AcceptanceCurve:
    """The whole curve, plateau included, moved by ``step``."""
    if step == 0.0:
        return curve
    return AcceptanceCurve(
        tuple(tilted_rate(rate, step) for rate in curve.conditional), tilted_rate(curve.plateau, step)
    )


def step_of_counts(rates: Sequence[float], weights: Sequence[float], counts: Sequence[tuple[float, float]]) -> float:
    """The step that (accepted, tried) by position call for, against the prior's ``rates`` of these ``weights``.

    The most likely one where the prior is worth ``weights[i]`` further trials at position i. 0 without trials.
    """
    if not any(tried > 0 for _, tried in counts):
        return 0.0
    odds = [log_odds(rate) for rate in rates]

    def excess(step: float) -> float:
        total = 0.0
        for before, weight, (accepted, tried) in zip(odds, weights, counts, strict=True):
            now = _logistic(before + step)
            total += tried * now - accepted + weight * (now - _logistic(before))
        return total

    return _root(excess)


def step_of_means(curve: AcceptanceCurve, information: float, evidence: Sequence[MeanEvidence]) -> float:
    """The step that mean accepted tokens per draft call for, against a curve whose level is known.

    Args:
        curve: believed so far.
        information: about its level, in trials x c (1 - c) summed over positions.
        evidence: of drafts of each mean length.
    """
    step = 0.0
    for _ in range(3):  # the weights hang on the answer, a little
        at = tilted(curve, step)
        weights = []
        for drafts, length, _mean in evidence:
            _, variance, slope = accepted_moments(at, length)
            weights.append(drafts * slope / max(variance, _EDGE))

        def excess(candidate: float, weights: Sequence[float] = tuple(weights)) -> float:
            moved = tilted(curve, candidate)
            pull = sum(
                weight * (accepted_moments(moved, length)[0] - mean)
                for weight, (_, length, mean) in zip(weights, evidence, strict=True)
            )
            return information * candidate + pull

        step = _root(excess)
    return step


def accepted_moments(curve: AcceptanceCurve, length: float) -> tuple[float, float, float]:
    """Mean and variance of the accepted tokens of a draft, and how the mean grows with the step.

    A length between two whole numbers is a mix of drafts of both.
    """
    mean = square = slope = 0.0
    reached, grown = 1.0, 0.0
    for position in range(1, math.ceil(length) + 1):
        share = min(length - (position - 1), 1.0)
        rate = curve.conditional_at(position)
        # d u_i / d step = u_i x the sum of (1 - c_j) up to i
        grown += 1.0 - rate
        reached *= rate
        mean += share * reached
        square += share * (2 * position - 1) * reached
        slope += share * reached * grown
    return mean, max(square - mean * mean, 0.0), slope


def _logistic(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-odds))


def _root(rising: Callable[[float], float]) -> float:
    """Where a function that never falls crosses 0, or the end of the range that comes nearest."""
    low, high = -_FARTHEST, _FARTHEST
    at_low, at_high = rising(low), rising(high)
    if at_low >= 0.0:
        return low
    if at_high <= 0.0:
        return high
    side = 0
    for _ in range(_ROUNDS):
        # Regula falsi, Illinois variant: the end that stays counts half the next time.
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        value = rising(middle)
        if abs(value) < _CLOSE or high - low < _CLOSE:
            return middle
        if value < 0.0:
            low, at_low = middle, value
            if side < 0:
                at_high *= 0.5
            side = -1
        else:
            high, at_high = middle, value
            if side > 0:
                at_low *= 0.5
            side = 1
    return 0.5 * (low + high)
