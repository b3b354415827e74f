"""The pool of connections to one engine, by itself."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adaptive_gamma.errors import ConnectError, ProtocolError, UpstreamTimeout
from adaptive_gamma.proxy import Upstream, UpstreamLimits
from tests.support.gated_engine import EngineExchange, GatedEngine, until
from tests.support.upstream_client import Asked


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


@asynccontextmanager
async def _pool(url: str, limits: UpstreamLimits | None = None) -> AsyncIterator[Upstream]:
    pool = Upstream(url, limits or UpstreamLimits())
    try:
        yield pool
    finally:
        pool.close()


async def _ask(pool: Upstream) -> bytes:
    return await Asked(pool).whole


async def test_refused() -> None:
    async with GatedEngine() as engine:
        url = engine.url
    async with _pool(url) as pool:
        with pytest.raises(ConnectError):
            await _ask(pool)


async def test_name_that_does_not_resolve() -> None:
    async with _pool("http://engine.invalid:1") as pool:
        with pytest.raises(ConnectError):
            await _ask(pool)


@pytest.mark.parametrize("host", ["a" * 64, "a..b"])
async def test_name_that_cannot_be_encoded(host: str) -> None:
    async with _pool(f"http://{host}:1") as pool:
        with pytest.raises(ConnectError):
            await _ask(pool)


async def test_connection_that_is_never_taken() -> None:
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    fillers = [socket.socket() for _ in range(4)]
    try:
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        async with _pool(f"http://127.0.0.1:{full.getsockname()[1]}", UpstreamLimits(connect_s=0.05)) as pool:
            with pytest.raises(ConnectError, match=r"no connection within 0\.05 s"):
                await _ask(pool)
    finally:
        for each in (full, *fillers):
            each.close()


async def test_more_than_a_hundred_at_once() -> None:
    async with GatedEngine(_silent) as engine, _pool(engine.url) as pool:
        asked = [Asked(pool) for _ in range(300)]
        await engine.arrived(300)
        for exchange in engine.exchanges:
            exchange.answer(200, b"ok")
        assert [await each.whole for each in asked] == [b"ok"] * 300
        assert pool.idle_connections == 300
        assert await _ask_answered(engine, pool) == b"ok"
        assert engine.connections == 300


async def _ask_answered(engine: GatedEngine, pool: Upstream) -> bytes:
    async def script(x: EngineExchange) -> None:
        x.answer(200, b"ok")

    engine.script = script
    return await _ask(pool)


async def test_cancelling_before_the_head_aborts_the_connection() -> None:
    async with GatedEngine(_silent) as engine, _pool(engine.url) as pool:
        asked = Asked(pool)
        x = await engine.arrived()
        asked.call.cancel()
        await x.gone()
        assert pool.idle_connections == 0
        assert not asked.whole.done()


async def test_cancelling_in_the_body_aborts_the_connection() -> None:
    async with GatedEngine(_silent) as engine, _pool(engine.url) as pool:
        asked = Asked(pool)
        x = await engine.arrived()
        x.head()
        assert await asked.head == 200
        asked.call.cancel()
        asked.call.cancel()
        await x.gone()


async def test_cancelling_while_it_connects() -> None:
    async with GatedEngine(_silent) as engine, _pool(engine.url) as pool:
        asked = Asked(pool)
        asked.call.cancel()
        assert await _ask_answered(engine, pool) == b"ok"
        assert len(engine.requests) == 1
        assert not asked.whole.done()


async def test_what_is_not_read_stays_at_the_engine() -> None:
    async with GatedEngine(_silent) as engine, _pool(engine.url) as pool:
        asked = Asked(pool)
        x = await engine.arrived()
        x.head(headers=[("content-length", "50000000")])
        await asked.head
        asked.call.pause()
        for _ in range(50):
            x.write(b"x" * 1_000_000)
        await until(lambda: x.transport.get_write_buffer_size() > 40_000_000, "the engine cannot write on")
        taken = sum(map(len, asked.pieces))
        asked.call.resume()
        assert len(await asked.whole) == 50_000_000
        assert taken < 2_000_000


async def test_1xx_without_end_is_an_error() -> None:
    async with GatedEngine(_silent) as engine, _pool(engine.url) as pool:
        asked = Asked(pool)
        x = await engine.arrived()
        x.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 4000)
        with pytest.raises(ProtocolError, match="64 KiB"):
            await asked.whole


async def test_1xx_do_not_put_off_the_first_byte() -> None:
    async with GatedEngine(_silent) as engine, _pool(engine.url, UpstreamLimits(first_byte_s=0.1)) as pool:
        asked = Asked(pool)
        x = await engine.arrived()
        while not asked.whole.done():
            x.write(b"HTTP/1.1 102 Processing\r\n\r\n")
            await asyncio.sleep(0.01)
        with pytest.raises(UpstreamTimeout, match="did not begin to answer"):
            await asked.whole


@pytest.mark.parametrize("endless", [b";x=" + b"y" * 70_000, b"0\r\n" + b"trailer: 1\r\n" * 7000])
async def test_endless_extensions_and_trailers_are_an_error(endless: bytes) -> None:
    async with GatedEngine(_silent) as engine, _pool(engine.url) as pool:
        asked = Asked(pool)
        x = await engine.arrived()
        x.head()
        x.chunk(b"first")
        await until(lambda: asked.pieces == [b"first"], "the first chunk")
        x.write((b"5" if endless.startswith(b";") else b"") + endless)
        with pytest.raises(ProtocolError, match="64 KiB"):
            await asked.whole


async def test_idle_connection_the_engine_closed_is_forgotten() -> None:
    async with GatedEngine() as engine, _pool(engine.url) as pool:
        await _ask(pool)
        assert pool.idle_connections == 1
        (await engine.arrived()).close()
        await until(lambda: pool.idle_connections == 0, "forgotten")


async def test_connection_close_of_the_engine_is_obeyed() -> None:
    async def script(x: EngineExchange) -> None:
        x.answer(200, b"ok", [("connection", "close")])

    async with GatedEngine(script) as engine, _pool(engine.url) as pool:
        assert await _ask(pool) == b"ok"
        assert pool.idle_connections == 0


async def test_slow_death_of_a_reused_connection_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that thought about the request before it died has taken it."""
    monkeypatch.setattr("adaptive_gamma.proxy.upstream.RACE_S", 0.0)
    async with GatedEngine() as engine, _pool(engine.url) as pool:
        await _ask(pool)
        engine.script = _silent
        asked = Asked(pool)
        x = await engine.arrived(2)
        await asyncio.sleep(0.01)
        x.die()
        with pytest.raises(ProtocolError):
            await asked.whole
        assert len(engine.requests) == 2


async def test_silence_while_the_engine_does_not_read() -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await stop.wait()
        writer.transport.abort()

    stop = asyncio.Event()
    server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1024)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, _pool(url, UpstreamLimits(first_byte_s=0.2)) as pool:
        body = b"x" * 50_000_000
        with pytest.raises(UpstreamTimeout):
            await Asked(pool, body).whole
        stop.set()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command to make a certificate with")
async def test_https(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(  # noqa: ASYNC221  # a moment, before anything runs
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(certificate, key)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n{}")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving)
    url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
    async with server:
        trusting = Upstream(url, UpstreamLimits(), ssl_context=ssl.create_default_context(cafile=str(certificate)))
        assert await _ask(trusting) == b"ok"
        assert trusting.idle_connections == 1
        assert await _ask(trusting) == b"ok"
        trusting.close()
        async with _pool(url) as distrusting:
            with pytest.raises(ConnectError):
                await _ask(distrusting)
