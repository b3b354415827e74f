"""The picker's admin pages: probes, metrics, and what it knows."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from adaptive_gamma._version import __version__
from adaptive_gamma.admin import base_app, paged
from adaptive_gamma.envoy.picker.picker import Picker
from adaptive_gamma.fleet.discovered import discovery_families
from adaptive_gamma.fleet.exposition import Family
from adaptive_gamma.fleet.metric_families import fleet_families

__all__ = ["picker_app", "picker_families"]


def picker_app(picker: Picker) -> FastAPI:
    """The application of the admin port."""
    app = base_app(
        "adaptive-gamma picker",
        ready_means="Gateways may ask here",
        not_ready_because=lambda: picker.not_ready_because,
        families=lambda: picker_families(picker),
    )

    @app.get("/status", response_class=JSONResponse, summary="The replicas as they are known")
    async def status() -> Response:
        picker.refresh()
        page = {
            "version": __version__,
            "mode": picker.settings.mode,
            "draining": picker.draining,
            "policy": {"source": picker.settings.policy, "name": picker.policy.name},
            "in_flight_is": "estimated",
            "discovery": picker.discovery(),
        }
        return await paged(page, "replicas", picker.fleet.rows())

    return app


def picker_families(picker: Picker) -> Iterator[Family]:
    """What the metrics page has."""
    picker.refresh()
    yield from fleet_families(picker.fleet, time.monotonic(), None)
    yield from discovery_families(picker.discovery())
    yield Family(
        "adaptive_gamma_decisions",
        "counter",
        "Decisions by class, pool and reason.",
        ("class", "pool", "reason"),
        [("_total", labels, count) for labels, count in list(picker.decisions.items())],
    )
    yield Family(
        "adaptive_gamma_picks",
        "counter",
        "Picks told to gateways, and requests answered in their place.",
        ("replica", "outcome"),
        [("_total", labels, count) for labels, count in picker.picks.items()],
    )
    yield Family(
        "adaptive_gamma_picker_open",
        "gauge",
        "Requests for which a pick is being made now.",
        (),
        [("", (), picker.open_streams)],
    )
    yield Family(
        "adaptive_gamma_config_reload_failures",
        "counter",
        "Reloads that were refused; the configuration stayed as it was.",
        (),
        [("_total", (), picker.reload_failures)],
    )
