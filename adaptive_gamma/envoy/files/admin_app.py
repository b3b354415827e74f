"""The controller's own admin port: probes, metrics, and what it has written."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from adaptive_gamma._version import __version__
from adaptive_gamma.envoy.files.controller import FilesController
from adaptive_gamma.errors import ConfigurationError
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


class ControllerAdmin:
    """The admin port, from ``start`` to ``stop``.

    Args:
        controller: what it tells of.
        address: ``host:port``; port 0 takes a free one.
    """

    def __init__(self, controller: FilesController, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._config = uvicorn.Config(
            controller_app(controller), host=host.strip("[]"), port=int(port), http="h11", loop="none", ws="none",
            lifespan="off", log_config=None, access_log=False, server_header=False, proxy_headers=False,
        )  # fmt: skip
        self._address = address
        self._server = uvicorn.Server(self._config)
        self._task: asyncio.Task[None] | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen. Raises ConfigurationError when the address cannot be bound."""
        try:
            bound = self._config.bind_socket()
        except SystemExit:  # uvicorn's word for it
            raise ConfigurationError("settings", "admin", f"cannot listen on {self._address}") from None
        host, port = bound.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._config.load()
        self._server.lifespan = self._config.lifespan_class(self._config)
        await self._server.startup(sockets=[bound])

    async def stop(self) -> None:
        """Close the port and its connections."""
        self._server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await self._server.shutdown()
