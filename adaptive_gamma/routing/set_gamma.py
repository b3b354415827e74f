"""Which gamma a replica should run with, and whether now is the time to change it. Pure.

``choose_gamma`` looks for one gamma for all loads. ``decide_change``, which says whether now is the time, does so for
a schedule too, of which more in :mod:`.gamma_schedule`.

The gamma wanted is the one with the highest predicted tokens per second at the usual load and for the mix of classes of
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
from dataclasses import dataclass, replace

from adaptive_gamma.routing.gamma_candidates import CAPTURE_LIMIT, SLO, GammaCandidate, GammaScores
from adaptive_gamma.routing.gamma_change import GammaDecision, GammaInputs, GammaMemory
from adaptive_gamma.routing.gamma_loads import Loads, drafted_at, gamma_for, mean_load
from adaptive_gamma.routing.replica import GammaSchedule, GammaSetting

__all__ = ["GammaCase", "choose_gamma", "decide_change", "scores_for", "settable_gammas", "undecided"]

_LONGEST_WAIT_S = 3600.0
_NOISE_FACTOR = 2.0
_TIE = 1e-9
_LESS = 0.5
"""A setting that drafts fewer tokens than another by less than this drafts as much."""


@dataclass(frozen=True, slots=True)
class GammaCase:
    """The setting in force beside the best one, priced over the same loads."""

    scores: GammaScores
    loads: Loads
    current: GammaSetting
    best: GammaSetting
    gain: float
    """Of ``best`` over ``current``."""
    forbidden: str | None
    """The limit that ``current`` breaks."""
    best_forbidden: str | None
    probe: GammaSetting | None
    """What to try where ``current`` drafts nothing at any load there has been; None where it drafts, or nothing may."""
    probe_gain: float
    """The most that could bring."""
    candidates: tuple[GammaCandidate, ...]
    at_once: frozenset[str] = frozenset({CAPTURE_LIMIT, SLO})
    """Limits whose breach does not wait for the dwell."""

    def raises(self, setting: GammaSetting) -> bool:
        """Whether a setting drafts more than the one in force."""
        return drafted_at(setting, self.loads) > drafted_at(self.current, self.loads)

    def lower(self, one: GammaSetting, other: GammaSetting) -> GammaSetting:
        """The one of the two that drafts less, the first of equals."""
        return min(one, other, key=lambda setting: drafted_at(setting, self.loads))


def choose_gamma(inputs: GammaInputs) -> GammaDecision:
    """The gamma a replica should have. Reads no clock and changes nothing; follow ``GammaDecision.memory``."""
    gamma, load, peak = inputs.gamma, inputs.load, inputs.peak
    if not isinstance(gamma, int) or load is None or peak is None or inputs.largest is None:
        return undecided(inputs)
    scores = scores_for(inputs)
    settable = settable_gammas(inputs, inputs.largest)
    current = scores.candidate(load, peak, gamma)
    candidates = tuple(
        current if each == gamma else scores.candidate(load, peak, each) for each in sorted({gamma, *settable})
    )
    best = _best_of([c for c in candidates if c.gamma in settable] or [current])
    loads: Loads = ((load, 1.0),)
    tried = None
    if gamma == 0:
        tried = min((c.gamma for c in candidates if c.gamma > 0 and c.forbidden is None), default=None)
    case = GammaCase(
        scores=scores,
        loads=loads,
        current=gamma,
        best=best.gamma,
        gain=best.tokens_per_s / current.tokens_per_s - 1.0,
        forbidden=current.forbidden,
        best_forbidden=best.forbidden,
        probe=tried,
        probe_gain=0.0 if tried is None else scores.gain_if_all_accepted(loads, tried, 0),
        candidates=candidates,
    )
    return decide_change(inputs, case)


def decide_change(inputs: GammaInputs, case: GammaCase) -> GammaDecision:
    """Whether the best takes the place of what is in force now."""
    return _Choice(inputs, case).decision()


def undecided(inputs: GammaInputs) -> GammaDecision:
    """The decision where gamma or load is not known: stay."""
    gamma, load = inputs.gamma, inputs.load
    shown = gamma if not isinstance(gamma, GammaSchedule) else None if load is None else gamma_for(gamma, load)
    schedule = gamma if isinstance(gamma, GammaSchedule) else None
    return GammaDecision(
        replica=inputs.replica,
        gamma=shown,
        wanted=shown,
        best=None,
        reason="unknown",
        gain=None,
        margin=_margin(inputs),
        holds_until=None,
        memory=inputs.memory,
        schedule=schedule,
        wanted_schedule=schedule,
    )


def scores_for(inputs: GammaInputs) -> GammaScores:
    """What prices gammas for the replica."""
    return GammaScores(
        inputs.policy,
        inputs.mix,
        context_tokens=inputs.context_tokens,
        acceptance_ratio=inputs.acceptance_ratio,
        step_time_ratio=inputs.step_time_ratio,
        slo_tpot_s=inputs.slo_tpot_s,
    )


def settable_gammas(inputs: GammaInputs, largest: int) -> list[int]:
    """The gammas that policy and engine allow, rising."""
    lowest = max(inputs.policy.min_gamma, inputs.smallest, 1)
    zero = [0] if inputs.smallest <= 0 else []
    found = zero + list(range(lowest, min(largest, inputs.policy.max_gamma) + 1))
    return found if inputs.settable is None else [gamma for gamma in found if gamma in inputs.settable]


class _Choice:
    """One look at one replica."""

    def __init__(self, inputs: GammaInputs, case: GammaCase) -> None:
        self._in = inputs
        self._case = case
        self._rules = inputs.rules
        self._memory = inputs.memory
        self._margin = _margin(inputs)
        self._load = mean_load(case.loads)

    def decision(self) -> GammaDecision:
        case, memory, now = self._case, self._memory, self._in.now
        dwelt = now >= memory.changed_at + self._rules.dwell_s
        if dwelt and memory.raised_from is not None and self._pays():
            memory = self._memory = _proved(memory)

        if memory.pending is not None:
            return self._stay("in_flight")
        if now < memory.retry_at:
            return self._stay("failed", memory.retry_at)
        is_best = case.best == case.current
        forced = case.forbidden is not None and case.best_forbidden is None and not is_best
        if forced and case.forbidden in case.at_once:
            return self._change(case.best, case.forbidden)
        if not dwelt:
            return self._stay("dwell", memory.changed_at + self._rules.dwell_s)
        if forced and case.forbidden is not None:
            return self._change(case.best, case.forbidden)
        if memory.probing and memory.raised_from is not None and not case.raises(case.best):
            return self._change(case.lower(case.best, memory.raised_from), "probe_over")
        if is_best or case.gain < self._margin:
            return self._probe("best" if is_best else "within_margin")
        if case.raises(case.best) and now < memory.back_off_until and self._load * 2.0 >= memory.back_off_load:
            return self._stay("backing_off", memory.back_off_until)
        return self._change(case.best, "gain")

    def _pays(self) -> bool:
        """Whether the raise in force is worth having, at the loads it was made for as well."""
        case = self._case
        enough = drafted_at(case.best, case.loads) > drafted_at(case.current, case.loads) - _LESS
        return enough and not self._taken_back()

    def _taken_back(self) -> bool:
        """Whether the raise in force, by what is known now, would not have been made at the loads it was made for."""
        memory = self._memory
        if memory.raised_from is None:
            return False
        return self._case.scores.gain(memory.raised_for, self._case.current, memory.raised_from) <= 0

    def _probe(self, otherwise: str) -> GammaDecision:
        """Stay, unless nothing has been drafted for so long that acceptance should be looked at again."""
        case, memory, now = self._case, self._memory, self._in.now
        if case.probe is None or case.probe_gain < self._margin:
            return self._stay(otherwise)
        due = max(memory.probe_at, memory.changed_at + self._rules.probe_every_s)
        return self._stay(otherwise, due) if now < due else self._change(case.probe, "probe")

    def _stay(self, reason: str, until: float | None = None) -> GammaDecision:
        case = self._case
        gamma, schedule = self._shown(case.current)
        best, best_schedule = self._shown(case.best)
        return GammaDecision(
            replica=self._in.replica,
            gamma=gamma,
            wanted=gamma,
            best=best,
            reason=reason,
            gain=case.gain,
            margin=self._margin,
            holds_until=until,
            memory=self._memory,
            candidates=case.candidates,
            schedule=schedule,
            wanted_schedule=schedule,
            best_schedule=best_schedule,
        )

    def _change(self, wanted: GammaSetting, reason: str) -> GammaDecision:
        stay, after, (gamma, schedule) = self._stay(reason), self._after(wanted, reason), self._shown(wanted)
        holds_until = self._in.now + self._rules.dwell_s
        return replace(stay, wanted=gamma, wanted_schedule=schedule, holds_until=holds_until, after=after)

    def _shown(self, setting: GammaSetting) -> tuple[int, GammaSchedule | None]:
        return gamma_for(setting, self._load), setting if isinstance(setting, GammaSchedule) else None

    def _after(self, wanted: GammaSetting, reason: str) -> GammaMemory:
        case, memory, rules, now = self._case, self._memory, self._rules, self._in.now
        after = replace(memory, pending=None, raised_from=None, probing=False, failures=0, retry_at=-math.inf)
        if case.raises(wanted):
            return replace(after, raised_from=case.current, raised_for=case.loads, probing=reason == "probe")
        wait = memory.wait_s
        if self._taken_back():
            before = wait or (rules.probe_every_s if memory.probing else rules.probe_every_s / 2.0)
            wait = min(before * 2.0, max(_LONGEST_WAIT_S, rules.probe_every_s))
            after = replace(after, wait_s=wait, back_off_until=now + wait, back_off_load=memory.raised_load)
        return replace(after, probe_at=now + (wait or rules.probe_every_s))


def _margin(inputs: GammaInputs) -> float:
    return max(inputs.rules.min_gain, _NOISE_FACTOR * (inputs.noise or 0.0))


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
