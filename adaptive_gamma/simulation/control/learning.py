"""Learning in a simulation: finished requests report how their drafts fared, and a drifted policy is built anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adaptive_gamma.policy import Policy, with_curves
from adaptive_gamma.routing.learn import AcceptanceLearner, LearnedCurve, table_change
from adaptive_gamma.simulation.replay.replica import DraftRun
from adaptive_gamma.simulation.replay.workload import AcceptanceDraws

__all__ = ["LearningRules", "PolicyInUse", "histogram_of"]


@dataclass(frozen=True, slots=True)
class LearningRules:
    """The defaults of ``serve``."""

    half_life_s: float = 600.0
    settle_s: float = 5.0
    rebuild_s: float = 10.0


def histogram_of(draws: AcceptanceDraws, runs: Sequence[DraftRun]) -> list[int]:
    """Steps of a request by the number of tokens they accepted, 0 .. its largest gamma, as an engine's answer says."""
    gamma = max((run.gamma for run in runs), default=0)
    counts = np.zeros(gamma + 1, dtype=np.int64)
    for run in runs:
        accepted = np.minimum(draws.runs[run.first : run.first + run.steps], run.gamma)
        counts += np.bincount(accepted, minlength=gamma + 1)
    steps: list[int] = counts.tolist()
    return steps


class PolicyInUse:
    """The policy that decisions are made with: the file's, or one with the acceptance learned in its place.

    Args:
        policy: the file's.
        draws: what requests report is taken from here.
        rules: how fast what was counted is forgotten, and how often a table is built.
    """

    def __init__(self, policy: Policy, draws: AcceptanceDraws, rules: LearningRules) -> None:
        priors = policy.inputs.classes
        self.policy = policy
        """In use now."""
        self.rebuilds = 0
        self.learner = AcceptanceLearner(
            policy.curves,
            pseudo_drafts={name: priors[name].pseudo_drafts for name in policy.classes},
            half_life_s=rules.half_life_s,
            settle_s=rules.settle_s,
        )
        self._file = policy
        self._draws = draws
        self._rules = rules
        self._due = float("-inf")
        self._drifted: frozenset[str] = frozenset()

    def report(self, source: str, request_class: str, runs: Sequence[DraftRun], at: float) -> None:
        """A request of replica ``source`` is done."""
        if runs:
            drafted = float(sum(run.gamma * run.steps for run in runs))
            histogram = histogram_of(self._draws, runs)
            self.learner.observe_histogram(request_class, histogram, at, draft_tokens=drafted, source=source)

    def curve(self, request_class: str, now: float) -> LearnedCurve:
        """What is known of a class."""
        return self.learner.curve(request_class, now)

    def look(self, now: float) -> bool:
        """Build the policy anew where acceptance has drifted from what it believes; whether it was."""
        if now < self._due:
            return False
        change = table_change(self.learner.curves(now), self.policy.curves, self._drifted)
        if change is None:
            return False
        self.policy = self._file if change.curves is None else with_curves(self._file, change.curves)
        self.rebuilds += change.curves is not None
        self._drifted = change.drifted
        self._due = now + self._rules.rebuild_s
        return True
