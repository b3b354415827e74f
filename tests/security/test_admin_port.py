"""The admin port against a hostile neighbour: names that are not its own, too many and too slow connections."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.admin import guard
from adaptive_gamma.admin.guard import is_own_host
from tests.support.gated_engine import GatedEngine, until
from tests.support.raw_client import Answer, RawClient
from tests.support.running_proxy import running_proxy

PAGES = ("/livez", "/readyz", "/metrics", "/status", "/decisions", "/observations", "/policy", "/openapi.json")


async def ask(port: int, path: str, host: str) -> Answer:
    async with RawClient(port) as client:
        return await client.ask(f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode("latin-1"), "GET")


async def test_a_page_that_rebinds_its_name_reads_nothing() -> None:
    """The browser sends the name that the page came from, whatever address it stands for now."""
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        for path in PAGES:
            answer = await ask(proxy.server.admin.port, path, "rebind.example.com:9090")
            assert (answer.status, answer.error_code) == (421, "unknown_host"), path


async def test_a_name_in_admin_hosts_is_answered() -> None:
    async with GatedEngine() as engine, running_proxy([engine], admin_hosts=["Gamma.example.com"]) as proxy:
        assert (await ask(proxy.server.admin.port, "/livez", "gamma.EXAMPLE.com:443")).status == 200
        assert (await ask(proxy.server.admin.port, "/livez", "other.example.com")).status == 421


async def test_a_request_without_a_host_is_no_browsers() -> None:
    async with (
        GatedEngine() as engine,
        running_proxy([engine]) as proxy,
        RawClient(proxy.server.admin.port) as client,
    ):
        client.send(b"GET /livez HTTP/1.0\r\n\r\n")
        assert (await client.head()).status == 200


OWN = [
    "127.0.0.1",
    "127.0.0.1:9090",
    "10.1.2.3:9090",
    "[::1]:9090",
    "[fd00::10]",
    "localhost",
    "localhost.",
    "LocalHost:80",
    "proxy",
    "proxy:9090",
    "adaptive-gamma.monitoring.svc",
    "adaptive-gamma.monitoring.svc.cluster.local:9090",
    "a.internal",
    "x.localhost",
]
OTHERS = [
    "example.com",
    "127.0.0.1.example.com",
    "localhost.example.com",
    "svc.example.com",
    "a.svc.example.com",
    "127.1",
    "0x7f.1",
    "",
    " ",
    "a b",
    "a@127.0.0.1",
    "127.0.0.1:9090@example.com",
    "example.com#.svc",
    "example.com/.svc",
    "[::1].example.com",
    "[example.com]",
    "::1",
    "127.0.0.1:99999999",
    "localhost:",
    "a.svc\x00",
    "x.xn--svc",
    "\xe9xample",
]


@pytest.mark.parametrize("host", OWN)
def test_own_names(host: str) -> None:
    assert is_own_host(host)


@pytest.mark.parametrize("host", OTHERS)
def test_other_names(host: str) -> None:
    assert not is_own_host(host)


@given(st.text(max_size=40))
def test_any_host_is_judged(host: str) -> None:
    if is_own_host(host):
        assert host.isascii()


async def test_no_page_of_the_admin_port_runs_or_names_anything_of_another_host() -> None:
    """FastAPI's own page of documentation would load scripts from elsewhere into this origin."""
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
            assert (await ask(proxy.server.admin.port, path, "localhost")).status == 404
        answer = await ask(proxy.server.admin.port, "/decisions", "localhost")
        assert answer.one("x-content-type-options") == "nosniff"
        assert answer.one("cross-origin-resource-policy") == "same-origin"
        assert answer.one("access-control-allow-origin") is None


async def test_connections_beyond_the_most_end_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds many does not keep a probe out."""
    monkeypatch.setattr(guard, "MOST_CONNECTIONS", 5)
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        port = proxy.server.admin.port
        held = [await RawClient(port).__aenter__() for _ in range(12)]
        try:
            await until(lambda: len(proxy.server.admin.connections) == 5, "the oldest are gone")
            assert (await ask(port, "/livez", "localhost")).status == 200
            assert await held[0].closed() == b""
            assert (await held[-1].ask(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n", "GET")).status == 200
        finally:
            for client in held:
                client.drop()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HTTP/1.1\r\nhost: a\r\n", b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\nGET"]
)
async def test_a_head_that_does_not_come_ends_the_connection(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """A byte now and then does not put it off."""
    monkeypatch.setattr(guard, "HEAD_S", 0.3)
    async with (
        GatedEngine() as engine,
        running_proxy([engine]) as proxy,
        RawClient(proxy.server.admin.port) as client,
    ):
        client.send(sent)

        async def drip() -> None:
            while sent:
                await asyncio.sleep(0.05)
                client.send(b"x")

        dripping = asyncio.create_task(drip())
        try:
            rest = await client.closed()
        finally:
            dripping.cancel()
        assert rest.count(b"HTTP/1.1 200") == sent.count(b"\r\n\r\n")
        await until(lambda: not proxy.server.admin.connections, "gone here too")


async def test_pages_stay_json_whatever_clients_call_their_models(caplog: pytest.LogCaptureFixture) -> None:
    """Control characters, half of a pair, another direction of writing, a megabyte: said in short, and as JSON."""
    caplog.set_level(logging.INFO)
    names = ["a\nb\x1b[31m\x00", "\ud800", "\u202e\u2028</script>", "m" * 1_000_000]
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        for name in names:
            body = json.dumps({"model": name, "prompt": "x", "user": name}).encode()
            async with proxy.client() as client:
                client.send(
                    b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body
                )
                assert (await client.answer()).status == 200
        page = await ask(proxy.server.admin.port, "/decisions", "localhost")
        rows = json.loads(page.body)["decisions"]
        assert [len(row["model"]) <= 256 for row in rows] == [True] * len(names)
        assert b"\x1b" not in page.body
        assert b"\n" not in page.body
        metrics = (await ask(proxy.server.admin.port, "/metrics", "localhost")).body
        assert b"\x1b" not in metrics
        assert not any("\n" in record.getMessage() or "\x1b" in record.getMessage() for record in caplog.records)
