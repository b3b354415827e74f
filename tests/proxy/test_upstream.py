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
from adaptive_gamma.proxy import Upstream, UpstreamLimits, UpstreamResponse
from tests.support.gated_engine import EngineExchange, GatedEngine, until

HEADERS = [(b"host", b"engine"), (b"content-length", b"2")]


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


@asynccontextmanager
async def _pool(url: str, limits: UpstreamLimits | None = None) -> AsyncIterator[Upstream]:
    pool = Upstream(url, limits or UpstreamLimits())
    try:
        yield pool
    finally:
        pool.close()


async def _all(response: UpstreamResponse) -> bytes:
    parts = []
    while (data := await response.read()) is not None:
        parts.append(data)
    response.close()
    return b"".join(parts)


async def _ask(pool: Upstream) -> bytes:
    return await _all(await pool.request(b"POST", b"/v1/completions", HEADERS, b"{}"))


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
        tasks = [asyncio.create_task(_ask(pool)) for _ in range(300)]
        await engine.arrived(300)
        for exchange in engine.exchanges:
            exchange.answer(200, b"ok")
        assert await asyncio.gather(*tasks) == [b"ok"] * 300
        assert pool.idle_connections == 300
        assert await _ask_answered(engine, pool) == b"ok"
        assert engine.connections == 300


async def _ask_answered(engine: GatedEngine, pool: Upstream) -> bytes:
    async def script(x: EngineExchange) -> None:
        x.answer(200, b"ok")

    engine.script = script
    return await _ask(pool)


async def test_cancellation_aborts_the_connection() -> None:
    async with GatedEngine(_silent) as engine, _pool(engine.url) as pool:
        task = asyncio.create_task(_ask(pool))
        x = await engine.arrived()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await x.gone()
        assert pool.idle_connections == 0


async def test_closing_an_unread_answer_aborts_the_connection() -> None:
    async with GatedEngine(_silent) as engine, _pool(engine.url) as pool:
        task = asyncio.create_task(pool.request(b"POST", b"/", HEADERS, b"{}"))
        x = await engine.arrived()
        x.head()
        response = await task
        response.close()
        response.close()
        await x.gone()


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
        task = asyncio.create_task(_ask(pool))
        x = await engine.arrived(2)
        await asyncio.sleep(0.01)
        x.die()
        with pytest.raises(ProtocolError):
            await task
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
        headers = [(b"host", b"engine"), (b"content-length", b"%d" % len(body))]
        with pytest.raises(UpstreamTimeout):
            await pool.request(b"POST", b"/", headers, body)
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
