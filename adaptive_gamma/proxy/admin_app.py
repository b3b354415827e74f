"""The admin port: probes, metrics, state, the last decisions, the policy. Loopback by default; it has no login."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Query, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from adaptive_gamma._version import __version__
from adaptive_gamma.proxy.data_plane import DataPlane

__all__ = ["admin_app"]

_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


def admin_app(plane: DataPlane) -> FastAPI:
    """The application of the admin port."""
    app = FastAPI(title="adaptive-gamma", version=__version__, redoc_url=None)

    @app.get("/livez", response_class=PlainTextResponse, summary="The process runs")
    async def livez() -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    @app.get("/readyz", response_class=PlainTextResponse, summary="Requests may come")
    async def readyz() -> PlainTextResponse:
        why = plane.not_ready_because
        if why is None:
            return PlainTextResponse("ready\n")
        return PlainTextResponse(f"not ready: {why}\n", status_code=503)

    @app.get("/metrics", response_class=PlainTextResponse, summary="Prometheus exposition")
    async def metrics() -> Response:
        return Response(await plane.metrics.page(), headers={"content-type": _EXPOSITION})

    @app.get("/status", response_class=JSONResponse, summary="The replicas as they are known now")
    async def status() -> JSONResponse:
        return JSONResponse(
            {
                "version": __version__,
                "mode": plane.chooser.mode,
                "draining": plane.draining,
                "replicas": plane.fleet.status(),
                "policy": _policy_summary(plane),
            }
        )

    @app.get("/decisions", response_class=JSONResponse, summary="The last decisions, newest first")
    async def decisions(limit: Annotated[int, Query(ge=1, le=100_000)] = 50) -> JSONResponse:
        return JSONResponse({"decisions": plane.decisions.newest(limit)})

    @app.get("/policy", response_class=JSONResponse, summary="The policy in force")
    async def policy() -> JSONResponse:
        return JSONResponse(_policy_page(plane))

    return app


def _policy_summary(plane: DataPlane) -> dict[str, Any]:
    policy = plane.policy
    return {
        "source": plane.settings.policy,
        "name": policy.name,
        "classes": list(policy.classes),
        "default_class": policy.default_class,
        "max_gamma": policy.max_gamma,
        "max_batch": policy.max_batch,
    }


def _policy_page(plane: DataPlane) -> dict[str, Any]:
    """The summary, with the best gamma by class and batch (as ranges) and the batch from which plain wins."""
    page = _policy_summary(plane)
    policy = plane.policy
    page["table"] = {
        name: {
            "best_gamma": _ranges([policy.best_gamma(name, batch) for batch in range(1, policy.max_batch + 1)]),
            "plain_wins_from": policy.plain_wins_from(name),
        }
        for name in policy.classes
    }
    return page


def _ranges(values: list[int]) -> list[list[int]]:
    """[first batch, last batch, gamma] for each run of equal values."""
    ranges: list[list[int]] = []
    for batch, gamma in enumerate(values, start=1):
        if ranges and ranges[-1][2] == gamma:
            ranges[-1][1] = batch
        else:
            ranges.append([batch, batch, gamma])
    return ranges
