"""The controller's own admin port: probes, metrics, and what it has written."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from adaptive_gamma._version import __version__
from adaptive_gamma.envoy.admin_port import AdminPort
from adaptive_gamma.envoy.files.controller import FilesController
from adaptive_gamma.fleet.exposition import Family, pieces
from adaptive_gamma.fleet.metric_families import fleet_families

__all__ = ["ControllerAdmin", "controller_app"]

_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


def controller_app(controller: FilesController) -> FastAPI:
    """The application of the admin port."""
    app = FastAPI(title="adaptive-gamma envoy", version=__version__, redoc_url=None)

    @app.get("/livez", response_class=PlainTextResponse, summary="The process runs")
    async def livez() -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    @app.get("/readyz", response_class=PlainTextResponse, summary="Requests may come to Envoy")
    async def readyz() -> PlainTextResponse:
        why = controller.not_ready_because
        if why is None:
            return PlainTextResponse("ready\n")
        return PlainTextResponse(f"not ready: {why}\n", status_code=503)

    @app.get("/metrics", response_class=PlainTextResponse, summary="Prometheus exposition")
    async def metrics() -> Response:
        return Response("".join(pieces(_families(controller))), headers={"content-type": _EXPOSITION})

    @app.get("/status", response_class=JSONResponse, summary="The replicas, and how requests are shared out")
    async def status() -> JSONResponse:
        return JSONResponse(
            {
                "version": __version__,
                "mode": controller.settings.mode,
                "draining": controller.draining,
                "policy": {"source": controller.settings.policy, "name": controller.policy.name},
                "envoy": {"admin": controller.place.envoy_admin, "answers": controller.envoy_seen},
                "clusters": controller.status(),
                "replicas": controller.fleet.status(),
            }
        )

    return app


def _families(controller: FilesController) -> Iterator[Family]:
    yield from fleet_families(controller.fleet, time.monotonic(), None)
    yield Family(
        "adaptive_gamma_envoy_weight",
        "gauge",
        "Weight of a replica for requests of a cluster, as written last; those without any are spare.",
        ("cluster", "replica"),
        [
            ("", (cluster.name, share.replica), share.weight)
            for cluster, shares in zip(
                controller.plan.clusters if controller.plan else (), controller.shares, strict=True
            )
            for share in shares.first
        ],
    )
    yield Family(
        "adaptive_gamma_envoy_writes",
        "counter",
        "Files written for Envoy because their content had changed, by kind.",
        ("file",),
        [("_total", (kind,), count) for kind, count in sorted(controller.writes.items())],
    )
    yield Family(
        "adaptive_gamma_envoy_admin_failures",
        "counter",
        "Looks at Envoy's admin port that gave nothing.",
        (),
        [("_total", (), controller.admin_failures)],
    )
    yield Family(
        "adaptive_gamma_config_reload_failures",
        "counter",
        "Reloads that were refused; the configuration stayed as it was.",
        (),
        [("_total", (), controller.reload_failures)],
    )
    yield Family(
        "adaptive_gamma_envoy_up",
        "gauge",
        "1 while Envoy's admin port answers, else 0.",
        (),
        [("", (), float(controller.envoy_seen))],
    )


class ControllerAdmin(AdminPort):
    """The admin port, from ``start`` to ``stop``.

    Args:
        controller: what it tells of.
        address: ``host:port``; port 0 takes a free one.
    """

    def __init__(self, controller: FilesController, address: str) -> None:
        super().__init__(controller_app(controller), address)
