"""What clients can make the process hold: bodies and connections, all together, and how long."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from adaptive_gamma.proxy.open_files import most_connections
from tests.support.gated_engine import EngineExchange, GatedEngine, until
from tests.support.raw_client import RawClient, post
from tests.support.running_proxy import running_proxy

LIMITS = {"body_bytes": 100_000, "bodies_bytes": 250_000}


def unfinished(size: int) -> bytes:
    return post(body=b"x" * size)[:-1]


async def test_bodies_that_are_held_have_a_limit_all_together() -> None:
    async with GatedEngine() as engine, running_proxy([engine], limits=LIMITS) as proxy:
        room = proxy.plane.body_room
        held = []
        for _ in range(3):
            client = await proxy.client().__aenter__()
            client.send(unfinished(80_000))
            held.append(client)
        await until(lambda: room.held == 3 * 79_999, "three are held")
        answer = await proxy.ask(post(body=b" " * 80_000))
        assert (answer.status, answer.error_code) == (503, "too_many_bodies")
        assert answer.one("retry-after") == "1"
        assert (await proxy.ask(post())).status == 200, "a small one fits"
        for client in held:
            client.drop()
        await until(lambda: room.held == 0, "nothing is held")
        assert (await proxy.ask(post(body=b'"' + b" " * 80_000))).status == 400, "there is room again"
        await until(lambda: room.held == 0, "nothing is held")


async def test_the_room_is_given_back_when_the_answer_begins() -> None:
    """From there on the body cannot be sent again, and is dropped."""

    async def begin(x: EngineExchange) -> None:
        x.head()
        x.chunk(b"data: x\n\n")

    async with GatedEngine(begin) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post(body={"prompt": "x" * 50_000}))
        await client.head()
        assert proxy.plane.body_room.held == 0


async def test_a_body_alone_fits_whatever_the_room_is() -> None:
    limits = {"body_bytes": 100_000, "bodies_bytes": 10}
    async with GatedEngine() as engine, running_proxy([engine], limits=limits) as proxy:
        assert (await proxy.ask(post(body={"prompt": "x" * 50_000}))).status == 200
        assert proxy.plane.body_room.held == 0


async def test_refused_and_broken_requests_give_their_room_back() -> None:
    async with GatedEngine() as engine, running_proxy([engine], limits=LIMITS) as proxy:
        chunked = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
        for rest in (b"4\r\n{..}\r\nzz", b"30d40\r\n" + b"x" * 200_000, b"4\r\nrub!\r\n0\r\n\r\n"):
            async with proxy.client() as client:
                client.send(chunked + rest)
                assert (await client.head()).status in (400, 413)
        await until(lambda: proxy.plane.body_room.held == 0, "nothing is held")


def test_connections_leave_files_for_everything_else() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert most_connections() >= 16
    assert 2 * most_connections() < resource.getrlimit(resource.RLIMIT_NOFILE)[0] or soft < 160


_LISTENING = re.compile(rb"listening on http://127\.0\.0\.1:(\d+), admin on http://127\.0\.0\.1:(\d+)")


@asynccontextmanager
async def serve_with_files(folder: Path, engine: GatedEngine, files: int) -> AsyncIterator[tuple[int, int]]:
    """The command with so few files; its two ports."""
    config = folder / "serve.yaml"
    replicas = [{"name": "r0", "url": engine.url, "gamma": 0}]
    config.write_text(
        yaml.safe_dump(
            {"listen": "127.0.0.1:0", "admin": "127.0.0.1:00", "policy": "demo-llamacpp-cpu", "replicas": replicas}
        )
    )
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", sys.executable, "-m", "adaptive_gamma", "serve"),
        *("--config", str(config)),
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            while (found := _LISTENING.search(line := await process.stderr.readline())) is None:
                assert line, "it ended"
        yield int(found[1]), int(found[2])
    finally:
        process.kill()
        await process.wait()


async def test_clients_cannot_take_all_files_of_the_process(tmp_path: Path) -> None:
    """With them would go the connections to engines, the scrapes and the probes."""
    async with GatedEngine() as engine, serve_with_files(tmp_path, engine, 200) as (port, admin):
        served = await RawClient(port).__aenter__()
        assert (await served.ask(post())).status == 200
        held = [await RawClient(port).__aenter__() for _ in range(150)]
        try:
            turned_away = await held[-1].head()
            assert turned_away.status == 503
            for _ in range(3):
                assert (await served.ask(post())).status == 200, "who was there before is served"
            async with RawClient(admin) as probe:
                assert (await probe.ask(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n", "GET")).status == 200
        finally:
            for client in (*held, served):
                client.drop()

        async def served_again() -> bool:
            async with RawClient(port) as client:
                return (await client.ask(post())).status == 200

        async with asyncio.timeout(20):
            while not await served_again():  # noqa: ASYNC110  # it has no event
                await asyncio.sleep(0.05)
