"""What an operator should know about a replica, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adaptive_gamma.routing.replica import GammaSchedule

if TYPE_CHECKING:
    from adaptive_gamma.fleet.replica import FleetReplica

__all__ = ["replica_notes"]


def replica_notes(replica: FleetReplica) -> list[str]:
    """What an operator should know about this replica, in words; usually nothing."""
    notes = []
    mismatch, control = replica.gamma_mismatch, replica.control
    if mismatch is not None:
        shown = "an unknown gamma" if mismatch.engine is None else f"gamma {mismatch.engine}"
        notes.append(f"configured gamma {mismatch.configured}, but the engine runs {shown}")
    if control is not None and control.problem is not None:
        notes.append(f"gamma cannot be set: {control.problem}")
    varies = isinstance(replica.configured_gamma, GammaSchedule) or replica.commanded_gamma is not None
    if replica.variable_draft_length and not varies and not replica.drafted_by_position:
        notes.append("drafts vary in length, so acceptance by position is not known")
    if replica.cost.flagged:
        notes.append(replica.cost.words)
    if replica.awake is False:
        notes.append("the engine sleeps")
    if replica.model_missing:
        notes.append(f"the engine does not list the configured model {replica.settings.model}")
    return notes
