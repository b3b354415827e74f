"""The replicas as they live: scraped, probed, counted."""

from adaptive_gamma.fleet.fleet import AcceptanceSink, Fleet
from adaptive_gamma.fleet.gamma import GammaMismatch
from adaptive_gamma.fleet.health import HealthMonitor
from adaptive_gamma.fleet.open_requests import OpenRequest
from adaptive_gamma.fleet.options import FleetOptions
from adaptive_gamma.fleet.replica import AcceptancePrior, FleetReplica
from adaptive_gamma.fleet.window import AcceptanceWindow, DraftCounts, PositionRate, WindowUpdate

__all__ = [
    "AcceptancePrior",
    "AcceptanceSink",
    "AcceptanceWindow",
    "DraftCounts",
    "Fleet",
    "FleetOptions",
    "FleetReplica",
    "GammaMismatch",
    "HealthMonitor",
    "OpenRequest",
    "PositionRate",
    "WindowUpdate",
]
