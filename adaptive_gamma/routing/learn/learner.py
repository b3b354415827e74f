"""Acceptance by class, learned for one drafter family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from adaptive_gamma.roofline import AcceptanceCurve, FloatArray, draft_length_varies
from adaptive_gamma.routing.learn.counts import ClassCounts
from adaptive_gamma.routing.learn.learned import LearnedCurve
from adaptive_gamma.routing.learn.mix import MixCounts, shape_steps, survival
from adaptive_gamma.routing.learn.posterior import (
    Belief,
    believe,
    believe_means,
    leaves,
    prior_intervals,
    recovered_belief,
    reshaped,
)
from adaptive_gamma.routing.learn.snapshot import restore_counts, restore_mix, snapshot_counts, snapshot_mix
from adaptive_gamma.routing.learn.tilt import MeanEvidence

__all__ = ["USUAL_PSEUDO_DRAFTS", "AcceptanceLearner"]

USUAL_PSEUDO_DRAFTS = 30.0
_MOST_POSITIONS = 64
_CUT_SHORT = 0.06
"""Share of the draft tokens that may be missing where every draft is meant to be full: the last ones of a request are
cut to the tokens it may still have. Real servers came to 5 % on short answers."""
_SHORTEST = 0.85
"""Totals tell a mean by draft length. Of drafts shorter than this share of gamma, the lengths hang on the very tokens
that get accepted, and the mean tells nothing."""
_LEAST_TRIALS = 1.0
_ALIKE = 10.0
"""Prior weights that the shape of all classes counts for the shape of one, where totals have told its level."""
_ROUNDS = 3
"""Of correcting shapes and levels in turn; each moves the other less."""


class AcceptanceLearner:
    """What traffic says of the acceptance of each class, against a prior.

    Three kinds of evidence go in. Requests that report acceptance by position are counted as they are. Requests that
    report totals move their class's curve up or down as a whole. Counters of replicas, which mix the classes, are
    taken apart by how the mix varies; a class known only so is marked as inferred. Where drafts vary in length,
    acceptance by position reads low beyond the first one, so only the first position is believed then.

    ``at`` and ``now`` are seconds of one clock that does not run backwards; ``source`` names the replica.

    Args:
        prior: what is believed of each class before any traffic.
        pseudo_drafts: its weight, for all classes or for each.
        half_life_s: half-life of what was counted, in seconds with traffic of the class.
        settle_s: for how long after a change of its gamma a replica is not believed.
    """

    def __init__(
        self,
        prior: Mapping[str, AcceptanceCurve],
        *,
        pseudo_drafts: float | Mapping[str, float] = USUAL_PSEUDO_DRAFTS,
        half_life_s: float = 600.0,
        settle_s: float = 5.0,
    ) -> None:
        if not prior:
            raise ValueError("a learner needs a class at least")
        self.classes: tuple[str, ...] = tuple(prior)
        self.settle_s = settle_s
        self._prior = dict(prior)
        weights = pseudo_drafts if isinstance(pseudo_drafts, Mapping) else dict.fromkeys(prior, pseudo_drafts)
        self._pseudo = {name: float(weights[name]) for name in self.classes}
        if not all(0 < weight < float("inf") for weight in self._pseudo.values()):
            raise ValueError("pseudo_drafts must be > 0")
        self._index = {name: index for index, name in enumerate(self.classes)}
        self._counts = {name: ClassCounts(half_life_s) for name in self.classes}
        self._mix = MixCounts(len(self.classes), half_life_s, list(self._pseudo.values()))
        self._survivals: dict[int, FloatArray] = {}
        self._settled: dict[str, float] = {}
        self._drifted = dict.fromkeys(self.classes, False)
        self._kept: dict[str, LearnedCurve] | None = None

    # -- evidence -----------------------------------------------------------------------------------------------------

    def observe_trials(
        self, request_class: str, trials: Sequence[tuple[float, float]], at: float, *, source: str = ""
    ) -> None:
        """A request's (accepted, tried) by position, all positions before it having been accepted.

        Raises KeyError for an unknown class, ValueError for counts that cannot be.
        """
        counts = self._counts[request_class]
        above = float("inf")
        for accepted, tried in trials[:_MOST_POSITIONS]:
            if not 0 <= accepted <= tried <= above:
                raise ValueError(f"accepted must be in 0..tried and tried no more than accepted before: {trials!r}")
            above = accepted
        if self._believed(source, at):
            counts.add_trials(trials[:_MOST_POSITIONS], at)
            self._kept = None

    def observe_histogram(
        self,
        request_class: str,
        histogram: Sequence[float],
        at: float,
        *,
        draft_tokens: float | None = None,
        source: str = "",
    ) -> None:
        """A request's steps by the number of tokens they accepted, 0 .. gamma.

        Args:
            request_class: one of ``classes``.
            histogram: ``histogram[j]`` steps accepted exactly j tokens.
            at: when.
            draft_tokens: tokens drafted in all; where they fall short of gamma a step, only the first position counts.
            source: the replica.
        """
        if any(steps < 0 for steps in histogram):
            raise ValueError(f"a histogram holds counts, not {histogram!r}")
        tried = float(sum(histogram))
        if len(histogram) < 2 or tried <= 0:
            return
        gamma = len(histogram) - 1
        if draft_tokens is not None and draft_length_varies(tried, draft_tokens, gamma, _CUT_SHORT):
            gamma = 1
        trials = []
        for refused in histogram[:gamma]:
            trials.append((tried - refused, tried))
            tried -= refused
        self.observe_trials(request_class, trials, at, source=source)

    def observe_mean(
        self,
        request_class: str,
        drafts: float,
        accepted: float,
        gamma: int,
        at: float,
        *,
        draft_tokens: float | None = None,
        source: str = "",
    ) -> None:
        """A request of which only totals are known.

        Args:
            request_class: one of ``classes``.
            drafts: steps that drafted.
            accepted: draft tokens accepted.
            gamma: the draft length set.
            at: when.
            draft_tokens: tokens drafted in all, where known: the last drafts of a request are often cut short.
            source: the replica.
        """
        counts = self._counts[request_class]
        tokens = drafts * gamma if draft_tokens is None else draft_tokens
        if not 1 <= gamma <= _MOST_POSITIONS or not 0 <= accepted <= tokens <= drafts * gamma * (1 + 1e-9):
            raise ValueError(f"{accepted} of {tokens} draft tokens accepted in {drafts} drafts of {gamma} cannot be")
        if self._believed(source, at):
            counts.add_mean(drafts, tokens, accepted, gamma, at)
            self._kept = None

    def observe_counters(
        self,
        drafts_by_class: Mapping[str, float],
        drafts: float,
        accepted_per_position: Sequence[float],
        at: float,
        *,
        draft_tokens: float | None = None,
        source: str = "",
    ) -> None:
        """What one replica counted between two scrapes, its classes mixed.

        Args:
            drafts_by_class: each class's drafts, or its share of them on any scale.
            drafts: verify steps that had a draft.
            accepted_per_position: drafts accepted at least so far.
            at: when.
            draft_tokens: tokens drafted in all; where they fall short of a full draft a step, only the first position
                counts.
            source: the replica.

        Raises KeyError for an unknown class.
        """
        shares = np.zeros(len(self.classes))
        for name, share in drafts_by_class.items():
            shares[self._index[name]] += max(share, 0.0)
        whole = float(shares.sum())
        accepted = list(accepted_per_position[:_MOST_POSITIONS])
        if whole <= 0 or drafts <= 0 or not accepted or not self._believed(source, at):
            return
        if draft_tokens is not None and draft_length_varies(drafts, draft_tokens, len(accepted), _CUT_SHORT):
            accepted = accepted[:1]
        self._mix.look(shares * (drafts / whole), np.asarray(accepted), at, self._prior_survival(len(accepted)))
        self._kept = None

    def note_gamma_change(self, at: float, source: str = "") -> None:
        """A replica's gamma changed: what it reports until it has settled is not believed."""
        self._settled[source] = at + self.settle_s

    def forget_source(self, source: str) -> None:
        """The replica is gone: one that comes under its name has nothing to settle."""
        self._settled.pop(source, None)

    # -- what is known ------------------------------------------------------------------------------------------------

    def curve(self, request_class: str, now: float) -> LearnedCurve:
        """What is known of a class. Raises KeyError for an unknown one."""
        return self.curves(now)[request_class]

    def curves(self, now: float) -> dict[str, LearnedCurve]:
        """What is known of every class."""
        for counts in self._counts.values():
            if counts.review(now):
                self._kept = None
        if self._mix.review(now, self._prior_survival(self._mix.total().positions)):
            self._kept = None
        if self._kept is None:
            self._kept = self._learned()
        return dict(self._kept)

    @property
    def changes(self) -> int:
        """Changes of acceptance found so far."""
        return self._mix.changes + sum(counts.changes for counts in self._counts.values())

    def forget(self, request_class: str | None = None) -> None:
        """Start anew from the prior: for one class's own reports, or for everything."""
        for name, counts in self._counts.items():
            if request_class in (None, name):
                counts.forget()
        if request_class is None:
            self._mix.forget()
        self._kept = None

    def snapshot(self) -> dict[str, Any]:
        """All that was counted, as plain data for :meth:`restore`."""
        return {
            "classes": {name: snapshot_counts(counts) for name, counts in self._counts.items()},
            "mix": snapshot_mix(self._mix),
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on from a snapshot of a learner of the same classes. All or nothing.

        Raises ValueError for data that no snapshot can be.
        """
        classes = data.get("classes")
        if not isinstance(classes, Mapping) or set(classes) != set(self.classes):
            raise ValueError("these are other classes")
        restored = {name: restore_counts(classes[name], _MOST_POSITIONS) for name in self.classes}
        mix = restore_mix(data.get("mix"), len(self.classes), _MOST_POSITIONS)
        for name, memory in restored.items():
            self._counts[name].restore(*memory)
        self._mix.restore(*mix)
        self._kept = None

    def _believed(self, source: str, at: float) -> bool:
        settled = self._settled.get(source)
        if settled is None:
            return True
        if at < settled:
            return False
        del self._settled[source]
        return True

    def _prior_survival(self, positions: int) -> FloatArray:
        found = self._survivals.get(positions)
        if found is None:
            found = np.stack([self._prior[name].unconditional(positions) for name in self.classes])
            self._survivals[positions] = found
        return found

    def _learned(self) -> dict[str, LearnedCurve]:
        direct: dict[str, list[tuple[float, float]]] = {}
        means: dict[str, list[MeanEvidence]] = {}
        for name, counts in self._counts.items():
            total = counts.total()
            dispersion = total.dispersion(counts.between)
            direct[name] = [(a / dispersion, t / dispersion) for a, t in zip(total.accepted, total.tried, strict=True)]
            means[name] = [
                (each.drafts / dispersion, each.draft_tokens / each.drafts, each.accepted / each.drafts)
                for gamma, each in sorted(total.means.items())
                if each.drafts >= _LEAST_TRIALS and each.draft_tokens >= _SHORTEST * gamma * each.drafts
            ]
        plain = {
            name: believe(self._prior[name], self._pseudo[name], direct[name] or [(0.0, 0.0)]) for name in self.classes
        }
        inferred = self._inferred(plain, means)
        learned = {}
        for name, belief in plain.items():
            found = inferred.get(name)
            if found is None:
                learned[name] = self._learned_curve(name, believe_means(belief, means[name]), inferred=False)
                continue
            reports = max(belief.trials[0], sum(drafts for drafts, _, _ in means[name]))
            counters = found.trials[0] - belief.trials[0]
            learned[name] = self._learned_curve(name, believe_means(found, means[name]), inferred=counters > reports)
        return learned

    def _inferred(self, plain: Mapping[str, Belief], means: Mapping[str, Sequence[MeanEvidence]]) -> dict[str, Belief]:
        """What the mixed counters say of the classes they tell of, added to what requests reported by position.

        Totals know the level of a class and not its shape. So the shape of classes known by totals is first corrected
        by what all counters together show, and only then the classes are told apart.
        """
        sums = self._mix.total()
        if not sums.positions:
            return {}
        curves = {name: believe_means(plain[name], means[name]).curve for name in self.classes}
        by_totals = [name for name in self.classes if means[name] and not plain[name].trials[0]]
        for _ in range(_ROUNDS if by_totals else 0):
            steps = shape_steps(sums, [curves[name] for name in self.classes])
            for name in by_totals:
                shaped = replace(plain[name], curve=reshaped(curves[name], steps))
                curves[name] = believe_means(shaped, means[name]).curve
        weights = [
            self._pseudo[name] * (1.0 + min(sum(drafts for drafts, _, _ in means[name]) / self._pseudo[name], _ALIKE))
            + plain[name].trials[0]
            for name in self.classes
        ]
        rates, drafts = survival(sums, self._mix.dispersion, [curves[name] for name in self.classes], weights)
        found = {}
        for k, name in enumerate(self.classes):
            if sums.products[0, k, k] <= 0:
                continue
            above, counts = 1.0, []
            for rate, number in zip(rates[k].tolist(), drafts[k].tolist(), strict=True):
                counts.append((rate / above if above > 0 else 0.0, number * above))
                above = rate
            before = replace(plain[name], curve=curves[name])
            found[name] = recovered_belief(before, self._prior[name], self._pseudo[name], counts)
        return found

    def _learned_curve(self, name: str, belief: Belief, inferred: bool) -> LearnedCurve:
        prior, pseudo = self._prior[name], self._pseudo[name]
        if not any(belief.trials):
            self._drifted[name] = False
            return LearnedCurve(prior, (), (), 0.0, prior, (), inferred=False, drifted=False)
        intervals = prior_intervals(prior, pseudo, len(belief.trials))
        # Out by its own error: beyond doubt. Back in by its own error: the same the other way.
        margin = -1.0 if self._drifted[name] else 1.0
        drifted = self._drifted[name] = leaves(belief, prior, pseudo, intervals, margin)
        return LearnedCurve(
            belief.curve,
            belief.trials,
            belief.error,
            belief.tokens_error,
            prior,
            intervals,
            inferred=inferred,
            drifted=drifted,
        )
