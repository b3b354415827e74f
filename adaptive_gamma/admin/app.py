"""Probes and metrics, alike in every process; each adds the pages of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse

from adaptive_gamma._version import __version__
from adaptive_gamma.fleet.exposition import Family, page_of

__all__ = ["base_app", "paged"]

_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"description": "Not yet, or not any more", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


def base_app(
    title: str,
    *,
    ready_means: str,
    not_ready_because: Callable[[], str | None],
    families: Callable[[], Iterable[Family]],
) -> FastAPI:
    """An application with ``/livez``, ``/readyz`` and ``/metrics``.

    Args:
        title: its name in its own documentation.
        ready_means: what ``/readyz`` answers, in words.
        not_ready_because: why not, or None.
        families: the metrics as they are when it is called.
    """
    app = FastAPI(title=title, version=__version__, docs_url=None, redoc_url=None)

    @app.get("/livez", response_class=PlainTextResponse, summary="The process runs")
    async def livez() -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    @app.get("/readyz", response_class=PlainTextResponse, summary=ready_means, responses=_NOT_READY)
    async def readyz() -> PlainTextResponse:
        why = not_ready_because()
        if why is None:
            return PlainTextResponse("ready\n")
        return PlainTextResponse(f"not ready: {why}\n", status_code=503)

    @app.get("/metrics", response_class=PlainTextResponse, summary="Prometheus exposition")
    async def metrics() -> Response:
        return Response(await page_of(families()), headers={"content-type": _EXPOSITION})

    return app


async def paged(page: dict[str, Any], name: str, rows: Iterable[dict[str, Any]]) -> Response:
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
