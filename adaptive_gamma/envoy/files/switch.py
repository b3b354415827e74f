"""From one plan to the next, while requests come that are routed by the one and land in clusters of the other. Pure.

Routes and clusters are in different files, and a request that has begun goes by the routes it began with. So clusters
are there before routes name them and for a while after the last route did; and a cluster that both plans have under one
name holds, until that is over, only replicas that serve the requests of either.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from adaptive_gamma.envoy.files.plan import ClusterPlan, Plan

__all__ = ["PlanSwitch", "Written", "frame"]

_SETTLE_S = 1.0
"""For so long after routes were written requests may still go by those before: what Envoy takes to read them, and a
body that is being sent."""


@dataclass(frozen=True, slots=True)
class Written:
    """What Envoy is to have now."""

    clusters: tuple[ClusterPlan, ...]
    routes: Plan
    """Of which the default cluster and the look-up are in force."""


class PlanSwitch:
    """Decides what is written of which plan."""

    def __init__(self) -> None:
        self._routed: Plan | None = None
        """The plan that routes go by."""
        self._before: tuple[ClusterPlan, ...] = ()
        """What there was when that began; empty once nothing goes by it any more."""
        self._since = 0.0

    def write(self, wanted: Plan, known: Collection[str] | None, now: float) -> Written:
        """What is to be written.

        Args:
            wanted: the plan to come to.
            known: clusters that Envoy has; None where it does not say, and nothing is waited for.
            now: monotonic seconds.
        """
        routed = self._routed
        if routed is None or known is None:
            self._routed, self._before = wanted, ()
            return Written(wanted.clusters, wanted)
        if frame(wanted) == frame(routed):
            self._routed = wanted
            if now - self._since >= _SETTLE_S:
                self._before = ()
            return Written(_all_of(wanted.clusters, self._before), wanted)
        both = _all_of(wanted.clusters, routed.clusters, self._before)
        if all(cluster.name in known for cluster in wanted.clusters):
            self._routed, self._before, self._since = wanted, both, now
            return Written(both, wanted)
        return Written(both, routed)


def frame(plan: Plan) -> tuple[object, ...]:
    """What of a plan is in the files of clusters and routes: all but who is in a cluster."""
    return plan.default, plan.lookup, tuple(cluster.name for cluster in plan.clusters)


def _all_of(*plans: tuple[ClusterPlan, ...]) -> tuple[ClusterPlan, ...]:
    """The clusters of several plans, the newest plan first; each with the replicas that all plans have in it that have
    it, as far as there are any."""
    newest = plans[0]
    here = frozenset[str]().union(*(cluster.replicas for cluster in newest))
    made = {cluster.name: cluster for cluster in newest}
    for plan in plans[1:]:
        for cluster in plan:
            found = made.setdefault(cluster.name, replace(cluster, replicas=cluster.replicas & here))
            made[cluster.name] = replace(found, replicas=found.replicas & cluster.replicas or found.replicas)
    return tuple(made.values())
