"""SIGTERM while things are under way that are easily forgotten: a slow reader, an upload, rests of both."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.gated_engine import EngineExchange, GatedEngine, until
from tests.support.raw_client import post
from tests.support.served import serve

WHOLE = b"x" * 30_000_000


async def _answer_all(x: EngineExchange) -> None:
    if b"flood" in x.request.body:
        x.answer(200, WHOLE)
    else:
        x.answer(200, b"{}")


async def test_a_drain_waits_for_slow_readers_and_uploads(tmp_path: Path) -> None:
    """The engine is long done with the one, and has not heard of the other; both are served, then it ends with 0."""
    async with GatedEngine(_answer_all) as engine, serve(tmp_path, [engine]) as served:
        await served.ready()
        async with served.client(limit=1024) as slow, served.client() as upload, served.client() as kept:
            assert (await kept.ask(post())).status == 200
            slow.send(post(body={"prompt": "flood"}))
            head = await slow.head()
            request = post()
            upload.send(request[:-20])
            await engine.arrived(2)

            async def both_open() -> None:
                while (await served.metrics()).in_flight != [1]:
                    pass

            await both_open()
            served.signal(signal.SIGTERM)
            await served.logged("draining: 2 requests open")
            assert await kept.everything() == (b"", False)
            status, why = await served.get("/readyz")
            assert (status, why) == (503, b"not ready: draining\n")
            assert (await served.metrics()).in_flight == [1]
            assert (await served.status())["draining"] is True
            upload.send(request[-20:])
            answer = await upload.answer()
            assert (answer.status, answer.one("connection")) == (200, "close")
            assert await upload.everything() == (b"", False)
            assert served.process.returncode is None
            answer = await slow.rest(head)
            assert (answer.complete, answer.body) == (True, WHOLE)
        assert await served.exit() == 0
        assert not any("cut" in line or "Traceback" in line for line in served.lines), served.lines
        await until(lambda: not engine.open_connections, "the engine's kept connections are closed")


async def test_an_idle_process_ends_at_once(tmp_path: Path) -> None:
    """Kept connections, begun heads and watched pages hold up nothing."""
    async with GatedEngine(_answer_all) as engine, serve(tmp_path, [engine], drain={"grace_s": 3600}) as served:
        await served.ready()
        async with served.client() as kept, served.client() as silent, served.client() as begun:
            assert (await kept.ask(post())).status == 200
            begun.send(b"POST /v1/comp")
            await served.counted("ok")
            served.signal(signal.SIGTERM)
            assert await served.exit() == 0
            for client in (kept, silent, begun):
                assert (await client.everything())[0] == b""
        assert not any("Traceback" in line for line in served.lines), served.lines


async def test_what_is_cut_at_the_end_of_the_grace_has_no_clean_end(tmp_path: Path) -> None:
    """A stream, an answer with a length, a request that waits, an upload: each is cut, each engine is told."""

    async def script(x: EngineExchange) -> None:
        if b"stream" in x.request.body:
            x.head()
            x.chunk(b"one")
        elif b"length" in x.request.body:
            x.head(200, [("content-length", "100")])
            x.write(b"one")

    async with GatedEngine(script) as engine, serve(tmp_path, [engine], drain={"grace_s": 0.2}) as served:
        await served.ready()
        async with (
            served.client() as stream,
            served.client() as length,
            served.client() as waits,
            served.client() as upload,
        ):
            for count, (client, prompt) in enumerate(((stream, "stream"), (length, "length"), (waits, "wait")), 1):
                client.send(post(body={"prompt": prompt}))
                await engine.arrived(count)
            heads = [await stream.head(), await length.head()]
            assert await stream.chunk() == b"one"
            upload.send(post()[:-5])
            await served.metrics()
            served.signal(signal.SIGTERM)
            assert await served.exit() == 0
            for client, head in zip((stream, length), heads, strict=True):
                assert not (await client.rest(head)).complete
            for client in (waits, upload):
                raw, _ = await client.everything()
                assert b" 200 " not in raw.split(b"\r\n")[0]
            for x in engine.exchanges:
                await x.gone()
        (said,) = [line for line in served.lines if "are cut" in line]
        assert "4 requests were still open" in said
        assert not any("Traceback" in line for line in served.lines), served.lines
