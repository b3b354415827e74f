"""The closed loop: acceptance learned, schedules or gammas set, requests routed, all by what serves traffic.

It is what ``serve`` does, with the simulation's clock: after every scrape a ``GammaPilot`` looks at each replica whose
gamma can be set, finished requests report to an ``AcceptanceLearner``, and each request goes where ``decide`` sends it.
Engines take a schedule, a gamma for each batch that they look up at every step, as vLLM with the plugin does; or one
gamma for all batches. What is asked for is in force from the replica's next step on, for every sequence in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from adaptive_gamma.policy import Policy
from adaptive_gamma.routing import (
    ClassMix,
    DecisionLimits,
    GammaPilot,
    GammaRules,
    GammaSchedule,
    GammaSetting,
    PriceBook,
    ReplicaState,
    RequestNeeds,
    batch_of,
    decide,
    least_loaded,
)
from adaptive_gamma.simulation.control.learning import LearningRules, PolicyInUse
from adaptive_gamma.simulation.control.noise import MeasuredNoise
from adaptive_gamma.simulation.replay.gamma_choice import HeldGamma
from adaptive_gamma.simulation.replay.policies import Engine
from adaptive_gamma.simulation.replay.replica import DraftRun
from adaptive_gamma.simulation.replay.run import World
from adaptive_gamma.simulation.replay.session import Session

__all__ = ["ControlLoop", "ControlRules", "GammaChange", "control_session", "settable"]


@dataclass(frozen=True, slots=True)
class ControlRules:
    """Which parts of the loop are closed, and by which rules; the numbers are the defaults of ``serve``."""

    set_gamma: bool = True
    schedules: bool = True
    """Whether engines take a schedule; False: one gamma, whatever the batch."""
    learn: bool = True
    route: bool = True
    """False sends requests to the least loaded replica."""
    smallest_gamma: int = 0
    """The least an engine can be told to draft."""
    gamma: GammaRules = field(default_factory=GammaRules)
    learning: LearningRules = field(default_factory=LearningRules)


@dataclass(frozen=True, slots=True)
class GammaChange:
    """A gamma or a schedule that came into force."""

    at: float
    replica: str
    before: GammaSetting
    gamma: GammaSetting
    reason: str

    def __str__(self) -> str:
        return f"{_in_words(self.before)} to {_in_words(self.gamma)} at {self.at:.0f} s"


def _in_words(setting: GammaSetting) -> str:
    """A gamma, or those of a schedule with the last batch of each."""
    if not isinstance(setting, GammaSchedule):
        return str(setting)
    return "[" + ", ".join(f"{gamma} to {last}" for _, last, gamma in setting.ranges) + "]"


def settable(engine: Engine) -> Engine:
    """The same engine with a gamma that can be set while it runs; a plain one or one with a schedule as it is."""
    if not engine.speculative or not isinstance(engine.gamma, int):
        return engine
    return replace(engine, choice=HeldGamma(engine.gamma))


class ControlLoop:
    """Tends the fleet of one session, and routes for it.

    Args:
        policy: the file's.
        world: what is run.
        rules: what to do.
    """

    def __init__(self, policy: Policy, world: World, rules: ControlRules) -> None:
        self.rules = rules
        self.changes: list[GammaChange] = []
        self.in_use = PolicyInUse(policy, world.draws, rules.learning)
        self._limits: DecisionLimits = world.limits
        self._classes = world.workload.classes
        self._class_of = world.workload.class_of
        self._book = PriceBook()
        self._flights: list[_Flight] = []

    def join(self, session: Session) -> None:
        self._session = session
        if self.rules.set_gamma:
            for index, engine in enumerate(session.engines):
                if isinstance(engine.choice, HeldGamma):
                    self._flights.append(_Flight(index, engine, engine.choice, self.rules))

    def route(
        self, needs: RequestNeeds, states: Sequence[ReplicaState], now: float, tie_break: float
    ) -> tuple[str, str]:
        """As ``simulation.replay.Route``."""
        if not self.rules.route:
            return least_loaded(needs, states, now=now, tie_break=tie_break).name, "least_loaded"
        decision = decide(
            needs, states, self.in_use.policy, now=now, tie_break=tie_break, limits=self._limits, prices=self._book
        )
        return decision.replica, decision.reason

    def report(self, index: int, request: int, runs: Sequence[DraftRun], at: float) -> None:
        """As ``simulation.replay.SessionReport``."""
        if self.rules.learn:
            name = self._session.engines[index].name
            self.in_use.report(name, self._classes[self._class_of[request]], runs, at)

    def look(self, at: float) -> None:
        """Once after every scrape."""
        session = self._session
        if self.rules.learn and self.in_use.look(at):
            session.scraper.expect(self.in_use.policy)
        for flight in self._flights:
            change = flight.look(at, session, self.in_use.policy)
            if change is not None:
                self.changes.append(change)
                self.in_use.learner.note_gamma_change(at, change.replica)


class _Flight:
    """One replica whose gamma is set."""

    def __init__(self, index: int, engine: Engine, held: HeldGamma, rules: ControlRules) -> None:
        self._index = index
        self._held = held
        self._largest = engine.gamma if isinstance(engine.gamma, int) else None
        self._largest_batch = engine.max_num_seqs
        self._smallest = rules.smallest_gamma
        self._pilot = GammaPilot(engine.name, rules.gamma, 0.0, schedules=rules.schedules)
        self._mix = ClassMix(rules.gamma.dwell_s)
        self._noise = MeasuredNoise()

    def look(self, at: float, session: Session, policy: Policy) -> GammaChange | None:
        replica, state, pilot = session.replicas[self._index], session.states[self._index], self._pilot
        counts = dict(zip(session.world.workload.classes, replica.open_by_class, strict=True))
        self._mix.saw(counts, at)
        setting = self._held.setting
        ratio = state.acceptance_ratio if setting else None
        decision = pilot.decide(
            at,
            policy,
            gamma=setting,
            largest=self._largest,
            smallest=self._smallest,
            largest_batch=self._largest_batch,
            batch=batch_of(state, at),
            mix=self._mix.weights,
            acceptance_ratio=ratio,
            noise=self._noise.look(replica, at, policy, setting, counts, ratio),
            slo_tpot_s=session.world.limits.slo_tpot_s,
        )
        wanted = decision.setting
        if not decision.changes or wanted is None:
            return None
        pilot.asked(decision, at)
        pilot.applied(at)
        self._held.setting = state.gamma = wanted
        replica.review()
        return GammaChange(at, replica.name, setting, wanted, decision.reason)


def control_session(
    world: World, policy: Policy, engines: Sequence[Engine], rules: ControlRules | None = None
) -> tuple[Session, ControlLoop]:
    """A fleet with the loop closed around it; the gamma of each replica is the most it can be set to."""
    loop = ControlLoop(policy, world, rules or ControlRules())
    session = Session(world, [settable(e) for e in engines], loop.route, tender=loop, report=loop.report)
    return session, loop
