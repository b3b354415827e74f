"""The dry run: a request trace through the proxy's own decision, engine step by engine step.

``read_trace`` or ``synthetic_trace`` give traces, ``merge`` puts them on one clock, ``World`` adds the policy and the
fleet, ``replay`` runs one of ``routing_policies`` in it, and ``policy_figures`` says what came of it.
"""

from adaptive_gamma.simulation.replay.fleet_file import ReplicaPlan, default_fleet, parse_fleet, read_fleet
from adaptive_gamma.simulation.replay.policies import MEANINGS, RoutingPolicy, routing_policies, select
from adaptive_gamma.simulation.replay.pricing import ReplayPolicy, survival_of
from adaptive_gamma.simulation.replay.report import FIGURES, SCHEMA, policy_figures, with_regret
from adaptive_gamma.simulation.replay.run import PolicyRun, World, replay
from adaptive_gamma.simulation.replay.scrape import ScrapeRule
from adaptive_gamma.simulation.replay.synthetic_trace import SHAPES, synthetic_trace, write_trace
from adaptive_gamma.simulation.replay.trace import Trace, read_trace, read_trace_lines
from adaptive_gamma.simulation.replay.workload import AcceptanceDraws, ClassedTrace, Workload, merge

__all__ = [
    "FIGURES",
    "MEANINGS",
    "SCHEMA",
    "SHAPES",
    "AcceptanceDraws",
    "ClassedTrace",
    "PolicyRun",
    "ReplayPolicy",
    "ReplicaPlan",
    "RoutingPolicy",
    "ScrapeRule",
    "Trace",
    "Workload",
    "World",
    "default_fleet",
    "merge",
    "parse_fleet",
    "policy_figures",
    "read_fleet",
    "read_trace",
    "read_trace_lines",
    "replay",
    "routing_policies",
    "select",
    "survival_of",
    "synthetic_trace",
    "with_regret",
    "write_trace",
]
