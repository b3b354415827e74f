"""Which gamma a replica should run with, and whether now is the time to change it. Pure.

The gamma wanted is the one with the highest predicted tokens per second at the mean load and for the mix of classes of
late, among those that keep within the capture limit and the SLO at the highest load of the last ``dwell_s`` seconds.
It replaces the one in force only when nothing speaks against a change (``GammaDecision.reason``):

``best``            the one in force is the best.
``within_margin``   another is better by less than the margin: the least gain, or twice the measured noise.
``dwell``           the last change is under ``dwell_s`` ago.
``in_flight``       a change is under way, and its outcome is not known yet.
``failed``          changes have failed; each failure doubles the wait for the next try.
``backing_off``     a raise to try again was taken back before; each time doubles the wait.
``unknown``         gamma or load is not known.

and changes when it says

``gain``            the gain is above the margin.
``capture_limit``, ``slo``  the one in force breaks that limit and the one wanted does not. These two do not wait for
                    the dwell: a step beyond the capture limit takes up to five times as long. As the highest load
                    counts, a load that goes to and fro over an edge brings one such change and no more.
``probe``           nothing has been drafted for ``probe_every_s``, so that nobody knows what acceptance is now: the
                    shortest draft is tried for a dwell, where it would pay if all of it were accepted.
``probe_over``      it does not pay.

A raise that is lowered again because acceptance was not what had been believed, not because the load rose, is one
taken back: predicted with what is known now, it would not pay at the load it was made for. Without the wait that
doubles then, a policy whose curve has the wrong shape would have gamma swing to and fro for ever: acceptance at the
first position raises it, acceptance at the others lowers it. At less than half that load a raise is tried all the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from adaptive_gamma.routing.gamma_candidates import CAPTURE_LIMIT, GammaCandidate, GammaPrices, GammaScores

__all__ = ["GammaDecision", "GammaInputs", "GammaMemory", "GammaRules", "PendingGamma", "choose_gamma"]

_LONGEST_WAIT_S = 3600.0
_NOISE_FACTOR = 2.0
_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class GammaRules:
    """When a gamma may be changed. Seconds, and shares of tokens per second."""

    dwell_s: float = 60.0
    min_gain: float = 0.05
    probe_every_s: float = 300.0


@dataclass(frozen=True, slots=True)
class PendingGamma:
    """A change asked for whose outcome is not known yet."""

    gamma: int
    asked_at: float
    after: GammaMemory
    """What is remembered once it is in force, but for the time of that."""


@dataclass(frozen=True, slots=True)
class GammaMemory:
    """What earlier changes of one replica mean for the next. Times are monotonic seconds."""

    changed_at: float = -math.inf
    """When the gamma in force came into force."""
    pending: PendingGamma | None = None
    raised_from: int | None = None
    """Where the gamma in force was raised from, until the raise has proved itself or is taken back."""
    raised_load: float = 0.0
    """The mean load it was raised for."""
    probing: bool = False
    """It was raised without a predicted gain."""
    wait_s: float | None = None
    """The wait that the last raise taken back brought; None when there was none, or a raise has proved itself since."""
    back_off_until: float = -math.inf
    """No raise before, at half the load ``back_off_load`` or more."""
    back_off_load: float = 0.0
    probe_at: float = -math.inf
    """No probe before."""
    failures: int = 0
    """Changes in a row that the engine did not take."""
    retry_at: float = -math.inf

    def applied(self, at: float) -> GammaMemory:
        """The pending change is in force. Raises ValueError when there is none."""
        if self.pending is None:
            raise ValueError("no change is pending")
        return replace(self.pending.after, changed_at=at)

    def failed(self, at: float, rules: GammaRules) -> GammaMemory:
        """The pending change did not happen; the gamma in force is what it was. ValueError when there is none."""
        if self.pending is None:
            raise ValueError("no change is pending")
        wait = min(rules.dwell_s * 2.0 ** min(self.failures, 30), max(_LONGEST_WAIT_S, rules.dwell_s))
        return replace(self, pending=None, failures=self.failures + 1, retry_at=at + wait)


@dataclass(frozen=True, slots=True)
class GammaInputs:
    """All that the choice rests on. Unknown is None."""

    replica: str
    now: float
    """Monotonic seconds."""
    gamma: int | None
    """In force now, on a speculative replica."""
    largest: int | None
    """The most the engine can draft."""
    load: float | None
    """Mean number of sequences in its batch lately."""
    peak: int | None
    """The most there were in the last ``dwell_s`` seconds."""
    policy: GammaPrices
    smallest: int = 1
    """The least that can be set: 0 where speculation can be switched off."""
    mix: Mapping[str, float] = field(default_factory=dict)
    """Share of the traffic by class; need not sum to 1. Empty: the policy's default class."""
    context_tokens: float | None = None
    acceptance_ratio: float | None = None
    """Accepted tokens seen on the replica over those the policy expects; of the last time it drafted."""
    step_time_ratio: float | None = None
    noise: float | None = None
    """Relative standard deviation of the tokens per second measured at one gamma."""
    slo_tpot_s: float | None = None
    memory: GammaMemory = GammaMemory()
    rules: GammaRules = GammaRules()


@dataclass(frozen=True, slots=True)
class GammaDecision:
    """What the gamma of a replica should be, and why it is changed now or is not."""

    replica: str
    gamma: int | None
    """In force now."""
    wanted: int | None
    """What it should be from now on; the one in force where nothing is to change."""
    best: int | None
    """The best by prediction, whatever speaks against a change now."""
    reason: str
    gain: float | None
    """Predicted gain in tokens per second of ``best`` over ``gamma``; 0.1 is 10 %."""
    margin: float
    """The gain that a change takes."""
    holds_until: float | None
    """Monotonic seconds before which the gamma stays for this reason; None where no time is set."""
    memory: GammaMemory
    """What to remember, whether or not the change is made."""
    candidates: tuple[GammaCandidate, ...] = ()
    after: GammaMemory | None = None
    """What to remember once the change is in force."""

    @property
    def changes(self) -> bool:
        return self.wanted != self.gamma

    def asked(self, at: float) -> GammaMemory:
        """The memory once the engine has been asked for the change. Raises ValueError when there is none to ask for."""
        if self.wanted is None or self.after is None:
            raise ValueError("nothing is to change")
        return replace(self.memory, pending=PendingGamma(self.wanted, at, self.after))

    def as_dict(self) -> dict[str, Any]:
        """For ``/status`` and logs: plain data, without the memory."""
        return {
            "replica": self.replica,
            "gamma": self.gamma,
            "wanted": self.wanted,
            "best": self.best,
            "reason": self.reason,
            "gain": self.gain,
            "margin": self.margin,
            "candidates": [
                {"gamma": c.gamma, "tokens_per_s": c.tokens_per_s, "tpot_s": c.tpot_s, "forbidden": c.forbidden}
                for c in self.candidates
            ],
        }


def choose_gamma(inputs: GammaInputs) -> GammaDecision:
    """The gamma a replica should have. Reads no clock and changes nothing; follow ``GammaDecision.memory``."""
    return _Choice(inputs).decision()


class _Choice:
    """One look at one replica."""

    def __init__(self, inputs: GammaInputs) -> None:
        self._in = inputs
        self._rules = inputs.rules
        self._memory = inputs.memory
        self._margin = max(inputs.rules.min_gain, _NOISE_FACTOR * (inputs.noise or 0.0))
        self._candidates: tuple[GammaCandidate, ...] = ()
        self._best: GammaCandidate | None = None
        self._gain: float | None = None

    def decision(self) -> GammaDecision:
        given, memory, now = self._in, self._memory, self._in.now
        gamma, load, peak = given.gamma, given.load, given.peak
        if gamma is None or load is None or peak is None or given.largest is None:
            return self._stay("unknown")
        scores = GammaScores(
            given.policy,
            given.mix,
            context_tokens=given.context_tokens,
            acceptance_ratio=given.acceptance_ratio,
            step_time_ratio=given.step_time_ratio,
            slo_tpot_s=given.slo_tpot_s,
        )
        current = scores.candidate(load, peak, gamma)
        settable = self._settable(given.largest)
        self._candidates = tuple(
            current if each == gamma else scores.candidate(load, peak, each) for each in sorted({gamma, *settable})
        )
        best = self._best = _best_of([c for c in self._candidates if c.gamma in settable] or [current])
        gain = self._gain = best.tokens_per_s / current.tokens_per_s - 1.0
        dwelt = now >= memory.changed_at + self._rules.dwell_s
        if dwelt and memory.raised_from is not None and self._pays(scores, best.gamma):
            memory = self._memory = _proved(memory)

        if memory.pending is not None:
            return self._stay("in_flight")
        if now < memory.retry_at:
            return self._stay("failed", memory.retry_at)
        if current.forbidden is not None and best.forbidden is None and best.gamma != gamma:
            return self._change(best.gamma, current.forbidden, scores)
        if not dwelt:
            return self._stay("dwell", memory.changed_at + self._rules.dwell_s)
        if memory.probing and memory.raised_from is not None and best.gamma <= gamma:
            return self._change(min(best.gamma, memory.raised_from), "probe_over", scores)
        if best.gamma == gamma or gain < self._margin:
            return self._probe(scores, "best" if best.gamma == gamma else "within_margin")
        if best.gamma > gamma and now < memory.back_off_until and load * 2.0 >= memory.back_off_load:
            return self._stay("backing_off", memory.back_off_until)
        return self._change(best.gamma, "gain", scores)

    def _settable(self, largest: int) -> list[int]:
        given = self._in
        lowest = max(given.policy.min_gamma, given.smallest, 1)
        zero = [0] if given.smallest <= 0 else []
        return zero + list(range(lowest, min(largest, given.policy.max_gamma) + 1))

    def _pays(self, scores: GammaScores, best: int) -> bool:
        """Whether the raise in force is worth having, at the load it was made for as well."""
        gamma = self._in.gamma
        return gamma is not None and best >= gamma and not self._taken_back(scores)

    def _taken_back(self, scores: GammaScores) -> bool:
        """Whether the raise in force, by what is known now, would not have been made at the load it was made for."""
        memory, gamma = self._memory, self._in.gamma
        if memory.raised_from is None or gamma is None:
            return False
        return scores.gain(memory.raised_load, gamma, memory.raised_from) <= 0

    def _probe(self, scores: GammaScores, otherwise: str) -> GammaDecision:
        """Stay, unless nothing has been drafted for so long that acceptance should be looked at again."""
        given, memory = self._in, self._memory
        tried = min((c.gamma for c in self._candidates if c.gamma > 0 and c.forbidden is None), default=None)
        if given.gamma != 0 or tried is None or given.load is None:
            return self._stay(otherwise)
        if scores.gain_if_all_accepted(given.load, tried, 0) < self._margin:
            return self._stay(otherwise)
        due = max(memory.probe_at, memory.changed_at + self._rules.probe_every_s)
        return self._stay(otherwise, due) if given.now < due else self._change(tried, "probe", scores)

    def _stay(self, reason: str, until: float | None = None) -> GammaDecision:
        given = self._in
        return GammaDecision(
            given.replica,
            given.gamma,
            given.gamma,
            None if self._best is None else self._best.gamma,
            reason,
            self._gain,
            self._margin,
            until,
            self._memory,
            self._candidates,
        )

    def _change(self, wanted: int, reason: str, scores: GammaScores) -> GammaDecision:
        given = self._in
        stay = self._stay(reason)
        after = self._after(wanted, reason, scores)
        return replace(stay, wanted=wanted, holds_until=given.now + self._rules.dwell_s, after=after)

    def _after(self, wanted: int, reason: str, scores: GammaScores) -> GammaMemory:
        given, memory, rules = self._in, self._memory, self._rules
        after = replace(memory, pending=None, raised_from=None, probing=False, failures=0, retry_at=-math.inf)
        if wanted > (given.gamma or 0):
            return replace(after, raised_from=given.gamma, raised_load=given.load or 0.0, probing=reason == "probe")
        wait = memory.wait_s
        if self._taken_back(scores):
            before = wait or (rules.probe_every_s if memory.probing else rules.probe_every_s / 2.0)
            wait = min(before * 2.0, max(_LONGEST_WAIT_S, rules.probe_every_s))
            after = replace(after, wait_s=wait, back_off_until=given.now + wait, back_off_load=memory.raised_load)
        return replace(after, probe_at=given.now + (wait or rules.probe_every_s))


def _proved(memory: GammaMemory) -> GammaMemory:
    """The raise in force has proved itself. One at a much lower load says nothing of those that did not."""
    memory = replace(memory, raised_from=None, probing=False)
    if memory.raised_load * 2.0 < memory.back_off_load:
        return memory
    return replace(memory, wait_s=None, back_off_until=-math.inf)


def _best_of(candidates: list[GammaCandidate]) -> GammaCandidate:
    """The most tokens per second of those that may run, the smaller of equals; where none may, the one that breaks
    the milder limit: time per token rather than the capture."""
    for allowed in (
        [c for c in candidates if c.forbidden is None],
        [c for c in candidates if c.forbidden != CAPTURE_LIMIT],
        candidates,
    ):
        if allowed:
            top = max(c.tokens_per_s for c in allowed)
            return next(c for c in allowed if c.tokens_per_s >= top * (1.0 - _TIE))
    raise ValueError("no candidates")
