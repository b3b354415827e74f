"""``/ui`` of the admin port: the live page, its files and its event stream."""

from __future__ import annotations

from fastapi import FastAPI, Header, Response
from fastapi.responses import PlainTextResponse, RedirectResponse

from adaptive_gamma.page import PAGE_HEADERS, Asset, Connections, EventStream, Feed, asset, live_page

__all__ = ["add_live_page"]

_OTHER_SITES = ("cross-site", "same-site")


def add_live_page(app: FastAPI, feed: Feed, connections: Connections | None) -> None:
    """Add the page to an application.

    Args:
        app: the application of the admin port.
        feed: what the page is told.
        connections: those of that port; None where it is none of ours.
    """

    @app.get("/", response_class=Response, status_code=307, summary="To the live page", tags=["page"])
    async def root() -> Response:
        return RedirectResponse("ui", status_code=307)

    @app.get("/ui", response_class=Response, summary="The live page", tags=["page"])
    async def ui(if_none_match: str | None = Header(None)) -> Response:
        return _sent(live_page(), if_none_match)

    @app.get("/ui/", response_class=Response, include_in_schema=False)
    async def ui_folder() -> Response:
        return RedirectResponse("../ui", status_code=308)

    @app.get(
        "/ui/events",
        response_class=Response,
        responses={
            200: {"content": {"text/event-stream": {}}},
            403: {"description": "Asked by a page of another site"},
        },
        summary="What the page is told, as server-sent events",
        tags=["page"],
    )
    async def events(sec_fetch_site: str | None = Header(None)) -> Response:
        if sec_fetch_site in _OTHER_SITES:  # a page of somebody else could else take up all places for listeners
            return PlainTextResponse("for pages of this port only\n", 403)
        return EventStream(feed, connections=connections)

    @app.get("/ui/{name}", response_class=Response, include_in_schema=False)
    async def file(name: str, if_none_match: str | None = Header(None)) -> Response:
        try:
            found = asset(name)
        except KeyError:
            return PlainTextResponse("no such file\n", 404)
        return _sent(found, if_none_match)


def _sent(found: Asset, if_none_match: str | None) -> Response:
    headers = {**PAGE_HEADERS, "ETag": found.tag}
    if if_none_match is not None and found.tag in if_none_match:
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers={**headers, "Content-Type": found.media_type})
