"""Acceptance of classes that no request reports, recovered from what the replicas' counters mix.

What is known is what a sidecar knows: totals by draft position, read once a second, and for how long it had requests of
each class open on each replica in between. Everything else is ``AcceptanceLearner``'s work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adaptive_gamma.policy import Policy, with_curves
from adaptive_gamma.roofline import AcceptanceCurve
from adaptive_gamma.routing.learn import AcceptanceLearner
from adaptive_gamma.simulation.control.contestants import pools
from adaptive_gamma.simulation.control.facts import poisson_requests
from adaptive_gamma.simulation.control.learning import histogram_of
from adaptive_gamma.simulation.control.loop import ControlLoop, ControlRules
from adaptive_gamma.simulation.replay.fleet_file import ReplicaPlan
from adaptive_gamma.simulation.replay.replica import DraftRun
from adaptive_gamma.simulation.replay.run import World
from adaptive_gamma.simulation.replay.session import Session

__all__ = ["Recovered", "recovery_from_counters"]

_POSITIONS = 64


@dataclass(frozen=True, slots=True)
class Recovered:
    """One class."""

    request_class: str
    true_tokens: float
    """Tokens of a step with the gamma of the run, as acceptance truly is."""
    believed_tokens: float
    """As the policy had it."""
    learned_tokens: float
    inferred: bool
    """Whether the learner marks it as inferred."""
    drafts: float
    """How many drafts of its own the evidence is worth."""

    @property
    def error(self) -> float:
        """Relative: 0.05 is 5 % too many."""
        return self.learned_tokens / self.true_tokens - 1.0


def recovery_from_counters(
    policy: Policy,
    truth: Mapping[str, AcceptanceCurve],
    believed: AcceptanceCurve,
    *,
    seed: int,
    rate: float = 5.0,
    seconds: float = 240.0,
    replicas: int = 6,
    gamma: int = 4,
) -> list[Recovered]:
    """Speculative replicas serve classes whose acceptance differs, of which the policy believes one thing.

    Args:
        policy: prices; its classes are those of ``truth``.
        truth: acceptance by class.
        believed: of every class, beforehand.
        seed: of arrivals, lengths and luck.
        rate: requests a second in all, the classes alike.
        seconds: of traffic.
        replicas: in the fleet.
        gamma: of each; it is not changed.
    """
    known = with_curves(policy, dict.fromkeys(truth, believed))
    workload = poisson_requests(known.classes, list(truth), rate / len(truth), seconds, seed)
    survival = {name: curve.unconditional(_POSITIONS).tolist() for name, curve in truth.items()}
    world = World(workload, known, [ReplicaPlan("spec", True, gamma)], seed, survival)
    learner = AcceptanceLearner({name: known.curves[name] for name in truth})
    loop = ControlLoop(known, world, ControlRules(set_gamma=False, learn=False))
    counting = _Counting(loop, learner, gamma)
    engines = pools(gamma, replicas, 0)
    session = Session(world, engines, loop.route, tender=counting, report=counting.report)
    for request, now in enumerate(workload.arrival_s):
        session.advance(now)
        counting.sent(session.send(request, now), request, now)
    session.advance(seconds)
    found = learner.curves(seconds)
    return [
        Recovered(
            name,
            curve.expected_tokens(gamma),
            believed.expected_tokens(gamma),
            found[name].curve.expected_tokens(gamma),
            found[name].inferred,
            found[name].trials[0] if found[name].trials else 0.0,
        )
        for name, curve in truth.items()
    ]


class _Counting:
    """Reads every replica's counters at each scrape and tells the learner what was counted since the last."""

    def __init__(self, loop: ControlLoop, learner: AcceptanceLearner, gamma: int) -> None:
        self._loop = loop
        self._learner = learner
        self._gamma = gamma

    def join(self, session: Session) -> None:
        self._loop.join(session)
        self._session = session
        empty = np.zeros(self._gamma + 1, dtype=np.int64)
        self._finished = [empty.copy() for _ in session.replicas]
        self._before = [empty for _ in session.replicas]
        self._open: list[dict[int, float]] = [{} for _ in session.replicas]
        """By replica, the requests open there and since when in this period."""

    def sent(self, index: int, request: int, now: float) -> None:
        self._open[index][request] = now

    def report(self, index: int, request: int, runs: Sequence[DraftRun], at: float) -> None:
        """As ``simulation.replay.SessionReport``: only adds to the counters, whose request it was is not looked at."""
        self._finished[index] += self._histogram(runs)

    def look(self, at: float) -> None:
        self._loop.look(at)
        for index, replica in enumerate(self._session.replicas):
            counted = self._finished[index] + sum(map(self._histogram, replica.unfinished_runs()))
            new, self._before[index] = counted - self._before[index], counted
            seconds = self._seconds(index, at)
            drafts = float(new.sum())
            if drafts > 0:
                # Drafts whose first i + 1 tokens were all accepted, as engines label their positions.
                accepted = (drafts - np.cumsum(new[:-1])).tolist()
                self._learner.observe_counters(seconds, drafts, accepted, at, source=replica.name)

    def _histogram(self, runs: Sequence[DraftRun]) -> npt.NDArray[np.int64]:
        counts = np.zeros(self._gamma + 1, dtype=np.int64)
        steps = histogram_of(self._session.world.draws, runs)
        counts[: len(steps)] = steps
        return counts

    def _seconds(self, index: int, at: float) -> dict[str, float]:
        """Request-seconds by class since the last look."""
        workload, finished = self._session.world.workload, self._session.log.finished_s
        seconds: dict[str, float] = {}
        still: dict[int, float] = {}
        for request, since in self._open[index].items():
            end = finished[request]
            if not end <= at:  # not finished, or after the scrape
                still[request] = end = at
            name = workload.classes[workload.class_of[request]]
            seconds[name] = seconds.get(name, 0.0) + end - since
        self._open[index] = still
        return seconds
