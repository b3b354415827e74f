"""From a prior and counts to a curve with its errors, and from a prior to what it leaves room for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from adaptive_gamma.roofline import AcceptanceCurve
from adaptive_gamma.routing.learn.tilt import (
    MeanEvidence,
    log_odds,
    step_of_counts,
    step_of_means,
    tilted,
    tilted_rate,
)

__all__ = [
    "Belief",
    "believe",
    "believe_means",
    "leaves",
    "prior_intervals",
    "prior_weights",
    "recovered_belief",
    "reshaped",
    "with_rates",
]

_INSIDE = 1.96
"""Standard errors on either side that hold 95 % of chance."""
_TELLING_TRIALS = 100.0
"""A last position of fewer trials says less of the ones beyond it than all positions together."""


@dataclass(frozen=True, slots=True)
class Belief:
    """A curve and what stands behind it."""

    curve: AcceptanceCurve
    trials: tuple[float, ...]
    """Independent drafts that reached each position, the prior's not counted."""
    weights: tuple[float, ...]
    """The prior's weight at each of these positions."""

    @property
    def error(self) -> tuple[float, ...]:
        """Standard error of each conditional rate."""
        return tuple(
            math.sqrt(max(rate * (1.0 - rate), 0.0) / (tried + weight + 1.0))
            for rate, tried, weight in zip(
                (self.curve.conditional_at(i + 1) for i in range(len(self.trials))),
                self.trials,
                self.weights,
                strict=True,
            )
        )

    @property
    def tokens_error(self) -> float:
        """Standard error of the expected tokens of a draft of so many positions."""
        behind = [tried + weight + 1.0 for tried, weight in zip(self.trials, self.weights, strict=True)]
        return _tokens_error(self.curve, behind)


def prior_weights(prior: AcceptanceCurve, pseudo_drafts: float, positions: int) -> tuple[float, ...]:
    """The pseudo-drafts that reach each position under the prior."""
    weights, reached = [], pseudo_drafts
    for position in range(1, positions + 1):
        weights.append(reached)
        reached *= prior.conditional_at(position)
    return tuple(weights)


def believe(prior: AcceptanceCurve, pseudo_drafts: float, counts: Sequence[tuple[float, float]]) -> Belief:
    """The posterior mean from (accepted, tried) by position.

    The prior gives way in two steps. All positions together move it up or down (:mod:`.tilt`); then each position has
    a Beta prior at the moved rate, whose weight is the pseudo-drafts that reach it. So a deep position, which few
    drafts reach, follows the ones before it instead of clinging to what was believed of it. Beyond the counted
    positions the moved prior follows, moved once more as far as the last well counted one (from the second on) is off:
    over a flat prior that is the last ratio of neighbours as plateau.
    """
    positions = len(counts)
    weights = prior_weights(prior, pseudo_drafts, positions)
    rates = [prior.conditional_at(i + 1) for i in range(positions)]
    step = step_of_counts(rates, weights, counts)
    moved = [tilted_rate(rate, step) for rate in rates]
    learned = []
    for rate, weight, (accepted, tried) in zip(moved, weights, counts, strict=True):
        whole = tried + weight
        learned.append(min(max((accepted + weight * rate) / whole, 0.0), 1.0) if tried > 0 else rate)
    beyond = step
    for position in range(positions - 1, 0, -1):
        if counts[position][1] >= _TELLING_TRIALS:
            beyond = log_odds(learned[position]) - log_odds(rates[position])
            break
    curve = with_rates(tilted(prior, beyond), learned)
    return Belief(curve, tuple(tried for _, tried in counts), weights)


def believe_means(belief: Belief, evidence: Sequence[MeanEvidence]) -> Belief:
    """A belief moved by drafts of which only the mean number of accepted tokens is known: up or down as a whole.

    The belief has a weight for one position at least.
    """
    if not evidence:
        return belief
    curve = belief.curve
    positions = max(len(belief.trials), math.ceil(max(length for _, length, _ in evidence)))
    trials = [*belief.trials, *(0.0,) * (positions - len(belief.trials))]
    weights = list(belief.weights)
    for position in range(len(weights), positions):
        weights.append(weights[-1] * curve.conditional_at(position))
    information = 0.0
    for position in range(positions):
        rate = curve.conditional_at(position + 1)
        information += (trials[position] + weights[position]) * rate * (1.0 - rate)
    moved = tilted(curve, step_of_means(curve, information, evidence))
    for drafts, length, _ in evidence:
        reached = drafts
        for position in range(math.ceil(length)):
            trials[position] += reached * min(length - position, 1.0)
            reached *= moved.conditional_at(position + 1)
    return Belief(
        with_rates(moved, [moved.conditional_at(i + 1) for i in range(positions)]), tuple(trials), tuple(weights)
    )


def recovered_belief(
    belief: Belief, prior: AcceptanceCurve, pseudo_drafts: float, recovered: Sequence[tuple[float, float]]
) -> Belief:
    """A belief replaced by (conditional rate, trials) by position that were found with it as prior.

    Its own trials go on counting. Beyond the positions found its curve follows, moved as far as the last well counted
    one is off.
    """
    positions = max(len(belief.trials), len(recovered))
    own = [*belief.trials, *(0.0,) * (positions - len(belief.trials))]
    trials = [before + (recovered[i][1] if i < len(recovered) else 0.0) for i, before in enumerate(own)]
    beyond = 0.0
    for position in range(len(recovered) - 1, -1, -1):
        rate, tried = recovered[position]
        if tried >= _TELLING_TRIALS:
            beyond = log_odds(rate) - log_odds(belief.curve.conditional_at(position + 1))
            break
    curve = with_rates(tilted(belief.curve, beyond), [min(max(rate, 0.0), 1.0) for rate, _ in recovered])
    return Belief(curve, tuple(trials), prior_weights(prior, pseudo_drafts, positions))


def reshaped(curve: AcceptanceCurve, steps: Sequence[float]) -> AcceptanceCurve:
    """A curve with a step of its own at each of its first positions."""
    return with_rates(curve, [tilted_rate(curve.conditional_at(i + 1), step) for i, step in enumerate(steps)])


def with_rates(curve: AcceptanceCurve, first: Sequence[float]) -> AcceptanceCurve:
    """A curve with other rates at its first positions."""
    return AcceptanceCurve((*first, *curve.conditional[len(first) :]), curve.plateau)


def prior_intervals(prior: AcceptanceCurve, pseudo_drafts: float, positions: int) -> tuple[tuple[float, float], ...]:
    """Where the prior expects each conditional rate with 95 %: the score interval (Wilson) of as many trials as its
    weight, which stays within 0..1 and has a width at 0 and 1 too."""
    intervals = []
    for position, weight in enumerate(prior_weights(prior, pseudo_drafts, positions), 1):
        rate, trials = prior.conditional_at(position), max(weight, 1.0)
        share = _INSIDE * _INSIDE / trials
        middle = (rate + 0.5 * share) / (1.0 + share)
        reach = _INSIDE * math.sqrt(rate * (1.0 - rate) / trials + 0.25 * share / trials) / (1.0 + share)
        intervals.append((max(min(middle - reach, rate), 0.0), min(max(middle + reach, rate), 1.0)))
    return tuple(intervals)


def leaves(
    belief: Belief,
    prior: AcceptanceCurve,
    pseudo_drafts: float,
    intervals: Sequence[tuple[float, float]],
    margin: float,
) -> bool:
    """Whether a belief lies outside of what the prior expects: a position's rate, or the tokens per step.

    Tokens per step are looked at as well, as a small fall at every position adds up. ``margin`` says by how many
    standard errors of the belief itself it has to lie outside.
    """
    positions = len(belief.trials)
    error = belief.error
    for position in range(positions):
        if belief.trials[position] <= 0:
            continue
        rate, (low, high) = belief.curve.conditional_at(position + 1), intervals[position]
        slack = margin * error[position]
        if rate < low - slack or rate > high + slack:
            return True
    if not any(belief.trials):
        return False
    weights = prior_weights(prior, pseudo_drafts, positions)
    room = _INSIDE * _tokens_error(prior, [max(weight, 1.0) + 1.0 for weight in weights])
    own = margin * _tokens_error(
        belief.curve, [t + w + 1.0 for t, w in zip(belief.trials, belief.weights, strict=True)]
    )
    return abs(belief.curve.expected_tokens(positions) - prior.expected_tokens(positions)) > room + own


def _tokens_error(curve: AcceptanceCurve, weights: Sequence[float]) -> float:
    """Standard error of the expected tokens where each conditional rate rests on so many trials."""
    positions = len(weights)
    survival = [float(value) for value in curve.unconditional(positions)]
    variance = 0.0
    for position, weight in enumerate(weights):
        rate = curve.conditional_at(position + 1)
        if rate > 0:
            variance += (sum(survival[position:]) / rate) ** 2 * rate * (1.0 - rate) / weight
    return math.sqrt(variance)
