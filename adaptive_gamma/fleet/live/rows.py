"""One replica in a tick of the live page. What is not known is None."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from adaptive_gamma.fleet.notes import replica_notes
from adaptive_gamma.routing import GammaSchedule, GammaSetting, PriceBook, batch_of

if TYPE_CHECKING:
    from adaptive_gamma.fleet.choice import ServedPolicy
    from adaptive_gamma.fleet.cost_check import CostCheck
    from adaptive_gamma.fleet.replica import FleetReplica

__all__ = ["live_row", "setting_key"]


def setting_key(speculative: bool | None, gamma: GammaSetting | None) -> str | None:
    """By what the curve of a replica is known in ``curves_page``; None while it cannot be priced.

    ``plain``, a gamma as a number, or a schedule as its ranges.
    """
    if speculative is None:
        return None
    if not speculative:
        return "plain"
    if gamma is None:
        return None
    return ",".join(f"{a}-{b}:{g}" for a, b, g in gamma.ranges) if isinstance(gamma, GammaSchedule) else str(gamma)


def live_row(replica: FleetReplica, policy: ServedPolicy, prices: PriceBook, now: float) -> dict[str, Any]:
    """The replica now.

    ``tau_s`` is the time per output token at ``batch`` (at 1 while nothing runs) for each class of the policy, as the
    decision prices it; ``step`` what the engine was observed to do over the decayed window, and what was predicted.
    """
    state, control = replica.state, replica.control
    fresh = now <= state.fresh_until
    batch = batch_of(state, now)
    schedule = state.gamma if isinstance(state.gamma, GammaSchedule) else None
    gamma = state.gamma if schedule is None else None if batch is None else schedule.at(batch)
    acceptance, error = replica.acceptance, replica.scrape_error
    return {
        "name": replica.name,
        "url": replica.url,
        "engine": replica.engine,
        "pool": None if state.speculative is None else state.pool,
        "healthy": state.healthy,
        "draining": state.draining,
        "leaving": replica.leaving,
        "ramping": now < state.ramp_until,
        "asleep": replica.awake is False,
        "gamma": gamma,
        "setting": setting_key(state.speculative, state.gamma),
        "running": state.running if fresh else None,
        "waiting": state.waiting if fresh else None,
        "in_flight": state.in_flight,
        "max_in_flight": state.max_in_flight,
        "batch": batch,
        "kv_usage": _rounded(state.kv_usage if fresh else None, 3),
        "age_s": None if replica.scraped_at is None else _rounded(now - replica.scraped_at, 1),
        "fresh": fresh,
        "error": None if error is None else error.reason,
        "acceptance": None if acceptance is None else [_rounded(rate, 3) for rate in acceptance],
        "acceptance_ratio": _rounded(state.acceptance_ratio, 3),
        "step_time_ratio": _rounded(state.step_time_ratio, 3),
        "tau_s": _tau(replica, policy, prices, batch),
        "step": _step(replica.cost, policy),
        "set_gamma": None
        if control is None
        else {"best": control.best, "problem": control.problem, "changes": sum(control.changes.values())},
        "restarts": replica.restarts,
        "notes": replica_notes(replica),
    }


def _tau(
    replica: FleetReplica, policy: ServedPolicy, prices: PriceBook, batch: int | None
) -> dict[str, float | None] | None:
    state = replica.state
    if batch is None or setting_key(state.speculative, state.gamma) is None:
        return None
    at = max(batch, 1)
    return {name: _rounded(prices.pricing(policy, name, None).tpot(state, at), 6) for name in policy.classes}


def _step(cost: CostCheck, policy: ServedPolicy) -> dict[str, Any] | None:
    finding = cost.finding
    if finding is None:
        return None
    return {
        "observed_s": _rounded(finding.step_s, 6),
        "predicted_s": _rounded(finding.predicted_step_s, 6),
        "batch": _rounded(finding.batch, 1),
        "tokens": _rounded(finding.tokens_per_step, 3),
        "predicted_tokens": _rounded(finding.predicted_tokens_per_step, 3),
        "gain_over_plain": _rounded(finding.gain_over_plain(policy) if finding.step_s > 0 else None, 3),
        "flagged": cost.flagged,
        "causes": list(cost.causes),
    }


def _rounded(value: float | None, digits: int) -> float | None:
    """For JSON, which has no word for a number that is not finite."""
    return None if value is None or not math.isfinite(value) else round(value, digits)
