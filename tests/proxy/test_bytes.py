"""Bytes pass as they are: bodies in both directions, however they are cut into chunks and packets."""

from __future__ import annotations

import asyncio
import gzip
import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.gated_engine import EngineExchange, GatedEngine
from tests.support.raw_client import Answer, RawClient, post
from tests.support.running_proxy import running_proxy

SSE = [("content-type", "text/event-stream; charset=utf-8"), ("transfer-encoding", "chunked")]
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\n"

TEXT = (
    'data: {"choices":[{"delta":{"content":"aé漢😀 \u2028\u2029\x85\x0b\x0c\x1c\x1e\ufeff"}}]}\r\n\r\n'
    ": a comment\n\n:\r\r"
    "id: 7\nevent: delta\nretry: 10\ndata: x\ndata: y\n\n"
    'event: error\ndata: {"error":{"message":"boo\\u2028"}}\n\n'
    "data: [DONE]\n\n"
).encode()


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


async def test_a_stream_cut_at_every_byte() -> None:
    """Inside characters, line ends and names: each chunk arrives when it was sent, as it was sent."""
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post())
        x = await engine.arrived()
        x.head(200, SSE)
        head = await client.head()
        assert head.one("content-type") == "text/event-stream; charset=utf-8"
        for byte in TEXT:
            x.chunk(bytes([byte]))
            assert await client.chunk() == bytes([byte])
        x.end()
        assert await client.chunk() == b""
        await proxy.ended(ok=1)


async def test_a_stream_in_packets_of_one_byte() -> None:
    """The chunks' own framing is cut, too."""
    pieces = [TEXT[:5], TEXT[5:40], TEXT[40:]]
    wire = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"

    async def script(x: EngineExchange) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + wire:
            x.write(bytes([byte]))
            await asyncio.sleep(0.0002)

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post())
        assert (answer.body, answer.complete) == (TEXT, True)
        await proxy.ended(ok=1)


async def test_any_bytes_in_any_chunks_and_packets() -> None:
    """Hypothesis makes bodies, chunks, packets and framings; one connection carries them all."""
    examples: list[tuple[list[bytes], int, str]] = []
    chunks = st.lists(st.binary(min_size=1, max_size=300), max_size=12)

    @settings(max_examples=60, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(chunks, st.integers(1, 64), st.sampled_from(["chunked", "length", "extensions"]))
    def collect(pieces: list[bytes], packet: int, framing: str) -> None:
        examples.append((pieces, packet, framing))

    collect()

    async def script(x: EngineExchange) -> None:
        pieces, packet, framing = examples[json.loads(x.request.body)["n"]]
        if framing == "length":
            x.head(200, [("content-length", str(sum(map(len, pieces))))])
            wire = b"".join(pieces)
        else:
            x.head()
            extension = b";name=value" if framing == "extensions" else b""
            wire = b"".join(b"%X%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces) + b"000\r\n\r\n"
        for start in range(0, len(wire), packet * 8):
            x.write(wire[start : start + packet * 8])
            await asyncio.sleep(0)

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        for number, (pieces, _, _) in enumerate(examples):
            answer = await client.ask(post("/v1/completions", {"n": number}))
            assert (answer.body, answer.complete) == (b"".join(pieces), True)
        assert len({request.connection for request in engine.requests}) == 1


@pytest.mark.parametrize("kind", ["audio/mpeg", "application/octet-stream", "image/png", "application/json"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_binary_answers(kind: str, framing: str) -> None:
    body = bytes(range(256)) * 40

    async def script(x: EngineExchange) -> None:
        if framing == "length":
            x.answer(200, body, [("content-type", kind)])
        else:
            x.head(200, [("content-type", kind), ("transfer-encoding", "chunked")])
            x.chunk(body)
            x.end()

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post())
        assert (answer.one("content-type"), answer.body) == (kind, body)
        length = str(len(body)) if framing == "length" else None
        assert answer.one("content-length") == length


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_packed_answers_keep_their_header_and_their_bytes(framing: str) -> None:
    packed = gzip.compress(TEXT * 50)

    async def script(x: EngineExchange) -> None:
        headers = [("content-encoding", "gzip"), ("vary", "Accept-Encoding"), ("etag", 'W/"1"')]
        if framing == "length":
            x.answer(200, packed, headers)
            return
        x.head(200, [*headers, ("transfer-encoding", "chunked")])
        for start in range(0, len(packed), 7):
            x.chunk(packed[start : start + 7])
        x.end()

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post(headers=(("accept-encoding", "gzip, br"),)))
        assert answer.body == packed
        assert (answer.one("content-encoding"), answer.one("etag")) == ("gzip", 'W/"1"')
        assert engine.requests[0].all("accept-encoding") == [b"gzip, br"]


BODIES = {
    "odd JSON": b'\n { "model" :"m",\t"messages":[ {"content":"\\u00e9 \xc3\xa9\xe2\x80\xa8"}], "x": 1.0e0 }\r\n ',
    "the same key twice": b'{"prompt":"a","prompt":"b","seed":12345678901234567890123,"t":1.00000000000000000001}',
    "all bytes of text": json.dumps({"prompt": "".join(map(chr, range(1, 0x800)))}, ensure_ascii=False).encode(),
}


@pytest.mark.parametrize("upload", ["length", "chunked", "bytes", "bytes and chunked"])
@pytest.mark.parametrize("name", BODIES)
async def test_request_bodies_pass_byte_for_byte(name: str, upload: str) -> None:
    body = BODIES[name]
    if "chunked" in upload:
        cut = [body[start : start + 11] for start in range(0, len(body), 11)]
        framed = HEAD + b"transfer-encoding: chunked\r\n\r\n"
        framed += b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in cut) + b"0\r\n\r\n"
    else:
        framed = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        if upload.startswith("bytes"):
            for byte in framed:
                client.send(bytes([byte]))
                await asyncio.sleep(0)
        else:
            client.send(framed)
        assert (await client.answer()).status == 200
        assert engine.requests[0].body == body
        assert engine.requests[0].one("content-length") == str(len(body)).encode()
        assert engine.requests[0].one("transfer-encoding") is None


async def _upload(client: RawClient, size: int, *, chunked: bool, expect: bool) -> Answer:
    """A JSON body of exactly so many bytes."""
    body = b'{"prompt":"' + b"p" * (size - 13) + b'"}'
    assert len(body) == size
    client.send(HEAD + (b"expect: 100-continue\r\n" if expect else b""))
    if not chunked:
        client.send(b"content-length: %d\r\n\r\n" % size)
    else:
        client.send(b"transfer-encoding: chunked\r\n\r\n")
    if expect:
        head = await client.head()
        if head.status != 100:
            return await client.rest(head)
    if chunked:
        for start in range(0, size, 50_000):
            piece = body[start : start + 50_000]
            client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        client.send(b"0\r\n\r\n")
    else:
        client.send(body)
    return await client.answer()


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("expect", [False, True])
async def test_bodies_to_the_limit_and_a_byte_beyond(chunked: bool, expect: bool) -> None:
    limit = 300_000
    async with GatedEngine() as engine, running_proxy([engine], limits={"body_bytes": limit}) as proxy:
        async with proxy.client() as client:
            answer = await _upload(client, limit, chunked=chunked, expect=expect)
            assert answer.status == 200
            assert len(engine.requests[0].body) == limit
        async with proxy.client() as client:
            answer = await _upload(client, limit + 1, chunked=chunked, expect=expect)
            assert (answer.status, answer.error_code) == (413, "body_too_large")
        assert len(engine.requests) == 1
        await proxy.ended(ok=1, client_error=1)


async def test_the_default_limit() -> None:
    """64 MiB, taken whole; one byte more is refused before it is sent."""
    limit = 64 << 20
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        async with proxy.client() as client:
            assert (await _upload(client, limit, chunked=False, expect=False)).status == 200
            assert len(engine.requests[0].body) == limit
            engine.requests.clear()
        async with proxy.client() as client:
            client.send(HEAD + b"content-length: %d\r\n\r\n" % (limit + 1))
            assert (await client.answer()).status == 413
        assert engine.requests == []


@pytest.mark.parametrize("value", ["100-continue", "100-Continue"])
async def test_expect_100_continue(value: str) -> None:
    """Answered once, before the body is sent, and not passed on; the connection serves on."""
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        for count in (1, 2):
            client.send(HEAD + f"expect: {value}\r\ncontent-length: 2\r\n\r\n".encode())
            interim = await client.head()
            assert (interim.status, interim.headers) == (100, [])
            client.send(b"{}")
            assert (await client.answer()).status == 200
            assert engine.requests[count - 1].one("expect") is None
            assert engine.requests[count - 1].body == b"{}"


async def test_expect_with_the_body_already_there() -> None:
    """Some clients do not wait: whether a 100 is still said is open, the answer is one."""
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(HEAD + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n{}")
        head = await client.head()
        if head.status == 100:
            head = await client.head()
        assert (await client.rest(head)).status == 200
        assert (await client.ask(post())).status == 200
        assert len(engine.requests) == 2


async def test_expect_of_a_request_that_is_refused_gets_no_100() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        for path, status in ((b"/nothing", 404), (b"/metrics", 404)):
            async with proxy.client() as client:
                client.send(b"POST %b HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n" % path)
                head = await client.head()
                if head.status == 100:
                    client.send(b"{}")
                    head = await client.head()
                assert head.status == status
        assert engine.requests == []


@pytest.mark.parametrize("keep_alive", [None, "keep-alive", "close"])
@pytest.mark.parametrize("framing", ["length", "chunked", "until close"])
async def test_http_1_0_clients(framing: str, keep_alive: str | None) -> None:
    """They get a body without chunks, whole, and a connection that is closed or said to be kept."""

    async def script(x: EngineExchange) -> None:
        if framing == "length":
            x.answer(200, TEXT)
        elif framing == "chunked":
            x.head(200, SSE)
            for start in range(0, len(TEXT), 30):
                x.chunk(TEXT[start : start + 30])
            x.end()
        else:
            x.head(200, [("content-type", "text/plain")])
            x.write(TEXT)
            x.close()

    connection = b"connection: %b\r\n" % keep_alive.encode() if keep_alive else b""
    request = b"POST /v1/completions HTTP/1.0\r\n%bcontent-length: 2\r\n\r\n{}" % connection
    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(request)
        answer = await client.head()
        assert answer.status == 200
        assert answer.one("transfer-encoding") is None
        if answer.one("connection") == "keep-alive":
            assert keep_alive == "keep-alive"
            assert answer.one("content-length") is not None
            assert (await client.rest(answer)).body == TEXT
            assert (await client.ask(request)).body == TEXT
        else:
            raw, reset = await client.everything()
            assert (raw, reset) == (TEXT, False)
            assert answer.one("content-length") in (None, str(len(TEXT)))
        assert engine.requests[0].one("host") == engine.url.removeprefix("http://").encode()
        await proxy.ended(ok=len(engine.requests))


async def test_errors_for_http_1_0_clients() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(b"POST /nothing HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}")
        answer = await client.answer()
        assert (answer.status, answer.error_code) == (404, "path_not_found")
        assert await client.everything() == (b"", False)
        assert engine.requests == []


async def test_pipelining_is_refused_cleanly() -> None:
    """The first request is answered whole, then the connection closes; the others reach no engine."""

    async def script(x: EngineExchange) -> None:
        await asyncio.sleep(0.01)
        x.answer(200, x.request.body)

    bodies = [json.dumps({"prompt": "x" * size}).encode() for size in (1, 100_000, 10)]
    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(b"".join(post("/v1/completions", body) for body in bodies))
        answer = await client.answer()
        assert (answer.status, answer.body) == (200, bodies[0])
        assert await client.reader.read(1) == b""
        assert len(engine.requests) == 1
        await proxy.ended(ok=1)


async def test_the_first_of_pipelined_requests_is_answered_whole() -> None:
    async def script(x: EngineExchange) -> None:
        x.head(200, SSE)
        for start in range(0, len(TEXT), 30):
            x.chunk(TEXT[start : start + 30])
            await asyncio.sleep(0)
        x.end()

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post() + post("/v1/completions", b'{"prompt":"' + b"x" * 200_000 + b'"}'))
        answer = await client.answer()
        assert (answer.status, answer.body, answer.complete) == (200, TEXT, True)
        assert engine.requests[0].target == "/v1/chat/completions"


async def test_a_request_sent_as_soon_as_the_answer_ended_is_no_pipelining() -> None:
    """Keep-alive without a pause, and with empty lines between, as old clients send."""
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        for between in (b"", b"\r\n", b"\r\n\r\n", b"") * 5:
            client.send(between + post())
            assert (await client.answer()).status == 200
        assert len(engine.requests) == 20


async def test_a_line_end_behind_a_body_is_no_pipelining() -> None:
    """Old clients send one; it neither ends the answer under way nor the connection."""
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        for count in (1, 2, 3):
            client.send(post() + b"\r\n")
            x = await engine.arrived(count)
            x.head(200, SSE)
            head = await client.head()
            x.chunk(TEXT)
            x.end()
            assert (await client.rest(head)).body == TEXT
        await proxy.ended(ok=3)


@pytest.mark.parametrize("value", ["close", "Close", "close, x-y", "x-y,close"])
async def test_clients_that_close_are_closed_to(value: str) -> None:
    """After the whole answer, which says so; the engine's connection is kept all the same."""
    request = post(headers=(("connection", value),))

    async def script(x: EngineExchange) -> None:
        x.head(200, SSE)
        x.chunk(TEXT)
        x.end()

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy:
        for _ in range(2):
            async with proxy.client() as client:
                answer = await client.ask(request)
                assert (answer.body, answer.complete, answer.one("connection")) == (TEXT, True, "close")
                assert await client.everything() == (b"", False)
        assert engine.requests[0].connection == engine.requests[1].connection
        await proxy.ended(ok=2)


async def test_uploads_pass_unparsed_and_whole() -> None:
    """Multipart and other bodies that are no JSON, in every framing."""
    body = random.randbytes(300_000)
    async with GatedEngine() as engine, running_proxy([engine], allow_paths=["/v1/files"]) as proxy:
        for path in ("/v1/audio/transcriptions", "/v1/files"):
            kind = ("content-type", "multipart/form-data; boundary=x")
            assert (await proxy.ask(post(path, body, (kind,)))).status == 200
            assert engine.requests[-1].body == body
            assert engine.requests[-1].one("content-type") == b"multipart/form-data; boundary=x"
            async with proxy.client() as client:
                client.send(b"POST %b HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" % path.encode())
                client.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
                assert (await client.answer()).status == 200
            assert engine.requests[-1].body == body


async def test_targets_pass_as_they_are() -> None:
    targets = ["/v1/completions?", "/v1/completions?a=%20b&a=c&%C3%A9", "/v1/completions?x=/../y", "/v1/%63ompletions"]
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        for target in targets:
            answer = await proxy.ask(post(target))
            if answer.status == 200:
                assert engine.requests[-1].target in (target, target.removesuffix("?"))
            else:
                assert (answer.status, target) == (404, "/v1/%63ompletions")
