"""Why a replica was left out, and what is said when none is left."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_gamma.errors import NoReplica
from adaptive_gamma.routing.capability import incapable_because, is_capable
from adaptive_gamma.routing.decision import RequestNeeds
from adaptive_gamma.routing.replica import ReplicaState

__all__ = ["AT_CAP", "OVER_LIMIT", "REFUSES", "UNHEALTHY", "no_replica", "waits_for_a_better", "why_demoted"]

# A replica that misses a soft requirement is used only when nothing better is left; the bits add up to a rank.
OVER_LIMIT = 1
UNHEALTHY = 2
REFUSES = 4

AT_CAP = "at its cap"


def why_demoted(rank: int, needs: RequestNeeds, state: ReplicaState, kv_limit: float) -> str:
    if rank & REFUSES:
        return incapable_because(needs, state)
    if rank & UNHEALTHY:
        return "unhealthy"
    if state.kv_usage is not None and state.kv_usage >= kv_limit:
        return "kv cache full"
    return "over the TPOT objective"


def waits_for_a_better(
    rank: int, needs: RequestNeeds, states: Sequence[ReplicaState], excluded: Sequence[tuple[str, str]]
) -> bool:
    """Whether a replica at its cap would serve the request where the best one left, of ``rank``, would not."""
    capped = {name for name, why in excluded if why == AT_CAP}
    return bool(capped) and any(_lasting_rank(needs, s) < rank & ~OVER_LIMIT for s in states if s.name in capped)


def _lasting_rank(needs: RequestNeeds, state: ReplicaState) -> int:
    return (0 if state.healthy else UNHEALTHY) | (0 if is_capable(needs, state) else REFUSES)


def no_replica(needs: RequestNeeds, states: Sequence[ReplicaState], excluded: Sequence[tuple[str, str]]) -> NoReplica:
    """The error for a request that no replica takes."""
    if needs.model is not None and states and all(s.models is not None and needs.model not in s.models for s in states):
        return NoReplica(f"no replica has the model {needs.model!r}", model_unknown=True)
    detail = ", ".join(f"{name}: {why}" for name, why in excluded)
    return NoReplica(
        f"no replica can take the request ({detail or 'the fleet is empty'})",
        at_capacity=any(why == AT_CAP for _, why in excluded),
    )
