"""One replica's gamma over time: the load it has had, and what came of the changes made. Time is an argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from adaptive_gamma.routing.gamma_candidates import GammaPrices
from adaptive_gamma.routing.gamma_change import GammaDecision, GammaInputs, GammaMemory, GammaRules
from adaptive_gamma.routing.gamma_loads import LoadTrack
from adaptive_gamma.routing.gamma_schedule import choose_schedule, schedule_for
from adaptive_gamma.routing.replica import GammaSchedule, GammaSetting
from adaptive_gamma.routing.set_gamma import choose_gamma

__all__ = ["GammaPilot"]

_FIRST_LOOK = 0.25
"""Share of a dwell after which a gamma that nobody chose may be changed."""
_SCHEDULES_A_DWELL = 12.0
"""A schedule prices every gamma at every batch, some ms of work: what was made a twelfth of a dwell ago will do."""


class GammaPilot:
    """Applies ``choose_gamma``, or ``choose_schedule``, to one replica. The one who acts on its decisions tells it what
    came of them.

    The first change is not made before a quarter of a dwell has passed, so that there is a load to speak of. It need
    not wait for longer, as the gamma that an engine starts with answers to no load.

    Args:
        replica: its name.
        rules: when gamma may be changed; may be replaced.
        start: monotonic seconds now.
        schedules: whether it is to have a schedule, a gamma for each load.
    """

    def __init__(self, replica: str, rules: GammaRules, start: float, *, schedules: bool = False) -> None:
        self.replica = replica
        self.rules = rules
        self.loads = LoadTrack(rules.dwell_s)
        self.memory = _fresh(start, rules)
        self.last: GammaDecision | None = None
        """The last decision."""
        self._schedules = schedules
        self._ratio: float | None = None
        self._ratio_of: GammaPrices | None = None
        self._made: tuple[float, tuple[object, ...], GammaSchedule] | None = None
        """The schedule made last, when, and for what."""

    def decide(
        self,
        now: float,
        policy: GammaPrices,
        *,
        gamma: GammaSetting | None,
        largest: int | None,
        smallest: int = 1,
        largest_batch: int | None = None,
        settable: frozenset[int] | None = None,
        batch: int | None = None,
        mix: Mapping[str, float] | None = None,
        context_tokens: float | None = None,
        acceptance_ratio: float | None = None,
        step_time_ratio: float | None = None,
        noise: float | None = None,
        slo_tpot_s: float | None = None,
    ) -> GammaDecision:
        """What the gamma should be now; the arguments are those of ``GammaInputs``.

        ``batch`` is the number of sequences in the engine now, None when it is not known. An ``acceptance_ratio`` is
        kept for when the replica drafts nothing and none can be seen; another policy makes it void.
        """
        self.loads.window_s = self.rules.dwell_s
        if batch is not None:
            self.loads.saw(batch, now)
        if policy is not self._ratio_of:
            self._ratio, self._ratio_of = None, policy
        if acceptance_ratio is not None:
            self._ratio = acceptance_ratio
        inputs = GammaInputs(
            replica=self.replica,
            now=now,
            gamma=gamma,
            largest=largest,
            smallest=smallest,
            load=self.loads.usual(now),
            peak=self.loads.peak(now),
            loads=self.loads.shares(now) if self._schedules else None,
            largest_batch=largest_batch,
            settable=settable,
            policy=policy,
            mix=mix or {},
            context_tokens=context_tokens,
            acceptance_ratio=self._ratio,
            step_time_ratio=step_time_ratio,
            noise=noise,
            slo_tpot_s=slo_tpot_s,
            memory=self.memory,
            rules=self.rules,
        )
        decision = choose_schedule(self._with_schedule(inputs)) if self._schedules else choose_gamma(inputs)
        self.memory, self.last = decision.memory, decision
        return decision

    def asked(self, decision: GammaDecision, at: float) -> None:
        """The engine has been asked for what the decision wants; nothing else is wanted until its outcome is told."""
        self.memory = decision.asked(at)

    def applied(self, at: float) -> None:
        """The change asked for is in force. Raises ValueError when none was."""
        self.memory = self.memory.applied(at)

    def failed(self, at: float) -> None:
        """The change asked for was not made, and gamma is what it was. Raises ValueError when none was."""
        self.memory = self.memory.failed(at, self.rules)

    def forget(self, at: float) -> None:
        """The engine began anew with a gamma of its own: what its past changes taught does not hold."""
        self.memory = _fresh(at, self.rules)
        self.loads = LoadTrack(self.rules.dwell_s)
        self._ratio = self._made = None

    def _with_schedule(self, inputs: GammaInputs) -> GammaInputs:
        given = (inputs.policy, inputs.largest, inputs.largest_batch, inputs.settable, inputs.slo_tpot_s)
        if self._made is not None:
            made_at, made_for, schedule = self._made
            if made_for == given and 0 <= inputs.now - made_at < self.rules.dwell_s / _SCHEDULES_A_DWELL:
                return replace(inputs, schedule=schedule)
        made = schedule_for(inputs)
        self._made = None if made is None else (inputs.now, given, made)
        return replace(inputs, schedule=made)


def _fresh(at: float, rules: GammaRules) -> GammaMemory:
    """Of a replica that begins at a moment."""
    return GammaMemory(changed_at=at - (1.0 - _FIRST_LOOK) * rules.dwell_s)
