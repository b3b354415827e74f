"""The admin port: probes, metrics, state, the last decisions, the policy. Loopback by default; it has no login."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from fastapi import FastAPI, Query, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from adaptive_gamma._version import __version__
from adaptive_gamma.fleet.learned_page import learned_page
from adaptive_gamma.page import Feed
from adaptive_gamma.proxy.data_plane import DataPlane
from adaptive_gamma.proxy.live_page import add_live_page
from adaptive_gamma.proxy.live_state import LiveState

__all__ = ["admin_app", "live_feed"]

_LINES_IN_ONE_GO = 1000
_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


def admin_app(
    plane: DataPlane, feed: Feed | None = None, cut: Callable[[object], None] = lambda client: None
) -> FastAPI:
    """The application of the admin port.

    Args:
        plane: what it tells of.
        feed: what the live page is told; None makes one. Whoever stops the process closes it.
        cut: breaks the connection of a page that reads nothing of it.
    """
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
        return await _paged(page, "replicas", plane.fleet.rows())

    @app.get("/decisions", response_class=JSONResponse, summary="The last decisions, newest first")
    async def decisions(limit: Annotated[int, Query(ge=1, le=100_000)] = 50) -> Response:
        return await _paged({}, "decisions", plane.decisions.rows(limit))

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

    add_live_page(app, live_feed(plane) if feed is None else feed, cut)
    return app


def live_feed(plane: DataPlane) -> Feed:
    """What the live page of a plane is told."""
    return Feed(LiveState(plane).sections)


async def _paged(page: dict[str, Any], name: str, rows: Iterable[dict[str, Any]]) -> Response:
    """A JSON object with a list of ``rows``, which are made and written one by one while the event loop goes on: a
    large fleet's page would hold up the requests of this process."""
    written = []
    for row in rows:
        written.append(_json(row))
        await asyncio.sleep(0)
    fields = [b"%b:%b" % (_json(key), _json(value)) for key, value in page.items()]
    body = b"{%b}" % b",".join([*fields, b"%b:[%b]" % (_json(name), b",".join(written))])
    return Response(body, media_type="application/json")


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


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
