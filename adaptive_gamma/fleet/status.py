"""One replica as ``/status`` shows it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from adaptive_gamma.fleet.notes import replica_notes
from adaptive_gamma.routing.replica import GammaSchedule

if TYPE_CHECKING:
    from adaptive_gamma.fleet.replica import FleetReplica

__all__ = ["replica_status"]


def replica_status(replica: FleetReplica, now: float) -> dict[str, Any]:
    """The replica in ``/status``. A value not known is None; load figures are, once they are stale."""
    state = replica.state
    fresh = now <= state.fresh_until
    running = state.running if fresh else None
    schedule = state.gamma if isinstance(state.gamma, GammaSchedule) else None
    gamma = state.gamma if schedule is None else schedule.at(running) if running is not None else None
    acceptance, mismatch, accepted = replica.acceptance, replica.gamma_mismatch, replica.accepted_per_draft
    return {
        "name": replica.name,
        "url": replica.url,
        "engine": replica.engine,
        "pool": None if state.speculative is None else state.pool,
        "healthy": state.healthy,
        "draining": state.draining,
        "gamma": gamma,
        "running": running,
        "waiting": state.waiting if fresh else None,
        "in_flight": state.in_flight,
        "kv_usage": state.kv_usage if fresh else None,
        "scrape_age_s": None if replica.scraped_at is None else _rounded(now - replica.scraped_at, 3),
        "scrape_error": None if replica.scrape_error is None else replica.scrape_error.reason,
        "acceptance": None if acceptance is None else [_rounded(rate, 4) for rate in acceptance],
        "accepted_per_draft": _rounded(accepted, 4),
        "acceptance_ratio": _rounded(state.acceptance_ratio, 4),
        "cost": replica.cost.as_dict(),
        "variable_draft_length": replica.variable_draft_length,
        "drafted_by_position": replica.drafted_by_position,
        "scheduled_gamma": None if replica.reading is None or not fresh else replica.reading.scheduled_gamma,
        "gamma_schedule": None if schedule is None else [list(part) for part in schedule.ranges],
        "gamma_mismatch": (
            None if mismatch is None else {"configured": mismatch.configured, "engine": mismatch.engine}
        ),
        "in_flight_by_class": replica.in_flight_by_class,
        "models": None if state.models is None else sorted(state.models),
        "restarts": replica.restarts,
        "health_changes": replica.health.changes,
        "max_in_flight": state.max_in_flight,
        "ramping": now < state.ramp_until,
        "leaving": replica.leaving,
        "set_gamma": None if replica.control is None else replica.control.as_dict(now),
        "notes": replica_notes(replica),
    }


def _rounded(value: float | None, digits: int) -> float | None:
    """For JSON, which has no word for a number that is not finite."""
    return None if value is None or not math.isfinite(value) else round(value, digits)
