"""What acting gains, and how far the prices behind that hold, for a live fleet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from adaptive_gamma.routing.fleet_gains import GainPrices, fleet_gains

if TYPE_CHECKING:
    from adaptive_gamma.fleet.replica import FleetReplica

__all__ = ["gains_row", "observed_row"]


def gains_row(replicas: Sequence[FleetReplica], policy: GainPrices, now: float) -> dict[str, Any] | None:
    """``fleet_gains`` as data; None where it gives nothing."""
    gains = fleet_gains(
        [replica.state for replica in replicas],
        {replica.name: replica.in_flight_by_class for replica in replicas},
        policy,
        now=now,
    )
    if gains is None:
        return None
    return {
        "sequences": gains.sequences,
        "replicas": gains.replicas,
        "left_out": gains.left_out,
        "in_force": round(gains.in_force, 2),
        "plain": round(gains.plain, 2),
        "fixed": {str(gamma): round(rate, 2) for gamma, rate in gains.fixed.items()},
        "best_fixed": gains.best_fixed,
        "over_plain": round(gains.over_plain, 4),
        "over_best_fixed": None if gains.over_best_fixed is None else round(gains.over_best_fixed, 4),
        "plain_observed": gains.plain_observed,
    }


def observed_row(replicas: Sequence[FleetReplica]) -> dict[str, Any] | None:
    """Tokens per second that the engines were observed to give over their windows, and what was predicted of the same
    batches; None where no engine shows it."""
    observed = predicted = 0.0
    counted = 0
    for replica in replicas:
        finding = replica.cost.finding
        if finding is None or finding.tokens_per_step is None or finding.step_s <= 0 or finding.predicted_step_s <= 0:
            continue
        counted += 1
        observed += finding.batch * finding.tokens_per_step / finding.step_s
        predicted += finding.batch * finding.predicted_tokens_per_step / finding.predicted_step_s
    if not counted or not predicted > 0 or not math.isfinite(observed):
        return None
    return {
        "replicas": counted,
        "tokens_per_s": round(observed, 2),
        "predicted_tokens_per_s": round(predicted, 2),
        "ratio": round(observed / predicted, 4),
    }
