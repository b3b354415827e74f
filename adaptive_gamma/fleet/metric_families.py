"""What the metrics page says of the fleet, read when it is asked for. A value that is not known has no sample."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from adaptive_gamma.fleet.exposition import Family, Row
from adaptive_gamma.fleet.learned_page import learned_families, learned_rates
from adaptive_gamma.routing import GammaSchedule

if TYPE_CHECKING:
    from adaptive_gamma.fleet import AcceptancePrior, Fleet, FleetLearning, FleetReplica

__all__ = ["fleet_families"]

_REPLICA = ("replica",)


def fleet_families(fleet: Fleet, now: float, learning: FleetLearning | None) -> Iterator[Family]:
    """The families, their rows made as they are taken. ``now`` is of the fleet's clock."""
    replicas = fleet.replicas
    yield Family(
        "adaptive_gamma_in_flight",
        "gauge",
        "Requests this proxy has open on a replica now.",
        _REPLICA,
        [("", (name,), count) for name, count in fleet.in_flight().items()],
    )
    yield Family(
        "adaptive_gamma_gamma", "gauge", "Draft tokens per step now, 0 where none.", _REPLICA, _gammas(replicas, now)
    )
    yield Family(
        "adaptive_gamma_scrape_age_seconds",
        "gauge",
        "Age of the last good scrape.",
        _REPLICA,
        (("", (r.name,), max(now - r.scraped_at, 0.0)) for r in replicas if r.scraped_at is not None),
    )
    yield Family(
        "adaptive_gamma_replica_healthy",
        "gauge",
        "1 when healthy, else 0.",
        _REPLICA,
        (("", (r.name,), float(r.state.healthy)) for r in replicas),
    )
    yield Family(
        "adaptive_gamma_replica_ramping",
        "gauge",
        "1 while a replica that has just come (back) is priced above its load, else 0.",
        _REPLICA,
        (("", (r.name,), float(now < r.state.ramp_until)) for r in replicas),
    )
    yield Family(
        "adaptive_gamma_all_replicas_down",
        "gauge",
        "1 while no replica is healthy and all are used for want of a better one, else 0.",
        (),
        [("", (), float(not any(r.state.healthy for r in replicas)))],
    )
    yield Family(
        "adaptive_gamma_scrape_failures",
        "counter",
        "Scrapes that gave no reading, by reason.",
        ("replica", "reason"),
        (("_total", (r.name, why), count) for r in replicas for why, count in sorted(r.scrape_failures.items())),
    )
    yield from _cost_families(replicas, fleet.policy)
    yield from _control_families([r for r in replicas if r.control is not None])
    yield Family(
        "adaptive_gamma_acceptance",
        "gauge",
        "Conditional acceptance by draft position (0 is the first, as engines count): class all over the replicas' "
        "decayed windows, each other class as learned.",
        ("class", "position"),
        chain(_acceptance(replicas), learned_rates(learning)),
    )
    yield from learned_families(learning)


def _cost_families(replicas: tuple[FleetReplica, ...], policy: AcceptancePrior | None) -> Iterator[Family]:
    found = [(r.name, finding) for r in replicas if (finding := r.cost.finding) is not None]
    yield Family(
        "adaptive_gamma_step_seconds",
        "gauge",
        "Seconds of an engine step, as the engine reports them, over a decayed window.",
        _REPLICA,
        [("", (name,), finding.step_s) for name, finding in found],
    )
    yield Family(
        "adaptive_gamma_predicted_step_seconds",
        "gauge",
        "Seconds of the same steps, as the policy predicts them.",
        _REPLICA,
        [("", (name,), finding.predicted_step_s) for name, finding in found],
    )
    yield Family(
        "adaptive_gamma_gain_over_plain_ratio",
        "gauge",
        "Observed tokens per second over those predicted of plain decoding of the same batch, less 1; none of an "
        "engine without a drafter.",
        _REPLICA,
        [("", (n,), gain) for n, finding in found if policy and (gain := finding.gain_over_plain(policy)) is not None],
    )
    yield Family(
        "adaptive_gamma_step_time_error_ratio",
        "gauge",
        "Observed over predicted seconds of an engine step, less 1: 0.25 is 25 % slower than the policy says.",
        _REPLICA,
        [("", (name,), finding.step_time_ratio - 1.0) for name, finding in found],
    )
    yield Family(
        "adaptive_gamma_tokens_per_step_error_ratio",
        "gauge",
        "Observed over predicted tokens a sequence gets from a step, less 1.",
        _REPLICA,
        [("", (name,), ratio - 1.0) for name, finding in found if (ratio := finding.tokens_ratio) is not None],
    )
    yield Family(
        "adaptive_gamma_replica_cost_flagged",
        "gauge",
        "1 while the step time error has been above its limit for long, and predictions are corrected, else 0.",
        _REPLICA,
        [("", (r.name,), float(r.cost.flagged)) for r in replicas],
    )


def _control_families(replicas: list[FleetReplica]) -> Iterator[Family]:
    """Of the replicas whose gamma may be set."""
    controls = [(r.name, r.control) for r in replicas if r.control is not None]
    yield Family(
        "adaptive_gamma_gamma_best",
        "gauge",
        "Draft tokens per step with the most predicted tokens per second, whether or not gamma is changed to it.",
        _REPLICA,
        [("", (name,), control.best) for name, control in controls if control.best is not None],
    )
    yield Family(
        "adaptive_gamma_gamma_schedule",
        "gauge",
        "Draft tokens per step by the schedule in force, for batches from the label's number on.",
        ("replica", "batch"),
        [
            ("", (r.name, str(first)), gamma)
            for r in replicas
            if isinstance(r.state.gamma, GammaSchedule)
            for first, _, gamma in r.state.gamma.ranges
        ],
    )
    yield Family(
        "adaptive_gamma_gamma_changes",
        "counter",
        "Changes of gamma that came into force, by reason.",
        ("replica", "reason"),
        [("_total", (name, why), n) for name, control in controls for why, n in sorted(control.changes.items())],
    )
    yield Family(
        "adaptive_gamma_gamma_change_failures",
        "counter",
        "Changes of gamma that the engine did not take, by reason.",
        ("replica", "reason"),
        [("_total", (name, why), n) for name, control in controls for why, n in sorted(control.failures.items())],
    )
    yield Family(
        "adaptive_gamma_actuator_stopped",
        "gauge",
        "1 when gamma cannot be set because the engine does not do what it is asked, else 0.",
        _REPLICA,
        [("", (name,), float(control.problem is not None)) for name, control in controls],
    )


def _gammas(replicas: tuple[FleetReplica, ...], now: float) -> Iterator[Row]:
    for replica in replicas:
        state = replica.state
        setting = state.gamma
        if isinstance(setting, GammaSchedule):
            running = state.running if now <= state.fresh_until else None
            setting = None if running is None else setting.at(running)
        if setting is not None:
            yield "", (replica.name,), setting


def _acceptance(replicas: tuple[FleetReplica, ...]) -> Iterator[Row | None]:
    """Over the replicas' windows, weighted by the drafts that reached a position.

    Engines count drafts without classes, so this is the class ``all``.
    """
    weights: list[float] = []
    accepted: list[float] = []
    for replica in replicas:
        for index, rate in enumerate(replica.position_acceptance() or ()):
            if index == len(weights):
                weights.append(0.0)
                accepted.append(0.0)
            weights[index] += rate.trials
            accepted[index] += rate.trials * rate.rate
        yield None
    for index, weight in enumerate(weights):
        if weight > 0:
            yield "", ("all", str(index)), accepted[index] / weight
