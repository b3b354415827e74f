"""What is known of one class's acceptance at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_gamma.roofline import AcceptanceCurve

__all__ = ["LearnedCurve"]


@dataclass(frozen=True, slots=True)
class LearnedCurve:
    """The acceptance of a class as learned, beside what the policy believed before.

    Positions count from 0 here, as engines count them.
    """

    curve: AcceptanceCurve
    """Posterior mean; equal to ``prior`` while nothing was seen."""
    trials: tuple[float, ...]
    """For each position, how many independent drafts that reached it the evidence is worth now. Empty: no evidence.
    Drafts of which only totals are known count at every position, though they tell no more than the curve's level."""
    error: tuple[float, ...]
    """Standard error of the learned conditional rate at each of these positions."""
    tokens_error: float
    """Standard error of the expected tokens of a draft of as many positions as were seen."""
    prior: AcceptanceCurve
    """What the policy file believes."""
    interval: tuple[tuple[float, float], ...]
    """Where the prior expects the conditional rate of each of these positions, lowest and highest."""
    inferred: bool
    """Whether it was recovered from replicas' counters and class mixes, for want of requests that report."""
    drifted: bool
    """Whether it left the prior's interval by more than its own error."""
