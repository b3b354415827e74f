"""The live page on the admin port: its files, what its stream tells, and that it never stands in anybody's way."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adaptive_gamma.page import PAGE_HEADERS, EventStream
from adaptive_gamma.page.feed import Feed
from adaptive_gamma.proxy.live_state import DECISIONS_SHOWN, LiveState
from tests.support.gated_engine import DEADLINE_S, EngineExchange, GatedEngine, until
from tests.support.raw_client import RawClient, post
from tests.support.running_proxy import RunningProxy, running_proxy

REQUEST = b"GET /ui/events HTTP/1.1\r\nhost: a\r\n%b\r\n"


class EventReader:
    """Reads an event stream as a page does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.head = b""
        self._text = b""
        self.sections: dict[str, Any] = {}

    async def begin(self, more: bytes = b"") -> None:
        self.writer.write(REQUEST % more)
        self.head = await self.reader.readuntil(b"\r\n\r\n")

    async def next(self) -> str:
        """The name of the next event; its data is then in ``sections``."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                block, end, rest = self._text.partition(b"\n\n")
                if not end:
                    size = int((await self.reader.readuntil(b"\r\n")).strip(), 16)
                    self._text += (await self.reader.readexactly(size + 2))[:-2]
                    if not size:
                        return ""
                    continue
                self._text = rest
                lines = dict(line.split(b": ", 1) for line in block.split(b"\n"))
                if b"event" in lines:
                    assert set(lines) == {b"event", b"data"}
                    name = lines[b"event"].decode()
                    self.sections[name] = json.loads(lines[b"data"])
                    return name
                assert lines == {b"retry": b"2000"}

    async def state(self) -> dict[str, Any]:
        """The next whole tick."""
        while await self.next() != "state":
            continue
        state: dict[str, Any] = self.sections["state"]
        return state


@asynccontextmanager
async def page_of(proxy: RunningProxy) -> AsyncIterator[EventReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.server.admin.port)
    page = EventReader(reader, writer)
    try:
        await page.begin()
        yield page
    finally:
        writer.close()


def feed_of(proxy: RunningProxy) -> Feed:
    return proxy.server.feed


# -- the files ---------------------------------------------------------------------------------------------------------


async def test_the_page_and_its_files() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        answer = await proxy.admin("/ui")
        assert (answer.status, answer.one("content-type")) == (200, "text/html; charset=utf-8")
        for name, value in PAGE_HEADERS.items():
            assert answer.one(name.lower()) == value
        script = await proxy.admin("/ui/live.js")
        assert (script.status, script.one("content-type")) == (200, "text/javascript; charset=utf-8")
        assert script.one("content-security-policy") == PAGE_HEADERS["Content-Security-Policy"]
        for path in ("/ui/live.html", "/ui/..%2fassets.py", "/ui/none.js", "/ui/%2e%2e/status"):
            assert (await proxy.admin(path)).status == 404
        moved = await proxy.admin("/ui/")
        assert (moved.status, moved.one("location")) == (308, "../ui")


async def test_the_root_leads_to_the_page() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        moved = await proxy.admin("/")
        assert (moved.status, moved.one("location")) == (307, "ui")


async def test_a_file_that_has_not_changed_is_not_sent_again() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        tag = (await proxy.admin("/ui/page.css")).one("etag")
        async with RawClient(proxy.server.admin.port) as client:
            request = f"GET /ui/page.css HTTP/1.1\r\nhost: a\r\nif-none-match: {tag}\r\n\r\n"
            answer = await client.ask(request.encode(), "GET")
        assert (answer.status, answer.body) == (304, b"")


# -- the stream --------------------------------------------------------------------------------------------------------


async def test_the_first_tick_has_all_sections() -> None:
    async with GatedEngine() as engine, running_proxy([engine, engine], gammas=[4, 0]) as proxy:
        await proxy.plane.fleet.scrape_once()
        async with page_of(proxy) as page:
            assert b"200 OK" in page.head
            assert b"text/event-stream" in page.head
            state = await page.state()
            assert set(page.sections) == {"policy", "curves", "learned", "decisions", "state"}
            assert [row["name"] for row in state["replicas"]] == ["r0", "r1"]
            spec, plain = state["replicas"]
            assert (spec["pool"], spec["gamma"], spec["setting"]) == ("speculative", 4, "4")
            assert (plain["pool"], plain["gamma"], plain["setting"]) == ("plain", 0, "plain")
            assert (spec["running"], spec["batch"], spec["fresh"]) == (0, 0, True)
            assert set(page.sections["curves"]["curves"]) == {"plain", "4"}
            policy = page.sections["policy"]
            assert policy["source"] == proxy.plane.settings.policy
            assert set(policy["map"]) == set(policy["classes"]) == set(spec["tau_s"])
            assert len(policy["contexts"]) == len(policy["map"]["chat"])
            # Nothing has been decoded: what follows from that is unknown and not 0.
            assert state["gains"] is state["observed"] is state["observations"] is spec["step"] is None
            assert spec["acceptance"] is spec["kv_usage"] is None


async def test_what_is_not_read_is_unknown() -> None:
    async with GatedEngine() as engine, running_proxy(["http://127.0.0.1:9", engine], gammas=[4, 0]) as proxy:
        await proxy.plane.fleet.scrape_once()
        async with page_of(proxy) as page:
            lost = (await page.state())["replicas"][0]
            for key in ("running", "waiting", "batch", "kv_usage", "age_s", "tau_s", "acceptance_ratio", "step"):
                assert lost[key] is None, key
            assert (lost["fresh"], lost["error"]) == (False, "connect")


async def test_decisions_and_their_reasons() -> None:
    async with GatedEngine() as engine, running_proxy([engine, engine], gammas=[4, 0]) as proxy:
        async with page_of(proxy) as page:
            await page.state()
            assert page.sections["decisions"] == {"decisions": []}
            for number in range(DECISIONS_SHOWN + 3):
                await proxy.ask(post(headers=(("x-request-id", f"id-{number}"),)))
            while not (await page.state())["decisions"]:
                continue
        rows = page.sections["decisions"]["decisions"]
        assert len(rows) == DECISIONS_SHOWN
        first = rows[0]
        assert first["id"] == f"id-{DECISIONS_SHOWN + 2}"
        assert first["outcome"] == "ok"
        assert {first["sent_to"], first["next"][0]["replica"]} == {"r0", "r1"}
        assert sum(row[3] for row in page.sections["state"]["decisions"]) == DECISIONS_SHOWN + 3
        assert page.sections["state"]["outcomes"] == {"ok": DECISIONS_SHOWN + 3}


async def test_only_observing_says_what_would_have_been() -> None:
    async with GatedEngine() as engine, running_proxy([engine, engine], gammas=[4, 0], mode="observe") as proxy:
        for _ in range(10):
            await proxy.ask(post())
        async with page_of(proxy) as page:
            state = await page.state()
        seen = state["observations"]
        assert state["mode"] == "observe"
        assert seen["requests"] == 10
        assert 0 <= seen["elsewhere"] <= 10
        assert 0 < seen["decided_tpot_s"] <= seen["sent_tpot_s"] * 1.001


async def test_replicas_that_come_and_go() -> None:
    async with GatedEngine() as engine, running_proxy([engine, engine]) as proxy, page_of(proxy) as page:
        assert len((await page.state())["replicas"]) == 2
        settings = proxy.plane.settings.replicas
        schedule = [(1, 4, 3), (5, 9, 1)]
        new = settings[0].model_copy(update={"name": "\u0394 <b>new</b>", "gamma": schedule})
        proxy.plane.take_replicas([settings[1], new])
        while [row["name"] for row in (await page.state())["replicas"]] != ["r1", "\u0394 <b>new</b>"]:
            continue
        assert "1-4:3,5-9:1" in page.sections["curves"]["curves"]
        curve = page.sections["curves"]["curves"]["1-4:3,5-9:1"]
        assert curve["gamma"][:5] == [3, 3, 3, 3, 1]
        proxy.plane.take_replicas([])
        while (await page.state())["replicas"]:
            continue
        assert page.sections["state"]["not_ready_because"] == "no replica has been found"


async def test_the_load_and_what_is_gained() -> None:
    async def script(exchange: EngineExchange) -> None:
        await hold.wait()
        exchange.answer(200, b"{}")

    hold = asyncio.Event()
    async with GatedEngine(script) as engine, running_proxy([engine], gammas=[4]) as proxy:
        await proxy.plane.fleet.scrape_once()
        clients = [asyncio.create_task(proxy.ask(post())) for _ in range(3)]
        await until(lambda: proxy.in_flight == 3, "three are open")
        async with page_of(proxy) as page:
            state = await page.state()
            assert (state["replicas"][0]["batch"], state["replicas"][0]["in_flight"]) == (3, 3)
            gains = state["gains"]
            assert (gains["sequences"], gains["replicas"]) == (3, 1)
            assert gains["in_force"] == pytest.approx(gains["fixed"]["4"], rel=1e-3)
            assert gains["over_plain"] == pytest.approx(gains["in_force"] / gains["plain"] - 1, abs=1e-3)
        hold.set()
        await asyncio.gather(*clients)


# -- who listens -------------------------------------------------------------------------------------------------------


async def test_nothing_is_computed_while_nobody_listens() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        await proxy.admin("/ui")
        await proxy.ask(post())
        assert (feed_of(proxy).ticks, feed_of(proxy).running) == (0, False)
        async with page_of(proxy) as page:
            await page.state()
            assert feed_of(proxy).ticks == 1
        await until(lambda: not feed_of(proxy).running, "the last one has left")


async def test_a_client_that_leaves_frees_its_place_and_one_too_many_is_refused() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        feed = feed_of(proxy)
        pages = []
        for _ in range(16):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.server.admin.port)
            pages.append(EventReader(reader, writer))
            await pages[-1].begin()
        assert feed.listeners == 16
        refused = await proxy.admin("/ui/events")
        assert (refused.status, refused.one("retry-after")) == (503, "10")
        pages[3].writer.transport.abort()
        await until(lambda: feed.listeners == 15, "its place is free")
        async with page_of(proxy) as page:
            await page.state()
        for each in pages:
            await each.state()
        assert feed.ticks <= 5, "one tick for all of them"
        for each in pages:
            each.writer.close()
        await until(lambda: feed.listeners == 0, "all have left")


async def test_pages_of_other_sites_are_refused() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, RawClient(proxy.server.admin.port) as client:
        for site, status in (("cross-site", 403), ("same-site", 403)):
            request = f"GET /ui/events HTTP/1.1\r\nhost: a\r\nsec-fetch-site: {site}\r\n\r\n"
            assert (await client.ask(request.encode(), "GET")).status == status
        assert feed_of(proxy).ticks == 0


async def test_a_slow_reader_holds_up_neither_others_nor_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection takes nothing; what others get, and requests, go on."""
    large = b"x" * 400_000

    numbers = itertools.count()

    async def sections(self: LiveState) -> dict[str, bytes]:
        return {"state": b'event: state\ndata: {"made": %d, "pad": "%b"}\n\n' % (next(numbers), large)}

    monkeypatch.setattr(LiveState, "sections", sections)
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        feed_of(proxy)._interval_s = 0.01
        # A reader with a limit stops taking bytes at twice of that, as nobody reads from it.
        _, stuck = await asyncio.open_connection("127.0.0.1", proxy.server.admin.port, limit=1024)
        stuck.write(REQUEST % b"")
        async with page_of(proxy) as page:
            await until(lambda: feed_of(proxy).listeners == 2, "both listen")
            before = (await page.state())["made"]
            while (await page.state())["made"] < before + 20:
                continue
            assert (await proxy.ask(post())).status == 200
            held = [each.transport.get_write_buffer_size() for each in proxy.server.admin.connections]
            assert 0 < max(held) < 3 * len(large)
        stuck.transport.abort()
        await until(lambda: feed_of(proxy).listeners == 0, "both have left")


async def test_a_reader_that_takes_nothing_gives_its_place_up_after_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system keeps megabytes for a socket; what is sent to a page is held to a few ticks of it."""
    monkeypatch.setattr(EventStream.__init__, "__kwdefaults__", {"connections": None, "stall_s": 0.2})
    sent = 0

    async def sections(self: LiveState) -> dict[str, bytes]:
        nonlocal sent
        sent += 4096
        return {"state": b"event: state\ndata: %b%d\n\n" % (b"x" * 4080, sent)}

    monkeypatch.setattr(LiveState, "sections", sections)
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        feed = feed_of(proxy)
        feed._interval_s = 0.002
        with socket.create_connection(("127.0.0.1", proxy.server.admin.port)) as stuck:
            stuck.sendall(REQUEST % b"")
            await until(lambda: feed.listeners == 1, "it listens")
            sent = 0
            [connection] = proxy.server.admin.connections
            taken = 0

            def full() -> bool:
                nonlocal taken
                taken = sent
                return bool(connection.transport.get_write_buffer_size())

            await until(full, "nothing more goes out")
            assert taken < 600_000, "a hundred ticks of a large fleet, not thousands"
            await until(lambda: feed.listeners == 0, "its place is free")
            await until(lambda: not proxy.server.admin.connections, "and its connection is broken")
        async with page_of(proxy) as page:
            assert b"200 OK" in page.head


# -- the end -----------------------------------------------------------------------------------------------------------


async def test_the_stream_goes_on_through_a_drain_and_ends_with_it() -> None:
    hold = asyncio.Event()

    async def script(exchange: EngineExchange) -> None:
        await hold.wait()
        exchange.answer(200, b"{}")

    async with GatedEngine(script) as engine, running_proxy([engine], drain={"grace_s": 20}) as proxy:
        asked = asyncio.create_task(proxy.ask(post()))
        await engine.arrived()
        async with page_of(proxy) as page:
            assert not (await page.state())["draining"]
            draining = asyncio.create_task(proxy.server.drain())
            while not (await page.state())["draining"]:
                continue
            assert page.sections["state"]["replicas"][0]["in_flight"] == 1
            hold.set()
            while (name := await page.next()) != "end":
                assert name
            async with asyncio.timeout(DEADLINE_S):
                assert await draining == 0
                assert await page.reader.read() in (b"", b"\r\n", b"0\r\n\r\n")
        assert (await asked).status == 200


async def test_an_open_stream_does_not_hold_up_the_end() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        _, stuck = await asyncio.open_connection("127.0.0.1", proxy.server.admin.port)
        stuck.write(REQUEST % b"")
        await until(lambda: feed_of(proxy).listeners == 1, "it listens")
        async with asyncio.timeout(DEADLINE_S):
            await proxy.server.drain()
        assert feed_of(proxy).listeners == 0
        stuck.close()
