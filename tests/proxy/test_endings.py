"""An answer that an engine did not finish is never finished for it; one that it finished is whole."""

from __future__ import annotations

import asyncio
import gzip
import logging

import pytest

from tests.support.gated_engine import EngineExchange, GatedEngine, until
from tests.support.raw_client import dechunked, post
from tests.support.running_proxy import running_proxy

HOW = ["close", "reset"]
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b"data: half\n\n"
CHUNK = b"c\r\n" + EVENT + b"\r\n"
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"EngineCore died","code":500}}\n\n'


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


# What the engine sends behind CHUNK before it dies; the part of a body in it that may reach the client.
ENDS = {
    "after a chunk": (b"", b""),
    "inside a chunk's size": (b"1", b""),
    "after a chunk's size": (b"10\r\n", b""),
    "inside a chunk's data": (b"10\r\nsome", b"some"),
    "before a chunk's end": (b"4\r\nsome", b"some"),
    "inside a chunk's end": (b"4\r\nsome\r", b"some"),
    "after [DONE]": (_chunk(DONE), DONE),
    "after an error event": (_chunk(ERROR), ERROR),
    "inside the last chunk's size": (b"0", b""),
    "after the last chunk's size": (b"0\r\n", b""),
    "inside the last line end": (b"0\r\n\r", b""),
    "inside a trailer": (b"0\r\nx-trailer: 1\r\n", b""),
    "rubbish for a size": (b"zz\r\nsome", b""),
    "a chunk longer than said": (b"4\r\nsomething", b"some"),
    "a negative size": (b"-4\r\nsome\r\n0\r\n\r\n", b""),
    "a size beyond 64 bits": (b"10000000000000004\r\nsome\r\n0\r\n\r\n", b""),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("end", ENDS)
async def test_a_chunked_stream_that_breaks_off(end: str, how: str, caplog: pytest.LogCaptureFixture) -> None:
    rest, delivered = ENDS[end]
    async with GatedEngine(_silent) as engine, running_proxy([engine, engine]) as proxy, proxy.client() as client:
        client.send(post())
        x = await engine.arrived()
        x.write(STREAM + CHUNK)
        head = await client.head()
        assert (head.status, head.one("transfer-encoding")) == (200, "chunked")
        assert await client.chunk() == EVENT
        x.write(rest)
        getattr(x, how)()
        raw, _ = await client.everything()
        body, ended = dechunked(raw)
        assert not ended
        assert body == delivered or (how == "reset" and body == b"")
        page = await proxy.ended(protocol_error=1)
        assert page.total("retries_total") == 0
        assert len(engine.requests) == 1
        assert (await proxy.decisions())[0]["outcome"] == "protocol_error"
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "cut" in record.getMessage()


LENGTHS = {
    "nothing of it": b"",
    "half of it": b'{"half":',
    "all but a byte": b'{"half":1',
    "packed": gzip.compress(b"{}" * 100, mtime=0)[:8],
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("part", LENGTHS)
async def test_a_truncated_length_is_an_error(part: str, how: str) -> None:
    sent = LENGTHS[part]
    async with GatedEngine(_silent) as engine, running_proxy([engine, engine]) as proxy, proxy.client() as client:
        client.send(post())
        x = await engine.arrived()
        x.head(200, [("content-type", "application/json"), ("content-length", "10")])
        head = await client.head()
        assert head.one("content-length") == "10"
        x.write(sent)
        if sent:
            assert await client.reader.readexactly(len(sent)) == sent
        getattr(x, how)()
        assert (await client.everything())[0] == b""
        page = await proxy.ended(protocol_error=1)
        assert page.total("retries_total") == 0
        assert len(engine.requests) == 1


@pytest.mark.parametrize("how", HOW)
async def test_an_engine_that_closes_after_its_head(how: str) -> None:
    async with GatedEngine(_silent) as engine, running_proxy([engine, engine]) as proxy, proxy.client() as client:
        client.send(post())
        x = await engine.arrived()
        x.write(STREAM)
        getattr(x, how)()
        raw, _ = await client.everything()
        assert b"0\r\n\r\n" not in raw
        assert not raw or raw.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 502 "))
        await proxy.ended(protocol_error=1)
        assert len(engine.requests) == 1


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("part", [b"H", b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK\r\nx: y\r\n", STREAM[:-2], STREAM[:-1]])
async def test_an_engine_that_closes_inside_its_head(part: bytes, how: str) -> None:
    async def script(x: EngineExchange) -> None:
        x.write(part)
        getattr(x, how)()

    async with GatedEngine(script) as engine, running_proxy([engine, engine]) as proxy, proxy.client() as client:
        answer = await client.ask(post())
        assert (answer.status, answer.error_code) == (502, "engine_broke_off")
        await proxy.ended(protocol_error=1)
        assert len(engine.requests) == 1


async def test_an_answer_without_framing_that_is_reset_is_no_whole_answer() -> None:
    """Such a body ends with its connection; only a clean close is an end."""
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post())
        x = await engine.arrived()
        x.head(200, [("content-type", "text/plain")])
        x.write(b"a part")
        head = await client.head()
        assert await client.chunk() == b"a part"
        x.reset()
        answer = await client.rest(head)
        assert not answer.complete
        await proxy.ended(protocol_error=1)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("keep_alive", [False, True])
async def test_http_1_0_clients_are_reset(how: str, keep_alive: bool) -> None:
    """Their answer ends with the connection, so a plain close would be a clean end."""
    request = post(headers=(("connection", "keep-alive"),) if keep_alive else ()).replace(b"HTTP/1.1", b"HTTP/1.0")
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(request)
        x = await engine.arrived()
        x.write(STREAM + CHUNK)
        assert (await client.head()).one("transfer-encoding") is None
        assert await client.reader.readexactly(len(EVENT)) == EVENT
        getattr(x, how)()
        assert await client.everything() == (b"", True)
        await proxy.ended(protocol_error=1)


async def test_the_last_bytes_before_a_clean_end_are_all_there() -> None:
    """Body, last chunk and close in one packet; the same with a length, and with neither."""
    answers = [
        STREAM + CHUNK + _chunk(DONE) + b"0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 26\r\n\r\n" + EVENT + DONE,
        b"HTTP/1.1 200 OK\r\ncontent-length: 26\r\nconnection: close\r\n\r\n" + EVENT + DONE,
        b"HTTP/1.1 200 OK\r\n\r\n" + EVENT + DONE,
        b"HTTP/1.0 200 OK\r\n\r\n" + EVENT + DONE,
    ]
    for answer in answers:

        async def script(x: EngineExchange, answer: bytes = answer) -> None:
            x.write(answer)
            x.close()

        async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
            for _ in range(2):
                got = await client.ask(post())
                assert (got.status, got.body, got.complete) == (200, EVENT + DONE, True)
            await proxy.ended(ok=2)


async def test_an_error_event_passes_and_the_stream_ends_as_the_engine_ends_it() -> None:
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        for count, end in enumerate((b"", _chunk(DONE)), 1):
            client.send(post())
            x = await engine.arrived(count)
            x.write(STREAM + CHUNK + _chunk(ERROR) + end + b"0\r\n\r\n")
            answer = await client.answer()
            assert (answer.status, answer.complete) == (200, True)
            assert answer.body == EVENT + ERROR + (DONE if end else b"")
        await proxy.ended(ok=2)


async def test_nothing_is_said_before_the_engine_says_something() -> None:
    """A status is known before one is sent: an error after a long prefill is no 200."""
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post(body={"prompt": "x", "stream": True}))
        x = await engine.arrived()
        x.write(b"HTTP/1.1 503 X\r\nretry-after: 3\r\n")
        await proxy.metrics()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.reader.read(1)
        x.write(b"content-length: 2\r\n\r\n{}")
        answer = await client.answer()
        assert (answer.status, answer.one("retry-after"), answer.body) == (503, "3", b"{}")
        await proxy.ended(rejected=1)


async def test_a_dead_engine_cuts_its_streams_and_no_others() -> None:
    async with (
        GatedEngine(_silent) as one,
        GatedEngine(_silent) as two,
        running_proxy([one, two], health={"interval_s": 3600}) as proxy,
    ):
        clients = [proxy.client() for _ in range(12)]
        for client in clients:
            await client.__aenter__()
            client.send(post())
        await until(lambda: len(one.exchanges) + len(two.exchanges) == 12, "all arrived")
        assert one.exchanges
        assert two.exchanges
        for x in one.exchanges + two.exchanges:
            x.write(STREAM + CHUNK)
        heads = [await client.head() for client in clients]
        await one.stop()
        for x in two.exchanges:
            x.chunk(DONE)
            x.end()
        answers = [await client.rest(head) for client, head in zip(clients, heads, strict=True)]
        whole = [answer for answer in answers if answer.complete]
        assert len(whole) == len(two.exchanges)
        assert {answer.body for answer in whole} == {EVENT + DONE}
        assert {answer.one("x-adaptive-gamma-replica") for answer in whole} == {"r1"}
        for answer in answers:
            assert answer.complete or DONE not in answer.body
        await proxy.ended(ok=len(two.exchanges), protocol_error=len(one.exchanges))
        for client in clients:
            client.drop()
