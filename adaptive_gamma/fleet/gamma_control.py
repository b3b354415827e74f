"""One replica's gamma, as it is set: pilot, actuator and what answers tell, put together."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from adaptive_gamma.config.settings import ControlSettings, GammaControlSettings
from adaptive_gamma.engines import GammaActuator
from adaptive_gamma.errors import ActuatorError
from adaptive_gamma.fleet.answer_track import AnswerTrack
from adaptive_gamma.fleet.gamma import gamma_told, ranges_of
from adaptive_gamma.fleet.replica import FleetReplica
from adaptive_gamma.routing.class_mix import ClassMix
from adaptive_gamma.routing.gamma_candidates import GammaPrices
from adaptive_gamma.routing.gamma_change import GammaRules
from adaptive_gamma.routing.gamma_pilot import GammaPilot
from adaptive_gamma.routing.load import batch_of
from adaptive_gamma.routing.replica import GammaSchedule, GammaSetting

__all__ = ["AnswerWatch", "GammaField", "ReplicaControl", "rules_of"]

_log = logging.getLogger("adaptive_gamma.fleet")


class GammaField(NamedTuple):
    """What a request to an engine carries, so that it is drafted for with a gamma."""

    name: str
    gamma: int


class Changed(Protocol):
    """Is told of each change that came into force."""

    def __call__(self, replica: FleetReplica, gamma: GammaSetting | None, at: float) -> None: ...


def rules_of(settings: ControlSettings) -> GammaRules:
    """The rules that the settings name."""
    return GammaRules(settings.dwell_s, settings.min_gain, settings.probe_every_s)


class ReplicaControl:
    """Sets the gamma of one replica. Time is an argument.

    Args:
        replica: the replica; its ``state.gamma`` follows what is in force.
        actuator: how its gamma is set.
        settings: when.
        half_life_s: of what answers tell.
        now: monotonic seconds.
        changed: is told of changes.
    """

    def __init__(
        self,
        replica: FleetReplica,
        actuator: GammaActuator,
        settings: ControlSettings,
        *,
        half_life_s: float,
        now: float,
        changed: Changed,
    ) -> None:
        self.replica = replica
        self.actuator = actuator
        self.way_in: GammaControlSettings | None = replica.settings.gamma_control
        """What the actuator was made for."""
        self.dropped = False
        """Nothing is to be set by it any more."""
        self.pilot = GammaPilot(replica.name, rules_of(settings), now, schedules=actuator.schedules)
        self.answers = AnswerTrack(half_life_s)
        self.changes: Counter[str] = Counter()
        """Changes that came into force, by reason."""
        self.failures: Counter[str] = Counter()
        """Changes that did not, by reason."""
        self._changed = changed
        self._restarts = replica.restarts
        self._mix = ClassMix(settings.dwell_s)
        self._pending_reason = ""
        self._reported: str | None = None
        self._withdrawal_failed: str | None = None

    @property
    def problem(self) -> str | None:
        """Why the gamma cannot be set, in words; None while it can."""
        return self.actuator.problem

    @property
    def best(self) -> int | None:
        """The gamma with the most predicted tokens per second."""
        return None if self.pilot.last is None else self.pilot.last.best

    def field(self) -> GammaField | None:
        """What each request carries from now on."""
        field = self.actuator.request_field()
        return None if field is None else GammaField(*field)

    def answered(self, sent: int | None, request_class: str, body: Mapping[str, object], at: float) -> None:
        """An answer of the replica, to a request that carried ``sent``, or nothing of ours."""
        self.actuator.answered(sent, body)
        gamma = self.replica.own_gamma if sent is None else sent
        acceptance = self.replica.dialect.acceptance_from_response(body)
        if gamma is not None and acceptance is not None:
            self.answers.saw(request_class, gamma, acceptance, at)

    async def look(self, now: float, policy: GammaPrices, *, slo_tpot_s: float | None, acting: bool) -> None:
        """See what has become of the last change, and whether there is to be another."""
        replica, actuator, pilot = self.replica, self.actuator, self.pilot
        await actuator.look()
        if self.dropped:
            return
        if replica.restarts != self._restarts:
            self._restarts = replica.restarts
            self._begin_anew(now)
        self._settle(now)
        self._follow(now)
        ratio = self.answers.ratio(policy)
        replica.ratio_of_answers = ratio
        self._note_mix(now, policy)
        state, cost = replica.state, replica.cost.finding
        gamma = state.gamma if state.speculative else None
        decision = pilot.decide(
            now,
            policy,
            gamma=gamma if actuator.schedules or isinstance(gamma, int) else None,
            largest=replica.own_gamma if actuator.largest_gamma is None else actuator.largest_gamma,
            smallest=actuator.smallest_gamma,
            largest_batch=actuator.largest_batch,
            settable=actuator.settable,
            batch=batch_of(state, now),
            mix=self._mix.weights,
            acceptance_ratio=ratio if ratio is not None else self._counted_ratio(),
            step_time_ratio=state.step_time_ratio,
            noise=None if cost is None else cost.noise,
            slo_tpot_s=slo_tpot_s,
        )
        if not (decision.changes and acting) or actuator.problem is not None or actuator.waits_for is not None:
            return
        wanted = decision.setting
        assert wanted is not None
        pilot.asked(decision, now)
        self._pending_reason = decision.reason
        _log.info(
            "replica %s: gamma %s is asked for, was %s: %s, predicted gain %+.1f %%, margin %.1f %%",
            replica.name, ranges_of(wanted), "not known" if gamma is None else ranges_of(gamma), decision.reason,
            100.0 * (decision.gain or 0.0), 100.0 * decision.margin,
        )  # fmt: skip
        try:
            await actuator.change(ranges_of(wanted))
        except ActuatorError as error:
            self._failed(error, now)
        if self.dropped:
            return  # a reload has ended this meanwhile, and what the replica is priced with is no business of ours
        self._settle(now)
        self._follow(now)

    async def withdraw(self, now: float) -> bool:
        """Let the engine's own gamma hold again: nothing is to be set any more. Whether that could be done."""
        try:
            await self.actuator.withdraw()
        except ActuatorError as error:
            if self._withdrawal_failed != str(error):
                self._withdrawal_failed = str(error)
                _log.error("replica %s: its own gamma could not be brought back: %s", self.replica.name, error)
            return False
        self._withdrawal_failed = None
        if not self.dropped:
            self._follow(now)
        self.pilot.forget(now)
        return True

    def as_dict(self, now: float) -> dict[str, Any]:
        """``set_gamma`` of the replica in ``/status``."""
        actuator, decision = self.actuator, self.pilot.last
        field, engine = actuator.request_field(), actuator.details()
        holds = None if decision is None else decision.holds_until
        return {
            "actuator": actuator.name,
            "state": actuator.state,
            "problem": actuator.problem,
            "waits_for": actuator.waits_for,
            "own_gamma": self.replica.own_gamma,
            "gamma": _plain(gamma_told(actuator.gamma)),
            "sent": None if field is None else field[1],
            "best": None if decision is None else decision.best,
            "best_schedule": None if decision is None else _plain(decision.best_schedule),
            "reason": None if decision is None else decision.reason,
            "gain": _rounded(None if decision is None else decision.gain),
            "margin": _rounded(None if decision is None else decision.margin),
            "holds_s": None if holds is None else _rounded(max(holds - now, 0.0)),
            "acceptance_ratio": _rounded(self.replica.ratio_of_answers),
            "changes": dict(self.changes),
            "failures": dict(self.failures),
            "engine": {key: _rounded(value, 3) if isinstance(value, float) else value for key, value in engine.items()},
            "candidates": []
            if decision is None
            else [
                {
                    "gamma": each.gamma,
                    "tokens_per_s": _rounded(each.tokens_per_s),
                    "tpot_s": _rounded(each.tpot_s, 6),
                    "forbidden": each.forbidden,
                }
                for each in decision.candidates
            ],
        }

    def _settle(self, now: float) -> None:
        """Take note of what has become of the change asked for, or of an engine that no longer does what it did."""
        if self.actuator.problem is None:
            self._reported = None
        try:
            settled = self.actuator.settled()
        except ActuatorError as error:
            if self.actuator.problem is None or self._reported != self.actuator.problem:
                self._reported = self.actuator.problem
                self._failed(error, now)
            return
        if settled and self.pilot.memory.pending is not None:
            self.pilot.applied(now)
            self.changes[self._pending_reason] += 1

    def _failed(self, error: ActuatorError, now: float) -> None:
        self.failures[error.reason] += 1
        if self.pilot.memory.pending is not None:
            self.pilot.failed(now)
        if self.actuator.problem is None:
            _log.warning("replica %s: gamma was not changed: %s", self.replica.name, error)

    def _begin_anew(self, now: float) -> None:
        self.actuator.restarted()
        self.pilot.forget(now)
        self.answers.forget()
        self._reported = None

    def _counted_ratio(self) -> float | None:
        """Where no answer tells, what the engine counted: unbounded where that is of any gamma."""
        return self.replica.counted_ratio if self.actuator.schedules else self.replica.state.acceptance_ratio

    def _follow(self, now: float) -> None:
        """Price the replica with what is in force."""
        setting = gamma_told(self.actuator.gamma)
        before = self.replica.state.gamma
        self.replica.command_gamma(setting)
        if self.replica.state.gamma != before:
            self._changed(self.replica, self.replica.state.gamma, now)

    def _note_mix(self, now: float, policy: GammaPrices) -> None:
        """Our open requests by class and those of others, whose class nobody knows."""
        state = self.replica.state
        counts = dict(self.replica.in_flight_by_class)
        foreign = (batch_of(state, now) or 0) - state.in_flight
        if foreign > 0:
            counts[policy.default_class] = counts.get(policy.default_class, 0) + foreign
        self._mix.window_s = self.pilot.rules.dwell_s
        self._mix.saw(counts, now)


class AnswerWatch(NamedTuple):
    """Takes in one answer of a replica whose gamma is set."""

    control: ReplicaControl
    sent: int | None
    """The gamma that the request carried; None: nothing of ours."""
    request_class: str
    clock: Callable[[], float]

    @property
    def mark(self) -> bytes:
        """Stands in the JSON text that :meth:`answered` can read."""
        return self.control.actuator.answer_mark

    def answered(self, body: Mapping[str, object]) -> None:
        """The answer (200) is over; ``body`` is its JSON object, or the last one of its stream with the mark."""
        self.control.answered(self.sent, self.request_class, body, self.clock())


def _plain(setting: GammaSetting | None) -> int | list[list[int]] | None:
    return [list(part) for part in setting.ranges] if isinstance(setting, GammaSchedule) else setting


def _rounded(value: float | None, digits: int = 4) -> float | None:
    """For JSON, which has no word for a number that is not finite."""
    return None if value is None or not math.isfinite(value) else round(value, digits)
