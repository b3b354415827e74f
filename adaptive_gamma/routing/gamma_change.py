"""A change of gamma as plain data: what it rests on, what is remembered of earlier ones, what was decided. Pure.

A gamma is one number for all loads, or a schedule of one for each load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from adaptive_gamma.routing.gamma_candidates import GammaCandidate, GammaPrices
from adaptive_gamma.routing.gamma_loads import Loads, mean_load
from adaptive_gamma.routing.replica import GammaSchedule, GammaSetting

__all__ = ["GammaDecision", "GammaInputs", "GammaMemory", "GammaRules", "PendingGamma"]

_LONGEST_WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class GammaRules:
    """When a gamma may be changed. Seconds, and shares of tokens per second."""

    dwell_s: float = 60.0
    min_gain: float = 0.01
    probe_every_s: float = 300.0


@dataclass(frozen=True, slots=True)
class PendingGamma:
    """A change asked for whose outcome is not known yet."""

    gamma: GammaSetting
    asked_at: float
    after: GammaMemory
    """What is remembered once it is in force, but for the time of that."""


@dataclass(frozen=True, slots=True)
class GammaMemory:
    """What earlier changes of one replica mean for the next. Times are monotonic seconds."""

    changed_at: float = -math.inf
    """When the gamma in force came into force."""
    pending: PendingGamma | None = None
    raised_from: GammaSetting | None = None
    """Where the gamma in force was raised from, until the raise has proved itself or is taken back."""
    raised_for: Loads = ()
    """The loads it was raised for."""
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

    @property
    def raised_load(self) -> float:
        """The mean load that gamma was raised for."""
        return mean_load(self.raised_for)

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
    gamma: GammaSetting | None
    """In force now, on a speculative replica."""
    largest: int | None
    """The most the engine can draft."""
    load: float | None
    """Usual number of sequences in its batch lately (``LoadTrack.usual``)."""
    peak: int | None
    """The most there were in the last ``dwell_s`` seconds."""
    policy: GammaPrices
    loads: Loads | None = None
    """What a schedule is made for: how the time of late was spent. One gamma for all loads goes by ``load``."""
    largest_batch: int | None = None
    """The most sequences the engine runs at once: where a schedule ends."""
    settable: frozenset[int] | None = None
    """The only gammas the engine takes, where it is that particular; None: all up to ``largest``."""
    schedule: GammaSchedule | None = None
    """The best schedule, where it was made a moment ago; None makes one."""
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
    """What the gamma of a replica should be, and why it is changed now or is not.

    Of a schedule ``gamma``, ``wanted`` and ``best`` tell what it holds for the mean load, and the three schedules
    beside them the whole; they are None where one gamma is for all loads.
    """

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
    schedule: GammaSchedule | None = None
    """In force now."""
    wanted_schedule: GammaSchedule | None = None
    best_schedule: GammaSchedule | None = None

    @property
    def changes(self) -> bool:
        return (self.wanted, self.wanted_schedule) != (self.gamma, self.schedule)

    @property
    def setting(self) -> GammaSetting | None:
        """What is wanted, as it is asked of the engine."""
        return self.wanted if self.wanted_schedule is None else self.wanted_schedule

    def asked(self, at: float) -> GammaMemory:
        """The memory once the engine has been asked for the change. Raises ValueError when there is none to ask for."""
        if self.setting is None or self.after is None:
            raise ValueError("nothing is to change")
        return replace(self.memory, pending=PendingGamma(self.setting, at, self.after))

    def as_dict(self) -> dict[str, Any]:
        """For ``/status`` and logs: plain data, without the memory."""
        return {
            "replica": self.replica,
            "gamma": self.gamma,
            "wanted": self.wanted,
            "best": self.best,
            "schedule": _ranges(self.schedule),
            "wanted_schedule": _ranges(self.wanted_schedule),
            "best_schedule": _ranges(self.best_schedule),
            "reason": self.reason,
            "gain": self.gain,
            "margin": self.margin,
            "candidates": [
                {"gamma": c.gamma, "tokens_per_s": c.tokens_per_s, "tpot_s": c.tpot_s, "forbidden": c.forbidden}
                for c in self.candidates
            ],
        }


def _ranges(schedule: GammaSchedule | None) -> list[list[int]] | None:
    return None if schedule is None else [list(part) for part in schedule.ranges]
