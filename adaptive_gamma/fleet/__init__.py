"""The replicas as they live: scraped, probed, counted."""

from adaptive_gamma.fleet.control import GammaControl
from adaptive_gamma.fleet.cost_check import CostCheck, CostFinding
from adaptive_gamma.fleet.fleet import AcceptanceSink, Fleet
from adaptive_gamma.fleet.gamma import GammaMismatch
from adaptive_gamma.fleet.gamma_control import AnswerWatch, GammaField, ReplicaControl
from adaptive_gamma.fleet.health import HealthMonitor
from adaptive_gamma.fleet.learning import FleetLearning
from adaptive_gamma.fleet.open_requests import OpenRequest
from adaptive_gamma.fleet.options import FleetOptions
from adaptive_gamma.fleet.replica import AcceptancePrior, FleetReplica
from adaptive_gamma.fleet.window import AcceptanceWindow, DraftCounts, PositionRate, WindowUpdate

__all__ = [
    "AcceptancePrior",
    "AcceptanceSink",
    "AcceptanceWindow",
    "AnswerWatch",
    "CostCheck",
    "CostFinding",
    "DraftCounts",
    "Fleet",
    "FleetLearning",
    "FleetOptions",
    "FleetReplica",
    "GammaControl",
    "GammaField",
    "GammaMismatch",
    "HealthMonitor",
    "OpenRequest",
    "PositionRate",
    "ReplicaControl",
    "WindowUpdate",
]
