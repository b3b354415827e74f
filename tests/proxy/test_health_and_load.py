"""Replicas that fail, hang, come back or are told to stop; and how little the others feel of it."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.gated_engine import DEADLINE_S, EngineExchange, GatedEngine, answer_json, until
from tests.support.raw_client import RawClient, post
from tests.support.running_proxy import RunningProxy, running_proxy

PROBED = {"interval_s": 0.02, "timeout_s": 2.0, "down_after": 3, "up_after": 2}


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


async def _healthy(proxy: RunningProxy, name: str, expected: bool) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while (await proxy.status())[name]["healthy"] is not expected:  # noqa: ASYNC110  # it has no event
            await asyncio.sleep(0.005)


@contextmanager
def _black_hole() -> Iterator[str]:
    """The url of a host that takes no connection: its queue is full, and stays so."""
    full = socket.socket()
    fillers = [socket.socket() for _ in range(4)]
    try:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}"
    finally:
        for each in (full, *fillers):
            each.close()


async def test_three_probes_down_two_up() -> None:
    """Two failures in a row are none, nor is one success; the third and the second count."""
    async with GatedEngine() as engine, running_proxy([engine], health=PROBED) as proxy:
        engine.next_probes.extend([False, False, True] * 8)
        while engine.next_probes:
            assert (await proxy.status())["r0"]["healthy"] is True
            await asyncio.sleep(0.005)
        engine.healthy = False
        await _healthy(proxy, "r0", False)
        assert (await proxy.metrics()).total("replica_healthy", replica="r0") == 0
        assert (await proxy.admin("/readyz")).status == 503
        engine.next_probes.extend([True, False] * 8)
        while engine.next_probes:
            assert (await proxy.status())["r0"]["healthy"] is False
            await asyncio.sleep(0.005)
        engine.healthy = True
        await _healthy(proxy, "r0", True)
        assert (await proxy.metrics()).total("replica_healthy", replica="r0") == 1
        assert (await proxy.admin("/readyz")).status == 200


async def test_a_replica_that_is_down_gets_no_requests() -> None:
    async with GatedEngine() as one, GatedEngine() as two, running_proxy([one, two], health=PROBED) as proxy:
        one.healthy = False
        await _healthy(proxy, "r0", False)
        for _ in range(10):
            assert (await proxy.ask(post())).one("x-adaptive-gamma-replica") == "r1"
        assert one.requests == []
        one.healthy = True
        await _healthy(proxy, "r0", True)
        while not one.requests:
            assert (await proxy.ask(post())).status == 200


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 429])
async def test_answers_that_are_the_clients_fault_never_count(status: int) -> None:
    answer = answer_json(status, {"error": {"message": "no"}})
    async with GatedEngine(answer) as engine, running_proxy([engine], health={"interval_s": 3600}) as proxy:
        for _ in range(12):
            assert (await proxy.ask(post())).status == status
        assert (await proxy.status())["r0"]["healthy"] is True
        assert (await proxy.admin("/readyz")).status == 200


async def test_clients_that_leave_never_count() -> None:
    async with GatedEngine(_silent) as engine, running_proxy([engine], health={"interval_s": 3600}) as proxy:
        for count in range(1, 9):
            async with proxy.client() as client:
                client.send(post())
                x = await engine.arrived(count)
                client.leave("close")
                await x.gone()
        await proxy.ended(client_closed=8)
        assert (await proxy.status())["r0"]["healthy"] is True


async def test_three_refused_connections_take_a_replica_out_before_the_next_probe() -> None:
    async with GatedEngine() as dead:
        url = dead.url
    async with GatedEngine() as engine, running_proxy([url, engine], health={"interval_s": 3600}) as proxy:
        for _ in range(20):
            assert (await proxy.ask(post())).status == 200
        page = await proxy.ended(ok=20)
        assert (await proxy.status())["r0"]["healthy"] is False
        assert page.total("retries_total", reason="connect_error") <= 3


async def test_all_replicas_down_are_used_all_the_same_and_it_shows() -> None:
    async with GatedEngine() as one, GatedEngine() as two, running_proxy([one, two], health=PROBED) as proxy:
        one.healthy = two.healthy = False
        for name in ("r0", "r1"):
            await _healthy(proxy, name, False)
        for _ in range(8):
            answer = await proxy.ask(post())
            assert (answer.status, answer.one("x-adaptive-gamma-reason")) == (200, "fallback")
        assert len(one.requests) + len(two.requests) == 8
        page = await proxy.ended(ok=8)
        assert page.total("decisions_total", reason="fallback") == 8
        assert page.total("replica_healthy") == 0


async def test_all_replicas_down_and_one_answers() -> None:
    """Whatever the retries allow: where none is thought to be up, each is tried until one answers."""
    async with GatedEngine() as dead:
        url = dead.url
    health = {**PROBED, "up_after": 100}
    async with (
        GatedEngine() as engine,
        running_proxy([url, url, url, engine], health=health, retry={"attempts": 0}) as proxy,
    ):
        engine.healthy = False
        for name in ("r0", "r1", "r2", "r3"):
            await _healthy(proxy, name, False)
        for _ in range(5):
            answer = await proxy.ask(post())
            assert (answer.status, answer.one("x-adaptive-gamma-replica")) == (200, "r3")
            assert answer.one("x-adaptive-gamma-reason") == "fallback"
        await proxy.ended(ok=5)


async def test_a_replica_comes_back_on_its_address() -> None:
    """Killed and started again: down, nothing lost meanwhile, and used again after two good probes."""
    async with GatedEngine() as other, GatedEngine() as first:
        port = first.port
        async with running_proxy([first, other], health=PROBED) as proxy:
            while not first.requests:
                assert (await proxy.ask(post())).status == 200
            await first.stop()
            await _healthy(proxy, "r0", False)
            for _ in range(5):
                assert (await proxy.ask(post())).status == 200
            async with GatedEngine(port=port) as again:
                await _healthy(proxy, "r0", True)
                async with asyncio.timeout(DEADLINE_S):
                    while not again.requests:
                        assert (await proxy.ask(post())).status == 200


async def test_an_engine_told_to_stop_as_vllm_stops() -> None:
    """It refuses connections and leaves its open streams open and silent: new requests go elsewhere at once, while
    nothing is lost, and the silent stream is cut by the limit of silence."""
    async with (
        GatedEngine(_silent) as one,
        GatedEngine() as two,
        running_proxy([one, two], limits={"idle_timeout_s": 0.5}, health={"interval_s": 3600}) as proxy,
    ):
        clients: list[RawClient] = []
        while not one.exchanges:
            clients.append(proxy.client())
            await clients[-1].__aenter__()
            clients[-1].send(post())
            count = len(clients)
            await until(lambda count=count: len(one.exchanges) + len(two.exchanges) == count, "it arrived")  # type: ignore[misc]
        x, streaming = one.exchanges[0], clients[-1]
        x.head()
        x.chunk(b"data: half\n\n")
        head = await streaming.head()
        one.stop_listening()
        for _ in range(6):
            answer = await proxy.ask(post())
            assert (answer.status, answer.one("x-adaptive-gamma-replica")) == (200, "r1")
        assert len(one.exchanges) == 1
        answer = await streaming.rest(head)
        assert (answer.body, answer.complete) == (b"data: half\n\n", False)
        await x.gone()
        page = await proxy.ended(ok=len(two.exchanges), timeout=1)
        assert page.requests("timeout", replica="r0") == 1
        for client in clients:
            client.drop()


async def test_a_killed_engine_costs_its_open_streams_and_nothing_else() -> None:
    async with (
        GatedEngine(_silent) as one,
        GatedEngine() as two,
        running_proxy([one, two], health={"interval_s": 3600}) as proxy,
    ):
        async with proxy.client() as client:
            lost = 0
            while not one.exchanges:
                client.send(post())
                lost += 1
                await until(lambda lost=lost: len(one.exchanges) + len(two.exchanges) == lost, "it arrived")  # type: ignore[misc]
                if not one.exchanges:
                    assert (await client.answer()).status == 200
            one.exchanges[0].head()
            head = await client.head()
            await one.stop()
            assert not (await client.rest(head)).complete
        for _ in range(6):
            assert (await proxy.ask(post())).one("x-adaptive-gamma-replica") == "r1"
        await proxy.ended(ok=len(two.exchanges), protocol_error=1)


async def test_a_black_hole_does_not_slow_the_others() -> None:
    """A replica that takes no connection: requests that meet it go elsewhere when its time is over, none fails, and
    those sent to the others do not wait for it."""
    with _black_hole() as url:
        async with GatedEngine() as engine:
            async with running_proxy([url, engine], limits={"connect_timeout_s": 0.3}) as proxy:
                answers = await asyncio.gather(*(proxy.ask(post()) for _ in range(40)))
                assert {(a.status, a.one("x-adaptive-gamma-replica")) for a in answers} == {(200, "r1")}
                await proxy.ended(ok=40)
            async with running_proxy([url, engine], limits={"connect_timeout_s": 60}) as proxy:
                clients = [proxy.client() for _ in range(20)]
                for client in clients:
                    await client.__aenter__()
                    client.send(post())
                await until(lambda: proxy.count("ok") + proxy.in_flight == 20, "all are answered or wait for the hole")
                assert proxy.in_flight < 10
                for client in clients:
                    client.drop()


async def test_a_replica_that_hangs_delays_no_scrape_and_no_page() -> None:
    """It takes connections and says nothing, to requests and to scrapes alike."""
    stop = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await stop.wait()
        writer.transport.abort()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    scrape = {"interval_s": 0.03, "timeout_s": 30, "stale_after_s": 60}
    async with server, GatedEngine() as engine, running_proxy([url, engine], scrape=scrape) as proxy:
        async with asyncio.timeout(DEADLINE_S):
            while engine.scrapes < 10:  # noqa: ASYNC110  # it has no event
                await asyncio.sleep(0.005)
        rows = await proxy.status()
        assert rows["r1"]["running"] == 0
        assert rows["r0"]["running"] is None
        page = await proxy.metrics()
        assert list(page.values("scrape_age_seconds", replica="r0")) == []
        assert list(page.values("scrape_age_seconds", replica="r1")) != []
        stop.set()


async def test_more_than_a_hundred_streams_at_once() -> None:
    """No cap of a pool or a server: each of 250 streams is open at the engine before the first is answered."""
    count = 250
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy:
        clients = [proxy.client() for _ in range(count)]
        for client in clients:
            await client.__aenter__()
            client.send(post())
        await engine.arrived(count)
        assert (await proxy.metrics()).in_flight == [count]
        for number, x in enumerate(engine.exchanges):
            x.head()
            x.chunk(b"%d" % number)
        heads = [await client.head() for client in clients]
        for x in engine.exchanges:
            x.end()
        bodies = {(await client.rest(head)).body for client, head in zip(clients, heads, strict=True)}
        assert len(bodies) == count
        page = await proxy.ended(ok=count)
        assert page.total("upstream_connections_opened_total") == count
        for client in clients:
            client.drop()


async def test_an_engine_behind_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trusted by the system's store: served, kept and reused. Not trusted: a connect failure, so another is tried."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(  # noqa: ASYNC221  # a moment, before anything runs
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(certificate, key)
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        asked = 0
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"POST"):
                    await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                    asked += 1
                    connections += asked == 1
                writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving)
    url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
    async with server:
        async with GatedEngine() as plain, running_proxy([url, plain]) as proxy:
            for _ in range(6):
                assert (await proxy.ask(post())).one("x-adaptive-gamma-replica") == "r1"
        assert connections == 0
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        async with running_proxy([url]) as proxy:
            for _ in range(3):
                assert (await proxy.ask(post())).body == b"ok"
            await proxy.ended(ok=3)
        assert connections == 1


async def test_an_engine_on_ipv6() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        hosts.append(head.split(b"host: ")[1].split(b"\r\n")[0] if b"host: " in head else b"")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
        writer.close()

    hosts: list[bytes] = []
    try:
        server = await asyncio.start_server(script, "::1", 0)
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    port = server.sockets[0].getsockname()[1]
    async with server, running_proxy([f"http://[::1]:{port}"]) as proxy:
        assert (await proxy.ask(post())).body == b"ok"
        assert f"[::1]:{port}".encode() in hosts


@pytest.mark.parametrize("url", ["http://engine.invalid:1", "http://127.0.0.1:1"])
async def test_engines_that_are_nowhere(url: str) -> None:
    async with running_proxy([url]) as proxy:
        answer = await proxy.ask(post())
        assert (answer.status, answer.error_code, answer.one("retry-after")) == (503, "no_replica", "1")
        await proxy.ended(connect_error=1)


async def test_scrapes_of_the_page_disturb_no_stream() -> None:
    """A hundred at once, and one whose reader stops: the stream's chunks come in order meanwhile."""
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post())
        x = await engine.arrived()
        x.head()
        head = await client.head()
        stopped = RawClient(proxy.server.admin.port, limit=16)
        async with stopped:
            stopped.send(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n")
            scrapes = [asyncio.create_task(proxy.metrics()) for _ in range(100)]
            for number in range(50):
                x.chunk(b"%d" % number)
                assert await client.chunk() == b"%d" % number
            pages = await asyncio.gather(*scrapes)
        assert [page.in_flight for page in pages] == [[1]] * 100
        x.end()
        assert (await client.rest(head)).complete
        await proxy.ended(ok=1)


async def test_not_ready_before_any_engine_has_answered() -> None:
    async with GatedEngine() as gone:
        url = gone.url
    async with running_proxy([url]) as proxy:
        await until(lambda: proxy.plane.fleet.looked, "it was looked at")
        answer = await proxy.admin("/readyz")
        assert (answer.status, answer.body) == (503, b"not ready: no replica has answered yet\n")
