"""Endpoints behind a name: lifetimes, both families, SRV, and name servers that do not help."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adaptive_gamma.config import DiscoverySettings
from adaptive_gamma.discovery import Discovery
from adaptive_gamma.errors import ConfigurationError
from tests.discovery.fake_dns import FakeDns, fake_dns
from tests.discovery.held_pace import HeldPace
from tests.support.gated_engine import until

HOST = "engines.example"


class Looking:
    """A discovery that runs, the server it asks, and what it has found."""

    def __init__(self, server: FakeDns, discovery: Discovery, pace: HeldPace) -> None:
        self.server = server
        self.discovery = discovery
        self.pace = pace

    @property
    def urls(self) -> list[str]:
        return [replica.url.removeprefix("http://") for replica in self.discovery.replicas([]).replicas]

    @property
    def row(self) -> dict[str, Any]:
        return self.discovery.status()[0]

    async def looks(self, count: int) -> float:
        """Wait until so many looks have ended; the seconds to the next."""
        await until(lambda: len(self.pace.sleeps) >= count, f"{count} looks, not {self.pace.sleeps}")
        assert len(self.pace.sleeps) == count
        return self.pace.sleeps[-1]

    async def next(self) -> float:
        """Let the time to the next look pass; the seconds to the one after."""
        count = len(self.pace.sleeps)
        self.pace.advance(self.pace.sleeps[-1])
        return await self.looks(count + 1)


@asynccontextmanager
async def _looking(server: FakeDns, *, dns: dict[str, Any] | None = None, **service: Any) -> AsyncIterator[Looking]:
    settings = {
        "kind": "dns",
        "services": [{"name": "spec", "host": HOST, "port": 8000, **service}],
        "dns": {"servers": [server.address], "timeout_s": 0.2, **(dns or {})},
    }
    pace = HeldPace()
    discovery = Discovery(DiscoverySettings.model_validate(settings), pace=pace)
    await discovery.start()
    try:
        yield Looking(server, discovery, pace)
    finally:
        await discovery.stop()


async def test_a_name_is_looked_up_again_when_its_records_have_run_out() -> None:
    async with fake_dns() as server:
        server.set(HOST, "A", "10.0.0.2", "10.0.0.1", ttl=40)
        async with _looking(server) as looking:
            assert await looking.looks(1) == 40
            assert looking.urls == ["10.0.0.1:8000", "10.0.0.2:8000"]
            assert [replica.name for replica in looking.discovery.replicas([]).replicas] == [
                "spec-10.0.0.1", "spec-10.0.0.2",
            ]  # fmt: skip
            looking.pace.advance(39)
            server.set(HOST, "A", "10.0.0.3", ttl=17)
            assert looking.urls == ["10.0.0.1:8000", "10.0.0.2:8000"]
            looking.pace.advance(1)
            assert await looking.looks(2) == 17
            assert looking.urls == ["10.0.0.3:8000"]
            assert server.count(HOST, "A") == 2


@pytest.mark.parametrize(("ttl", "wait_s"), [(0, 5), (1, 5), (30, 30), (86_400, 300)])
async def test_lifetimes_have_bounds(ttl: int, wait_s: float) -> None:
    async with fake_dns() as server:
        server.set(HOST, "A", "10.0.0.1", ttl=ttl)
        async with _looking(server) as looking:
            assert await looking.looks(1) == wait_s


async def test_an_alias_that_lives_shorter_counts() -> None:
    async with fake_dns() as server:
        server.set(HOST, "CNAME", "real.example", ttl=9)
        server.set("real.example", "A", "10.0.0.1", ttl=90)
        async with _looking(server) as looking:
            assert await looking.looks(1) == 9
            assert looking.urls == ["10.0.0.1:8000"]


@pytest.mark.parametrize(
    ("family", "urls", "asked"),
    [
        ("any", ["10.0.0.1:8000"], {"A", "AAAA"}),
        ("ipv4", ["10.0.0.1:8000"], {"A"}),
        ("ipv6", ["[fd00::1]:8000"], {"AAAA"}),
        ("both", ["10.0.0.1:8000", "[fd00::1]:8000"], {"A", "AAAA"}),
    ],
)
async def test_families(family: str, urls: list[str], asked: set[str]) -> None:
    async with fake_dns() as server:
        server.set(HOST, "A", "10.0.0.1", ttl=60)
        server.set(HOST, "AAAA", "fd00:0::1", ttl=30)
        async with _looking(server, family=family) as looking:
            await looking.looks(1)
            assert (looking.urls, {kind for _, kind in server.asked}) == (urls, asked)
            assert looking.row["error"] is None


async def test_any_takes_ipv6_where_there_is_no_ipv4() -> None:
    async with fake_dns() as server:
        server.set(HOST, "AAAA", "fd00::1")
        async with _looking(server) as looking:
            await looking.looks(1)
            assert (looking.urls, looking.row["error"]) == (["[fd00::1]:8000"], None)
            server.set(HOST, "A", "10.0.0.1")
            await looking.next()
            assert looking.urls == ["10.0.0.1:8000"]
            server.set(HOST, "A")
            await looking.next()
            assert looking.urls == ["[fd00::1]:8000"]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("NXDOMAIN", "nxdomain"),
        ("NOERROR", "no_data"),
        ("SERVFAIL", "refused"),
        ("REFUSED", "refused"),
        ("silent", "timeout"),
    ],
)
async def test_a_server_that_does_not_help_leaves_the_last_answer(fault: str, reason: str) -> None:
    async with fake_dns() as server:
        server.set(HOST, "A", "10.0.0.1")
        server.set(HOST, "AAAA", "fd00::1")
        async with _looking(server) as looking:
            await looking.looks(1)
            server.faults = {(HOST, "A"): fault, (HOST, "AAAA"): fault}
            assert [await looking.next() for _ in range(3)] == [0.5, 1.0, 2.0]
            assert looking.urls == ["10.0.0.1:8000"]
            assert (looking.row["error_reason"], looking.row["failures"]) == (reason, {reason: 3})
            assert (looking.row["age_s"], looking.row["error_age_s"]) == (61.5, 1.5)
            server.faults.clear()
            assert await looking.next() == 60
            assert (looking.row["error"], looking.row["age_s"]) == (None, 0)


async def test_garbage_is_no_answer() -> None:
    async with fake_dns() as server:
        server.faults = {(HOST, "A"): "garbage", (HOST, "AAAA"): "garbage"}
        async with _looking(server) as looking:
            await looking.looks(1)
            assert looking.row["error_reason"] in ("refused", "timeout")
            assert (looking.urls, looking.row["age_s"]) == ([], None)


async def test_one_family_that_fails_leaves_its_last_answer_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_dns() as server:
        server.set(HOST, "A", "10.0.0.1")
        server.set(HOST, "AAAA", "fd00::1")
        async with _looking(server, family="both") as looking:
            await looking.looks(1)
            server.set(HOST, "A", "10.0.0.2")
            server.faults = {(HOST, "AAAA"): "silent"}
            assert await looking.next() == 5
            assert looking.urls == ["10.0.0.2:8000", "[fd00::1]:8000"]
            assert (looking.row["error_reason"], looking.row["age_s"]) == ("timeout", 0)
            await looking.next()
    assert len([record for record in caplog.records if "AAAA" in record.getMessage()]) == 1, "said once"


async def test_srv_names_hosts_and_ports() -> None:
    async with fake_dns() as server:
        server.set(HOST, "SRV", "0 5 8001 a.example.", "0 5 8002 a.example.", "0 1 9000 b.example.", ttl=50)
        server.set("a.example", "A", "10.0.0.1", ttl=20)
        server.set("b.example", "AAAA", "fd00::2", ttl=30)
        async with _looking(server, record="srv", port=None) as looking:
            assert await looking.looks(1) == 20
            assert looking.urls == ["10.0.0.1:8001", "10.0.0.1:8002", "[fd00::2]:9000"]
            assert [replica.name for replica in looking.discovery.replicas([]).replicas] == [
                "spec-10.0.0.1-8001", "spec-10.0.0.1-8002", "spec-fd00--2-9000",
            ]  # fmt: skip
            server.set(HOST, "SRV", "0 5 8001 a.example.", ttl=50)
            await looking.next()
            assert looking.urls == ["10.0.0.1:8001"]


async def test_the_most_urgent_of_srv_are_taken() -> None:
    async with fake_dns() as server:
        server.set(HOST, "SRV", "10 5 8001 a.example.", "20 5 8002 b.example.")
        server.set("a.example", "A", "10.0.0.1")
        server.set("b.example", "A", "10.0.0.2")
        async with _looking(server, record="srv", port=None) as looking:
            await looking.looks(1)
            assert looking.urls == ["10.0.0.1:8001"]
            assert server.count("b.example", "A") == 0


async def test_a_target_without_an_address_leaves_the_others() -> None:
    async with fake_dns() as server:
        server.set(HOST, "SRV", "0 5 8001 a.example.", "0 5 8001 b.example.")
        server.set("a.example", "A", "10.0.0.1")
        async with _looking(server, record="srv", port=None) as looking:
            assert await looking.looks(1) == 5
            assert (looking.urls, looking.row["error_reason"]) == (["10.0.0.1:8001"], "nxdomain")
            assert looking.row["left_out"] == ["b.example.: no address is known"]
            server.set("b.example", "A", "10.0.0.2")
            await looking.next()
            assert (looking.urls, looking.row["error"]) == (["10.0.0.1:8001", "10.0.0.2:8001"], None)
            server.faults = {("b.example", "A"): "SERVFAIL", ("b.example", "AAAA"): "SERVFAIL"}
            await looking.next()
            assert looking.urls == ["10.0.0.1:8001", "10.0.0.2:8001"]


async def test_srv_that_says_there_is_no_service_leaves_the_last_answer() -> None:
    async with fake_dns() as server:
        server.set(HOST, "SRV", "0 5 8001 a.example.")
        server.set("a.example", "A", "10.0.0.1")
        async with _looking(server, record="srv", port=None) as looking:
            await looking.looks(1)
            server.set(HOST, "SRV", "0 0 0 .")
            await looking.next()
            assert (looking.urls, looking.row["error_reason"]) == (["10.0.0.1:8001"], "no_data")


async def test_two_services_of_one_name_ask_once() -> None:
    async with fake_dns() as server:
        server.set(HOST, "A", "10.0.0.1")
        settings = DiscoverySettings.model_validate(
            {
                "kind": "dns",
                "services": [{"name": n, "host": HOST, "port": p} for n, p in (("a", 1), ("b", 2))],
                "dns": {"servers": [server.address]},
            }
        )
        discovery = Discovery(settings, pace=HeldPace())
        await discovery.start(5)
        try:
            assert [r.url for r in discovery.replicas([]).replicas] == ["http://10.0.0.1:1", "http://10.0.0.1:2"]
            assert server.count(HOST, "A") == 1
        finally:
            await discovery.stop()


def test_without_the_library_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "adaptive_gamma.discovery.dns_lookup", raising=False)
    monkeypatch.setitem(sys.modules, "dns.asyncresolver", None)
    settings = DiscoverySettings.model_validate(
        {"kind": "dns", "services": [{"name": "spec", "host": HOST, "port": 8000}]}
    )
    with pytest.raises(ConfigurationError, match=r"serve.yaml: discovery.kind: .*install adaptive-gamma\[dns\]"):
        Discovery(settings, origin=lambda key: "serve.yaml")
