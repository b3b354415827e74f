"""The admin port: probes, metrics, state, the last decisions, the policy. Loopback by default; it has no login."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import FastAPI, Query, Response
from fastapi.responses import JSONResponse

from adaptive_gamma._version import __version__
from adaptive_gamma.admin import base_app, paged
from adaptive_gamma.fleet.learned_page import learned_page
from adaptive_gamma.page import Connections, Feed
from adaptive_gamma.proxy.data_plane import DataPlane
from adaptive_gamma.proxy.live_page import add_live_page
from adaptive_gamma.proxy.live_state import LiveState

__all__ = ["admin_app", "live_feed"]

_LINES_IN_ONE_GO = 1000


def admin_app(plane: DataPlane, feed: Feed | None = None, connections: Connections | None = None) -> FastAPI:
    """The application of the admin port.

    Args:
        plane: what it tells of.
        feed: what the live page is told; None makes one. Whoever stops the process closes it.
        connections: those of the port, where it is one of ours: pages that read nothing are cut.
    """
    app = base_app(
        "adaptive-gamma",
        ready_means="Requests may come",
        not_ready_because=lambda: plane.not_ready_because,
        families=plane.metrics.families,
    )

    @app.get("/status", response_class=JSONResponse, summary="The replicas as they are known now")
    async def status() -> Response:
        page = {
            "version": __version__,
            "mode": plane.chooser.mode,
            "draining": plane.draining,
            "policy": _policy_summary(plane),
            "observations": plane.observations.status(),
            "telling": plane.telling.status(),
            "discovery": plane.discovery(),
        }
        return await paged(page, "replicas", plane.fleet.rows())

    @app.get("/decisions", response_class=JSONResponse, summary="The last decisions, newest first")
    async def decisions(limit: Annotated[int, Query(ge=1, le=100_000)] = 50) -> Response:
        return await paged({}, "decisions", plane.decisions.rows(limit))

    @app.get("/observations", response_class=Response, summary="What was observed, one JSON object a line")
    async def observations(since: Annotated[float, Query(ge=0)] = 0.0) -> Response:
        lines = []
        for line in plane.observations.lines(since):
            lines.append(line)
            if not len(lines) % _LINES_IN_ONE_GO:
                await asyncio.sleep(0)
        return Response(b"".join(line + b"\n" for line in lines), media_type="application/x-ndjson")

    @app.get("/policy", response_class=JSONResponse, summary="The policy in force")
    async def policy() -> JSONResponse:
        return JSONResponse(_policy_page(plane))

    add_live_page(app, live_feed(plane) if feed is None else feed, connections)
    return app


def live_feed(plane: DataPlane) -> Feed:
    """What the live page of a plane is told."""
    return Feed(LiveState(plane).sections)


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
    page["learned"] = learned_page(plane.learning)
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
