"""What is taken from clients and engines, and what is not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.gated_engine import GatedEngine
from tests.support.raw_client import post
from tests.support.running_proxy import running_proxy


@pytest.mark.parametrize(
    "codings", [("identity", "gzip"), ("gzip", "identity"), ("", "br"), ("gzip, identity",), ("identity", "identity")]
)
async def test_two_content_encodings_are_no_way_past_the_look(codings: tuple[str, ...]) -> None:
    """The proxy would read the body as it is, and the engine what it unpacks to."""
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        headers = tuple(("content-encoding", coding) for coding in codings)
        answer = await proxy.ask(post(body=b'{"prompt": "x"}', headers=headers))
        assert (answer.status, answer.error_code) == (415, "unsupported_encoding")
        assert not engine.requests


@contextmanager
def _listening(location: str | None) -> Iterator[tuple[str, list[str]]]:
    """A server that sends everybody on to ``location``, or answers; its address and the paths it was asked for."""
    asked: list[str] = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the library's name
            asked.append(self.path)
            self.send_response(200 if location is None else 302)
            if location is not None:
                self.send_header("location", location + self.path)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_an_engine_cannot_send_the_proxy_elsewhere() -> None:
    """Not by a redirect of its pages: the other address, which the key would go to as well, is never asked."""
    with (
        _listening(None) as (other, asked_there),
        _listening(other) as (engine, asked_here),
    ):
        async with running_proxy([engine], engine_api_key="sk-1") as proxy:
            await proxy.plane.fleet.scrape_once()
            await proxy.plane.fleet.check_health_once()
            replica = proxy.plane.fleet.replicas[0]
            assert replica.scrape_error is not None
            assert replica.scrape_error.reason == "status_302"
        assert {"/metrics", "/health"} <= set(asked_here)
        assert asked_there == []


async def test_a_redirect_for_a_client_is_the_clients() -> None:
    """It passes like any other answer."""
    with _listening(None) as (other, asked_there), _listening(other) as (engine, _):
        async with running_proxy([engine], allow_paths=["/go"]) as proxy:
            answer = await proxy.ask(b"GET /go HTTP/1.1\r\nhost: a\r\n\r\n", "GET")
            assert (answer.status, answer.one("location")) == (302, f"{other}/go")
        assert asked_there == []
