"""Facts of the closed loop, each from a run of its own: it learns in time, routing follows, nothing flaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from adaptive_gamma.policy import Policy, with_curves
from adaptive_gamma.roofline import AcceptanceCurve
from adaptive_gamma.simulation.control.contestants import pools, start_gamma
from adaptive_gamma.simulation.control.held import hold, queue_of_requests
from adaptive_gamma.simulation.control.loop import ControlRules, GammaChange, control_session
from adaptive_gamma.simulation.replay.fleet_file import ReplicaPlan
from adaptive_gamma.simulation.replay.policies import Engine
from adaptive_gamma.simulation.replay.run import World
from adaptive_gamma.simulation.replay.synthetic_trace import synthetic_trace
from adaptive_gamma.simulation.replay.workload import Workload

__all__ = [
    "Fall",
    "Swing",
    "fall_of_acceptance",
    "load_about_an_edge",
    "most_in_a_minute",
    "poisson_requests",
    "policy_with_an_edge",
]

_POSITIONS = 64
_BLOCK_S = 10.0


@dataclass(frozen=True, slots=True)
class Fall:
    """The acceptance of one class fell; the other's stayed."""

    before: float
    after: float
    at_s: float
    seconds: list[float]
    learned: list[float]
    """Learned conditional acceptance at the first position, each second."""
    learned_tokens: list[float]
    """Learned expected tokens of a step with the start gamma, each second."""
    true_tokens: tuple[float, float]
    """What those truly were before and after."""
    share_before: float
    """Of the class's requests sent to speculative replicas in the 30 s before the fall."""
    share_after: float
    """The same in the 60 s after the first 30."""
    other_before: float
    other_after: float
    """The same of the class whose acceptance stayed."""
    changes: list[GammaChange]

    def learned_at(self, second: float) -> float:
        """The learned rate ``second`` seconds after the fall."""
        return self.learned[self.seconds.index(self.at_s + second)]

    def settled_after(self, within: float) -> float | None:
        """Seconds after the fall from which the learned rate stays within so much of the true one; None: never."""
        off = [t for t, rate in zip(self.seconds, self.learned, strict=True) if abs(rate - self.after) > within]
        last = max((t for t in off if t >= self.at_s), default=self.at_s - 1.0)
        return None if last == self.seconds[-1] else last + 1.0 - self.at_s


def fall_of_acceptance(
    policy: Policy,
    request_class: str,
    other_class: str,
    *,
    set_gamma: bool,
    seed: int,
    before: float = 0.85,
    after: float = 0.45,
    at_s: float = 60.0,
    rate: float = 5.0,
    seconds: float = 180.0,
    gamma: int | None = None,
) -> Fall:
    """Two speculative replicas and two plain ones serve two classes, ``rate`` requests a second each.

    The policy believes what is true until ``at_s``; requests of ``request_class`` that arrive later have independent
    acceptance ``after`` at every position.

    Args:
        policy: prices and the other class's acceptance.
        request_class, other_class: two of its classes.
        set_gamma: whether gammas are set; False only routes.
        seed: of arrivals, lengths and luck.
        gamma: of the speculative replicas; None: what a model card would advise.
    """
    believed = with_curves(policy, {request_class: AcceptanceCurve.independent(before)})
    workload = poisson_requests(believed.classes, (request_class, other_class), rate, seconds, seed)
    fallen = f"{request_class} after the fall"
    populations = [
        fallen if name == request_class and at >= at_s else name
        for name, at in ((workload.classes[c], t) for c, t in zip(workload.class_of, workload.arrival_s, strict=True))
    ]
    truth = {fallen: AcceptanceCurve.independent(after).unconditional(_POSITIONS).tolist()}
    started = gamma or start_gamma(policy)
    world = World(workload, believed, [ReplicaPlan("spec", True, started)], seed, truth, populations=populations)
    session, loop = control_session(world, believed, pools(started, 2, 2), ControlRules(set_gamma=set_gamma))
    curves = []
    sent: list[tuple[float, str, bool]] = []
    seconds_seen: list[float] = []
    for request, now in enumerate(workload.arrival_s):
        while len(seconds_seen) <= int(now):
            second = float(len(seconds_seen))
            session.advance(second)
            seconds_seen.append(second)
            curves.append(loop.in_use.curve(request_class, second).curve)
        session.advance(now)
        chosen = session.send(request, now)
        name = workload.classes[workload.class_of[request]]
        sent.append((now, name, session.states[chosen].pool == "speculative"))
    session.finish()

    def share(name: str, first: float, last: float) -> float:
        pools = [speculative for at, each, speculative in sent if each == name and first <= at < last]
        return sum(pools) / len(pools)

    def true_tokens(alpha: float) -> float:
        return AcceptanceCurve.independent(alpha).expected_tokens(started)

    return Fall(
        before,
        after,
        at_s,
        seconds_seen,
        [curve.conditional_at(1) for curve in curves],
        [curve.expected_tokens(started) for curve in curves],
        (true_tokens(before), true_tokens(after)),
        share(request_class, at_s - 30.0, at_s),
        share(request_class, at_s + 30.0, at_s + 90.0),
        share(other_class, at_s - 30.0, at_s),
        share(other_class, at_s + 30.0, at_s + 90.0),
        loop.changes,
    )


@dataclass(frozen=True, slots=True)
class Swing:
    """The load went to and fro over an edge of the table."""

    seconds: float
    gammas: list[GammaChange]
    """Changes of gamma."""
    share: list[float]
    """By 10 seconds: share of the requests sent to speculative replicas."""
    share_low: float
    """The same of those sent while the load was to be the lower one."""
    share_high: float
    requests: int

    @property
    def most_gamma_changes_a_minute(self) -> int:
        """Of one replica within any 60 s."""
        replicas = {change.replica for change in self.gammas}
        return max((most_in_a_minute([c.at for c in self.gammas if c.replica == name]) for name in replicas), default=0)

    @property
    def most_pool_switches_a_minute(self) -> int:
        """How often within any 60 s the pool that gets more of the requests of 10 seconds is another than before."""
        sides = [each >= 0.5 for each in self.share]
        return most_in_a_minute([_BLOCK_S * i for i, (a, b) in enumerate(pairwise(sides)) if a != b])


def load_about_an_edge(
    policy: Policy,
    request_class: str,
    engines: Sequence[Engine],
    low: int,
    high: int,
    *,
    rules: ControlRules,
    seed: int,
    seconds: float = 600.0,
) -> Swing:
    """Clients keep ``low`` requests of one class open in even seconds and ``high`` in odd ones."""
    count = int(seconds * high)
    workload = queue_of_requests([(request_class, 1.0)], policy.classes, count, seed)
    world = World(workload, policy, [ReplicaPlan("spec", True, policy.max_gamma)], seed)
    session, loop = control_session(world, policy, engines, rules)
    run = hold(session, lambda now: high if int(now) % 2 else low, seconds)
    blocks = [
        [sent.pool == "speculative" for sent in run.sent if start <= sent.at < start + _BLOCK_S]
        for start in np.arange(0.0, seconds, _BLOCK_S).tolist()
    ]
    share = [sum(each) / len(each) for each in blocks if each]
    by_parity: list[list[bool]] = [[], []]
    for sent in run.sent:
        by_parity[int(sent.at) % 2].append(sent.pool == "speculative")
    even, odd = (sum(each) / len(each) for each in by_parity)
    return Swing(seconds, loop.changes, share, even, odd, len(run.sent))


def policy_with_an_edge(policy: Policy, request_class: str, gamma: int, batch: int) -> Policy:
    """The same policy with the class's acceptance such that ``gamma`` pays up to ``batch`` and not beyond."""
    low, high = 0.0, 1.0
    plain = policy.step_seconds(batch, 0, None, speculative=False)
    for _ in range(60):
        alpha = (low + high) / 2.0
        tokens = AcceptanceCurve.independent(alpha).expected_tokens(gamma)
        if tokens * plain >= policy.step_seconds(batch, gamma):
            high = alpha
        else:
            low = alpha
    return with_curves(policy, {request_class: AcceptanceCurve.independent(high)})


def most_in_a_minute(times: Sequence[float]) -> int:
    """The largest number of times within any 60 seconds."""
    return max((sum(start <= at < start + 60.0 for at in times) for start in times), default=0)


def poisson_requests(classes: Sequence[str], used: Sequence[str], rate: float, seconds: float, seed: int) -> Workload:
    """Requests of each class at ``rate`` a second, lengths as in the synthetic conversation trace."""
    rng = np.random.Generator(np.random.PCG64([seed, 4]))
    entries: list[tuple[float, int]] = []
    for name in used:
        gaps = rng.standard_exponential(int(rate * seconds * 2) + 10) / rate
        entries += [(t, list(classes).index(name)) for t in np.cumsum(gaps).tolist() if t < seconds]
    entries.sort()
    lengths = synthetic_trace("conversation", seed, len(entries))
    return Workload(
        tuple(classes),
        [t for t, _ in entries],
        lengths.prompt_tokens,
        lengths.output_tokens,
        [which for _, which in entries],
    )
