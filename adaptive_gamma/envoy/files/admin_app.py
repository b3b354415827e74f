"""The controller's own admin port: probes, metrics, and what it has written."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from adaptive_gamma._version import __version__
from adaptive_gamma.admin import base_app, paged
from adaptive_gamma.envoy.files.controller import FilesController
from adaptive_gamma.fleet.discovered import discovery_families
from adaptive_gamma.fleet.exposition import Family
from adaptive_gamma.fleet.metric_families import fleet_families

__all__ = ["controller_app", "controller_families"]


def controller_app(controller: FilesController) -> FastAPI:
    """The application of the admin port."""
    app = base_app(
        "adaptive-gamma envoy",
        ready_means="Requests may come to Envoy",
        not_ready_because=lambda: controller.not_ready_because,
        families=lambda: controller_families(controller),
    )

    @app.get("/status", response_class=JSONResponse, summary="The replicas, and how requests are shared out")
    async def status() -> Response:
        page = {
            "version": __version__,
            "mode": controller.settings.mode,
            "draining": controller.draining,
            "policy": {"source": controller.settings.policy, "name": controller.policy.name},
            "envoy": {"admin": controller.place.envoy_admin, "answers": controller.envoy_seen},
            "clusters": controller.status(),
            "discovery": controller.discovery(),
        }
        return await paged(page, "replicas", controller.fleet.rows())

    return app


def controller_families(controller: FilesController) -> Iterator[Family]:
    """What the metrics page has."""
    yield from fleet_families(controller.fleet, time.monotonic(), None)
    yield from discovery_families(controller.discovery())
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
