"""Which fleet a trace wants: every alternative is a dry run of the whole trace, and the best within the limits wins.

``start_ups`` says how a replica may be started, ``FleetTrials`` replays a fleet made of those, ``search`` picks the
fleets worth a replay, and ``verdicts`` says in words what came of it.
"""

from adaptive_gamma.simulation.plan.search import MOST_TRIALS, Plan, search
from adaptive_gamma.simulation.plan.start_up import StartUp, Traffic, start_ups, traffic_of
from adaptive_gamma.simulation.plan.trial import FleetTrials, ServiceLimits, Shape, Trial
from adaptive_gamma.simulation.plan.words import plan_page, verdicts

__all__ = [
    "MOST_TRIALS",
    "FleetTrials",
    "Plan",
    "ServiceLimits",
    "Shape",
    "StartUp",
    "Traffic",
    "Trial",
    "plan_page",
    "search",
    "start_ups",
    "traffic_of",
    "verdicts",
]
