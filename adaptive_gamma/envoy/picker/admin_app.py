"""The picker's admin pages: probes, metrics, and what it knows."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from adaptive_gamma._version import __version__
from adaptive_gamma.envoy.picker.picker import Picker
from adaptive_gamma.fleet.exposition import Family, pieces
from adaptive_gamma.fleet.metric_families import fleet_families

__all__ = ["picker_app"]

_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


def picker_app(picker: Picker) -> FastAPI:
    """The application of the admin port."""
    app = FastAPI(title="adaptive-gamma picker", version=__version__, redoc_url=None)

    @app.get("/livez", response_class=PlainTextResponse, summary="The process runs")
    async def livez() -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    @app.get("/readyz", response_class=PlainTextResponse, summary="Gateways may ask here")
    async def readyz() -> PlainTextResponse:
        why = picker.not_ready_because
        if why is None:
            return PlainTextResponse("ready\n")
        return PlainTextResponse(f"not ready: {why}\n", status_code=503)

    @app.get("/metrics", response_class=PlainTextResponse, summary="Prometheus exposition")
    async def metrics() -> Response:
        picker.refresh()
        return Response("".join(pieces(_families(picker))), headers={"content-type": _EXPOSITION})

    @app.get("/status", response_class=JSONResponse, summary="The replicas as they are known")
    async def status() -> JSONResponse:
        picker.refresh()
        return JSONResponse(
            {
                "version": __version__,
                "mode": picker.settings.mode,
                "draining": picker.draining,
                "policy": {"source": picker.settings.policy, "name": picker.policy.name},
                "in_flight_is": "estimated",
                "replicas": picker.fleet.status(),
            }
        )

    return app


def _families(picker: Picker) -> Iterator[Family]:
    yield from fleet_families(picker.fleet, time.monotonic(), None)
    yield Family(
        "adaptive_gamma_decisions",
        "counter",
        "Decisions by class, pool and reason.",
        ("class", "pool", "reason"),
        [("_total", labels, count) for labels, count in picker.decisions.items()],
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
