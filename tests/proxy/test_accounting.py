"""What is counted comes back to exactly 0, whatever happened, and what is kept does not grow with what clients say."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections import Counter
from pathlib import Path

from tests.support.gated_engine import DEADLINE_S, EngineExchange, GatedEngine, until
from tests.support.lean import LeanEngine, hammer
from tests.support.raw_client import RawClient, post
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.served import serve


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


async def _drip(x: EngineExchange, count: int = 1000) -> None:
    x.head()
    for _ in range(count):
        if x.left.is_set():
            return
        x.chunk(b"data: token\n\n")
        await asyncio.sleep(0.002)
    x.end()


async def _misbehave(x: EngineExchange) -> None:
    """What the request asks of the engine."""
    match json.loads(x.request.body)["do"]:
        case "ok":
            x.answer(200, b"{}")
        case "stream":
            await _drip(x, 3)
        case "long":
            await _drip(x)
        case "close behind":
            x.answer(200, b"{}")
            x.close()
        case "die":
            x.die()
        case "die inside":
            x.head()
            x.chunk(b"data: token\n\n")
            x.reset()
        case "truncate":
            x.head(200, [("content-length", "10")])
            x.write(b"{")
            x.close()
        case "rubbish":
            x.write(b"rubbish\r\n\r\n")
        case "silence inside":
            x.head()
            x.chunk(b"data: token\n\n")
        case "silence":
            pass
        case status:
            x.answer(int(status), b"{}", [("retry-after", "1")])


DEEDS = {
    "ok": 200,
    "stream": 200,
    "long": None,
    "close behind": 200,
    "die": 502,
    "die inside": 200,
    "truncate": 200,
    "rubbish": 502,
    "silence inside": 200,
    "silence": 504,
    "400": 400,
    "422": 422,
    "500": 500,
    "429": 429,
    "503": 503,
}
"""What the client is told, None where only its leaving ends it."""
CLIENTS = ["stay", "stay", "before the head", "after the head", "while tokens flow", "half", "inside the body"]


async def _act(proxy: RunningProxy, deed: str, conduct: str, seen: Counter[str]) -> None:
    request = post("/v1/completions", {"prompt": "x", "do": deed})
    async with proxy.client() as client:
        if conduct == "inside the body":
            client.send(request[:-1])
            await asyncio.sleep(0.002)
            client.leave(random.choice(["close", "reset"]))
            return
        client.send(request)
        if conduct == "stay" and DEEDS[deed] is not None:
            answer = await client.answer()
            assert answer.status == DEEDS[deed], (deed, answer)
            seen[f"{deed} {answer.complete}"] += 1
            return
        if conduct == "half":
            client.leave("half")
            await client.everything()
            return
        if conduct != "before the head":
            await client.head()
        if conduct == "while tokens flow":
            await client.reader.read(1)
        await asyncio.sleep(random.random() * 0.01)
        client.leave(random.choice(["close", "reset"]))


async def _watch(proxy: RunningProxy, low: list[float]) -> None:
    while True:
        low.extend((await proxy.metrics()).in_flight)
        low.extend(row["in_flight"] for row in (await proxy.status()).values())
        await asyncio.sleep(0.02)


async def test_a_storm_of_cuts_ends_at_0() -> None:
    rounds = 350
    seen: Counter[str] = Counter()
    low: list[float] = []
    async with GatedEngine() as dead:
        url = dead.url
    limits = {"first_byte_timeout_s": 0.6, "idle_timeout_s": 0.6}
    async with (
        GatedEngine(_misbehave) as one,
        GatedEngine(_misbehave) as two,
        running_proxy([one, two, url], limits=limits) as proxy,
    ):
        watcher = asyncio.create_task(_watch(proxy, low))
        gate = asyncio.Semaphore(40)
        deeds = [(random.choice(list(DEEDS)), random.choice(CLIENTS)) for _ in range(rounds)]

        async def each(deed: str, conduct: str) -> None:
            async with gate:
                await _act(proxy, deed, conduct, seen)

        await asyncio.gather(*(each(deed, conduct) for deed, conduct in deeds))

        await until(lambda: proxy.count() == rounds and proxy.in_flight == 0, "all are counted")
        watcher.cancel()
        page = await proxy.metrics()
        assert page.requests() == rounds
        assert page.in_flight == [0, 0, 0]
        assert {row["in_flight"] for row in (await proxy.status()).values()} == {0}
        assert min(low) == 0
        assert max(low) > 0
        unfinished = [x for x in one.exchanges + two.exchanges if b'"long"' in x.request.body]
        await until(lambda: all(x.left.is_set() for x in unfinished), "the engines' endless streams are let go")
        assert not [row for row in await proxy.decisions() if row["outcome"] is None]
    for deed in ("die inside", "truncate", "silence inside"):
        assert seen[f"{deed} True"] == 0
    for deed in ("ok", "stream", "close behind"):
        assert seen[f"{deed} False"] == 0


async def test_what_a_broken_connect_leaves_open() -> None:
    """Nothing: with and without another replica to go to."""
    async with GatedEngine() as dead:
        url = dead.url
    async with running_proxy([url, url]) as proxy:
        for _ in range(5):
            assert (await proxy.ask(post())).status == 503
        page = await proxy.ended(connect_error=5)
        assert page.in_flight == [0, 0]


async def test_health_flaps_drop_no_count() -> None:
    """Streams that outlive their replica's health are counted all the time, and end at 0."""
    health = {"interval_s": 0.03, "down_after": 3, "up_after": 2}
    async with GatedEngine(_silent) as engine, running_proxy([engine], health=health) as proxy:
        clients = [proxy.client() for _ in range(5)]
        for client in clients:
            await client.__aenter__()
            client.send(post())
        await engine.arrived(5)

        async def seen(healthy: bool) -> None:
            async with asyncio.timeout(DEADLINE_S):
                while (row := (await proxy.status())["r0"])["healthy"] is not healthy:
                    assert row["in_flight"] == 5
                    await asyncio.sleep(0.01)
            page = await proxy.metrics()
            assert (page.in_flight, page.total("replica_healthy")) == ([5], float(healthy))

        for healthy in (False, True, False, True):
            engine.healthy = healthy
            await seen(healthy)
        for left, (client, x) in enumerate(zip(clients, engine.exchanges, strict=True)):
            assert (await proxy.metrics()).in_flight == [5 - left]
            x.answer(200, b"{}")
            assert (await client.answer()).status == 200
            client.drop()
        await proxy.ended(ok=5)


def _distinct(start: int, count: int) -> list[bytes]:
    """Requests that share nothing a table could be keyed by."""
    return [
        post(
            "/v1/chat/completions",
            {
                "model": f"model-{number}",
                "user": f"user-{number}",
                "prompt_cache_key": f"key-{number}",
                "messages": [{"role": "user", "content": f"{number} is the number of this prompt"}],
            },
            (
                ("x-session-id", f"session-{number}"),
                ("x-request-id", f"request-{number}"),
                ("x-adaptive-gamma-class", f"class-{number}"),
                ("authorization", f"Bearer key-{number}"),
                (f"x-field-{number}", "1"),
            ),
        )
        for number in range(start, start + count)
    ]


async def test_ten_thousand_names_and_keys_leave_nothing_behind(tmp_path: Path) -> None:
    """As many models, users, sessions, classes and unknown paths: the page and the process stay as they were."""
    half = 5000
    async with LeanEngine() as engine, serve(tmp_path, [engine.url]) as served:
        await served.ready()
        assert await hammer(served.port, [post("/none"), *_distinct(0, half)], 8) == {200: half, 404: 1}
        before, held = (await served.get("/metrics"))[1], served.resident
        unknown = [post(f"/none/{number}") for number in range(500)]
        assert await hammer(served.port, [*unknown, *_distinct(half, half)], 8) == {200: half, 404: 500}
        grown, after = served.resident - held, (await served.get("/metrics"))[1]
        names = [{line.rpartition(b" ")[0] for line in page.splitlines()} for page in (before, after)]
        assert names[0] == names[1]
        page = await served.counted("ok", 2 * half)
        assert page.requests("client_error") == 501
        print(f"resident: {held / 1e6:.1f} MB, grown by {grown / 1e6:.2f} MB over {half} names")
        assert grown < 4 << 20


async def test_a_reload_keeps_what_is_open(tmp_path: Path) -> None:
    """SIGHUP while streams are open: they go on, they stay counted, and they end at 0."""
    async with GatedEngine(_silent) as engine, serve(tmp_path, [engine]) as served:
        clients: list[RawClient] = [served.client() for _ in range(4)]
        for client in clients:
            await client.__aenter__()
            client.send(post())
        await engine.arrived(4)
        for x in engine.exchanges:
            x.head()
            x.chunk(b"one")
        heads = [await client.head() for client in clients]
        for _ in range(3):
            lines = len(served.lines)
            served.signal(signal.SIGHUP)
            await until(lambda lines=lines: len(served.lines) > lines, "the reload is said")  # type: ignore[misc]
            assert (await served.metrics()).in_flight == [4]
            assert (await served.status())["replicas"][0]["in_flight"] == 4
        for x in engine.exchanges:
            x.chunk(b"two")
            x.end()
        for client, head in zip(clients, heads, strict=True):
            answer = await client.rest(head)
            assert (answer.body, answer.complete) == (b"onetwo", True)
            client.drop()
        await served.counted("ok", 4)
