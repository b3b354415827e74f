"""Requests and answers that two parsers could read differently: read one way only, or not at all.

Behind every doubtful request lies another one, the canary. An engine that sees it, or any byte of it as a head, has
been smuggled to.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.gated_engine import EngineExchange, GatedEngine
from tests.support.raw_client import dechunked, post
from tests.support.running_proxy import running_proxy

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\n"
CANARY = b"POST /v1/embeddings HTTP/1.1\r\nhost: canary\r\ncontent-length: 2\r\n\r\n{}"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
WHOLE = b"2\r\n{}\r\n0\r\n\r\n"
LENGTH = b"content-length: 2\r\n\r\n{}"

# The bytes behind HEAD, and whether the request may be served all the same: then as the one reading that is right.
REFUSED = {
    # two framings
    "length and chunked": b"content-length: 6\r\n" + CHUNKED + b"0\r\n\r\nG",
    "chunked and length": b"transfer-encoding: chunked\r\ncontent-length: 6\r\n\r\n0\r\n\r\nG",
    "chunked and length 0": b"content-length: 0\r\n" + CHUNKED + WHOLE,
    "chunked in other case, and length": b"Content-Length: 6\r\nTRANSFER-ENCODING: CHUNKED\r\n\r\n0\r\n\r\nG",
    "two lengths": b"content-length: 2\r\ncontent-length: 50\r\n\r\n{}",
    "two lengths, turned": b"content-length: 50\r\ncontent-length: 2\r\n\r\n{}",
    "two equal lengths": b"content-length: 2\r\nx: y\r\ncontent-length: 2\r\n\r\n{}",
    "a list of lengths": b"content-length: 2, 2\r\n\r\n{}",
    "a list of other lengths": b"content-length: 2, 50\r\n\r\n{}",
    # lengths
    "a negative length": b"content-length: -1\r\n\r\n{}",
    "a signed length": b"content-length: +2\r\n\r\n{}",
    "a length with a point": b"content-length: 2.0\r\n\r\n{}",
    "a length with an exponent": b"content-length: 2e0\r\n\r\n{}",
    "a hexadecimal length": b"content-length: 0x2\r\n\r\n{}",
    "a length of two words": b"content-length: 2 2\r\n\r\n{}",
    "a length of an underscore": b"content-length: 1_0\r\n\r\n{}",
    "no length": b"content-length:\r\n\r\n{}",
    "a length beyond 64 bits": b"content-length: 18446744073709551618\r\n\r\n{}",
    "a length of other digits": "content-length: ２\r\n\r\n{}".encode(),
    # codings
    "an unknown coding": b"transfer-encoding: xchunked\r\n\r\n" + WHOLE,
    "a coding with a tail": b"transfer-encoding: chunkedx\r\n\r\n" + WHOLE,
    "a coding with a parameter": b"transfer-encoding: chunked;q=1\r\n\r\n" + WHOLE,
    "a coding in quotes": b'transfer-encoding: "chunked"\r\n\r\n' + WHOLE,
    "identity": b"transfer-encoding: identity\r\n\r\n{}",
    "identity, then chunked": b"transfer-encoding: identity, chunked\r\n\r\n" + WHOLE,
    "chunked, then identity": b"transfer-encoding: chunked, identity\r\n\r\n" + WHOLE,
    "gzip, then chunked": b"transfer-encoding: gzip, chunked\r\n\r\n" + WHOLE,
    "chunked twice in a list": b"transfer-encoding: chunked, chunked\r\n\r\n" + WHOLE,
    "chunked twice": b"transfer-encoding: chunked\r\n" + CHUNKED + WHOLE,
    "chunked, then another field": b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n" + WHOLE,
    "an empty element": b"transfer-encoding: chunked,\r\n\r\n" + WHOLE,
    "an empty first element": b"transfer-encoding: ,chunked\r\n\r\n" + WHOLE,
    "no coding": b"transfer-encoding:\r\n\r\n{}",
    "a vertical tab before": b"transfer-encoding:\x0bchunked\r\n\r\n" + WHOLE,
    "a vertical tab behind": b"transfer-encoding: chunked\x0b\r\n\r\n" + WHOLE,
    "a form feed": b"transfer-encoding: \x0cchunked\r\n\r\n" + WHOLE,
    "a byte beyond ASCII": b"transfer-encoding: chunked\xa0\r\n\r\n" + WHOLE,
    "a NUL in the coding": b"transfer-encoding: chunked\x00\r\n\r\n" + WHOLE,
    # names and lines
    "a space before the colon": b"transfer-encoding : chunked\r\n\r\n" + WHOLE,
    "a tab before the colon": b"transfer-encoding\t: chunked\r\n\r\n" + WHOLE,
    "a space before the colon of a length": b"content-length : 2\r\n\r\n{}",
    "a folded coding": b"transfer-encoding:\r\n chunked\r\n\r\n" + WHOLE,
    "a folded coding with a tab": b"transfer-encoding:\r\n\tchunked\r\n\r\n" + WHOLE,
    "a coding folded into another field": b"x: y\r\n transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n{}",
    "a space before the first field": b" x: y\r\n" + LENGTH,
    "a field without a colon": b"nonsense\r\n" + LENGTH,
    "a field without a name": b": x\r\n" + LENGTH,
    "a name with a space": b"x y: z\r\n" + LENGTH,
    "a name with a NUL": b"content-length\x00: 9\r\n" + LENGTH,
    "a name beyond ASCII": b"x\xe9: y\r\n" + LENGTH,
    "a bare LF behind a field": b"x: y\ntransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n{}",
    "a bare LF as the last line": b"content-length: 2\r\n\n{}",
    "bare LFs only": b"content-length: 2\n\n{}",
    "a bare CR in a value": b"x: a\rtransfer-encoding: chunked\r\n" + LENGTH,
    "a bare CR for a line end": b"x: y\rcontent-length: 2\r\n\r\n{}",
    "a CR twice": b"x: y\r\r\ncontent-length: 2\r\n\r\n{}",
    "a NUL in a value": b"x: a\x00b\r\n" + LENGTH,
    "a control character in a value": b"x: a\x08b\r\n" + LENGTH,
    # hosts
    "a second host": b"host: b\r\n" + LENGTH,
    # chunks
    "a negative chunk": CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n",
    "a signed chunk": CHUNKED + b"+2\r\n{}\r\n0\r\n\r\n",
    "a chunk with 0x": CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n",
    "a chunk of other digits": CHUNKED + b"g\r\n{}\r\n0\r\n\r\n",
    "a chunk without a size": CHUNKED + b"\r\n{}\r\n0\r\n\r\n",
    "a chunk size before a bare LF": CHUNKED + b"2\n{}\r\n0\r\n\r\n",
    "a chunk ended by a bare LF": CHUNKED + b"2\r\n{}\n0\r\n\r\n",
    "a chunk ended by rubbish": CHUNKED + b"2\r\n{}xx0\r\n\r\n",
    "a chunk that is longer": CHUNKED + b"1\r\n{}\r\n0\r\n\r\n",
    "a space before a chunk's size": CHUNKED + b" 2\r\n{}\r\n0\r\n\r\n",
    "a chunk beyond 64 bits": CHUNKED + b"10000000000000002\r\n{}\r\n0\r\n\r\n",
    "a chunk size of many digits": CHUNKED + b"f" * 40 + b"\r\n{}\r\n0\r\n\r\n",
    "an extension with a bare LF": CHUNKED + b"2;a\nb\r\n{}\r\n0\r\n\r\n",
    "an extension with a bare CR": CHUNKED + b"2;a\rb\r\n{}\r\n0\r\n\r\n",
    "an extension with a NUL": CHUNKED + b"2;a\x00b\r\n{}\r\n0\r\n\r\n",
    "a folded trailer": CHUNKED + b"2\r\n{}\r\n0\r\nx: y\r\n z\r\n\r\n",
    "a trailer with a bare LF": CHUNKED + b"2\r\n{}\r\n0\r\nx: y\nz: w\r\n\r\n",
    "a trailer without a colon": CHUNKED + b"2\r\n{}\r\n0\r\nnonsense\r\n\r\n",
}

EITHER = {
    # Legal, if odd: one reading only, so a strict proxy may refuse and a tolerant one may serve.
    "zeros before a length": b"content-length: 002\r\n\r\n{}",
    "spaces around a length": b"content-length: \t 2 \t\r\n\r\n{}",
    "no space before a length": b"content-length:2\r\n\r\n{}",
    "chunked in other case": b"Transfer-Encoding: CHUNKED\r\n\r\n" + WHOLE,
    "a tab before chunked": b"transfer-encoding:\tchunked\r\n\r\n" + WHOLE,
    "spaces around chunked": b"transfer-encoding:   chunked \t \r\n\r\n" + WHOLE,
    "a chunk size with zeros": CHUNKED + b"0002\r\n{}\r\n000\r\n\r\n",
    "a space behind a chunk's size": CHUNKED + b"2 \r\n{}\r\n0\r\n\r\n",
    "a chunk with an extension": CHUNKED + b"2;name=value\r\n{}\r\n0;last\r\n\r\n",
    "an extension in quotes": CHUNKED + b'2;a="b c"\r\n{}\r\n0\r\n\r\n',
    "a trailer": CHUNKED + b"2\r\n{}\r\n0\r\nx-trailer: y\r\n\r\n",
    "a trailer with a length": CHUNKED + b"2\r\n{}\r\n0\r\ncontent-length: 50\r\n\r\n",
    "a trailer with a coding": CHUNKED + b"2\r\n{}\r\n0\r\ntransfer-encoding: chunked\r\n\r\n",
    "a trailer with a key": CHUNKED + b"2\r\n{}\r\n0\r\nauthorization: Bearer x\r\n\r\n",
    "a trailer of ours": CHUNKED + b"2\r\n{}\r\n0\r\nx-adaptive-gamma-class: code\r\nhost: evil\r\n\r\n",
    "a name with an underscore": b"content_length: 50\r\ntransfer_encoding: chunked\r\n" + LENGTH,
    "an empty value": b"x:\r\n" + LENGTH,
    "bytes beyond ASCII in a value": b"x: \xff\xc3\xa9\r\n" + LENGTH,
}


@pytest.mark.parametrize("name", REFUSED)
async def test_doubtful_requests_are_refused(name: str) -> None:
    """400 and closed, at the latest when the doubtful byte has come; nothing reaches an engine."""
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(HEAD + REFUSED[name] + CANARY)
        raw, _ = await client.everything()
        assert raw.startswith(b"HTTP/1.1 400 "), raw[:300]
        head, _, body = raw.partition(b"\r\n\r\n")
        assert b"\r\nconnection: close" in head.lower()
        assert json.loads(body)["error"]["type"] == "invalid_request_error"
        assert engine.requests == []
        assert (await proxy.ask(post())).status == 200
        assert (await proxy.metrics()).in_flight == [0]


@pytest.mark.parametrize("name", EITHER)
async def test_odd_requests_are_read_one_way(name: str) -> None:
    """Refused, or sent on as one request whose framing is a plain length."""
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(HEAD + EITHER[name])
        answer = await client.answer()
        if answer.status == 400:
            assert await client.closed() == b""
            assert engine.requests == []
            return
        assert answer.status == 200
        (request,) = engine.requests
        assert request.body == b"{}"
        assert request.one("content-length") == b"2"
        assert request.one("host") == engine.url.removeprefix("http://").encode()
        for gone in ("transfer-encoding", "x-trailer", "authorization", "x-adaptive-gamma-class"):
            assert request.one(gone) is None
        assert answer.one("x-adaptive-gamma-class") != "structured"
        assert (await client.ask(post())).status == 200
        assert engine.requests[1].target == "/v1/chat/completions"
        received = bytes(engine.received[request.connection])
        assert received.count(b"HTTP/1.1\r\n") == 2
        assert b"name=value" not in received


LINES = {
    "bare LF": b"POST /v1/completions HTTP/1.1\nhost: a\r\n" + LENGTH,
    "no version": b"POST /v1/completions\r\n\r\n",
    "version 0.9": b"POST /v1/completions HTTP/0.9\r\nhost: a\r\n" + LENGTH,
    "version 1.2": b"POST /v1/completions HTTP/1.2\r\nhost: a\r\n" + LENGTH,
    "version 2": b"POST /v1/completions HTTP/2\r\nhost: a\r\n" + LENGTH,
    "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "lower case": b"POST /v1/completions http/1.1\r\nhost: a\r\n" + LENGTH,
    "RTSP": b"POST /v1/completions RTSP/1.0\r\nhost: a\r\n" + LENGTH,
    "ICE": b"POST /v1/completions ICE/1.0\r\nhost: a\r\n" + LENGTH,
    "another protocol": b"POST /v1/completions HTTPS/1.1\r\nhost: a\r\n" + LENGTH,
    "a tab": b"POST\t/v1/completions\tHTTP/1.1\r\nhost: a\r\n" + LENGTH,
    "a word too many": b"POST /v1/completions HTTP/1.1 HTTP/1.1\r\nhost: a\r\n" + LENGTH,
    "a space in the target": b"POST /v1/completions x HTTP/1.1\r\nhost: a\r\n" + LENGTH,
    "a NUL in the target": b"POST /v1/completions\x00 HTTP/1.1\r\nhost: a\r\n" + LENGTH,
    "a CR in the target": b"POST /v1/comple\rtions HTTP/1.1\r\nhost: a\r\n" + LENGTH,
    "no method": b" /v1/completions HTTP/1.1\r\nhost: a\r\n" + LENGTH,
    "an unknown method": b"PSOT /v1/completions HTTP/1.1\r\nhost: a\r\n" + LENGTH,
    "a method in lower case": b"post /v1/completions HTTP/1.1\r\nhost: a\r\n" + LENGTH,
    "a tunnel": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nhost: a\r\n\r\n",
    "no host": b"POST /v1/completions HTTP/1.1\r\n" + LENGTH,
}


OTHER_PROTOCOL = pytest.mark.xfail(strict=True, reason="the parser takes RTSP/1.0 for HTTP/1.0")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=OTHER_PROTOCOL) if name == "RTSP" else name for name in LINES]
)
async def test_request_lines_that_are_none(name: str) -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(LINES[name] + CANARY)
        raw, _ = await client.everything()
        assert raw.split(b" ", 2)[1] in (b"400", b"404", b"405", b"501", b"505"), raw[:200]
        assert engine.requests == []
        assert b" 200 " not in raw.split(b"\r\n")[0]


@pytest.mark.parametrize(
    "target",
    ["http://engine.evil/v1/completions", "https://a:99/v1/completions", "//v1/completions", "*", "/v1//completions"],
)
async def test_targets_that_name_another_place(target: str) -> None:
    """Never sent as they are: an engine would take the host in it for its own."""
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post(target, b'{"prompt":"x"}'))
        if answer.status == 200:
            (request,) = engine.requests
            assert request.target == "/v1/completions"
            assert request.one("host") == engine.url.removeprefix("http://").encode()
        else:
            assert answer.status in (400, 404)
            assert engine.requests == []


async def test_a_head_in_many_small_fields_or_one_long_line_has_a_limit() -> None:
    heads = {
        "a long target": b"POST /v1/completions?" + b"a" * 70_000,
        "a long value": HEAD + b"x: " + b"y" * 70_000,
        "a long name": HEAD + b"x" * 70_000,
        "many fields": HEAD + b"x: y\r\n" * 12_000,
        "many empty lines": b"\r\n" * 40_000,
    }
    for name, head in heads.items():
        async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
            for start in range(0, len(head), 1000):
                client.send(head[start : start + 1000])
                await asyncio.sleep(0)
            if name == "many empty lines":
                client.send(post())
                assert (await client.answer()).status in (200, 400, 431)
                continue
            answer = await client.answer()
            assert (answer.status, answer.error_code) == (431, "head_too_large"), name
            assert await client.closed() == b""
            assert engine.requests == []


@pytest.mark.parametrize("what", ["extension", "trailers", "one trailer"])
async def test_extensions_and_trailers_have_a_limit(what: str) -> None:
    """They are neither kept nor counted as body; without a limit a client could send them for ever."""
    pieces = {
        "extension": b"2;" + b"x" * 300_000 + b"\r\n{}\r\n0\r\n\r\n",
        "trailers": b"2\r\n{}\r\n0\r\n" + b"x: yyyyyyyyyy\r\n" * 20_000 + b"\r\n",
        "one trailer": b"2\r\n{}\r\n0\r\nx: " + b"y" * 300_000 + b"\r\n\r\n",
    }
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(HEAD + CHUNKED + pieces[what])
        answer = await client.answer()
        assert answer.status in (400, 413, 431)
        assert engine.requests == []


async def test_many_tiny_chunks_count_as_their_bytes() -> None:
    body = b'{"prompt":"' + b"p" * 3000 + b'"}'
    wire = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    async with GatedEngine() as engine, running_proxy([engine], limits={"body_bytes": len(body)}) as proxy:
        async with proxy.client() as client:
            client.send(HEAD + CHUNKED + wire)
            assert (await client.answer()).status == 200
            assert engine.requests[0].body == body
        async with proxy.client() as client:
            client.send(HEAD + CHUNKED + wire.replace(b"0\r\n\r\n", b"1\r\n \r\n0\r\n\r\n"))
            assert (await client.answer()).status == 413


# -- answers ---------------------------------------------------------------------------------------------------------

BAD_ANSWERS = {
    "length and chunked": b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "two lengths": b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "a list of lengths": b"content-length: 2, 3\r\n\r\n{}",
    "a negative length": b"content-length: -2\r\n\r\n{}",
    "a signed length": b"content-length: +2\r\n\r\n{}",
    "a length that is none": b"content-length: two\r\n\r\n{}",
    "a length beyond 64 bits": b"content-length: 18446744073709551618\r\n\r\n{}",
    "a folded field": b"x: a\r\n b\r\ncontent-length: 2\r\n\r\n{}",
    "a NUL": b"x: a\x00b\r\ncontent-length: 2\r\n\r\n{}",
    "a bare CR": b"x: a\rset-cookie: b=c\r\ncontent-length: 2\r\n\r\n{}",
    "a bare LF": b"x: a\nset-cookie: b=c\r\ncontent-length: 2\r\n\r\n{}",
    "a field without a colon": b"nonsense\r\ncontent-length: 2\r\n\r\n{}",
    "a name with a space": b"x y: z\r\ncontent-length: 2\r\n\r\n{}",
    "a space before the colon": b"content-length : 2\r\n\r\n{}",
    "a first chunk that is none": b"transfer-encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_doubtful_answers_are_errors(name: str) -> None:
    """Never passed on as they are: a parser behind us could read them otherwise."""

    async def script(x: EngineExchange) -> None:
        x.write(b"HTTP/1.1 200 OK\r\n" + BAD_ANSWERS[name])

    async with GatedEngine(script) as engine, running_proxy([engine, engine]) as proxy, proxy.client() as client:
        client.send(post())
        answer = await client.answer()
        if "chunk that" in name:
            assert (answer.status, answer.complete, answer.body) == (200, False, b"") or answer.status == 502
        else:
            assert (answer.status, answer.error_code) == (502, "engine_broke_off")
        assert len(engine.requests) == 1
        await engine.exchanges[0].gone()
        await proxy.ended(protocol_error=1)


async def test_what_engines_say_beside_the_body_stays_out_of_it() -> None:
    """Chunk extensions and trailers are hop by hop; a forged field of ours in them reaches no client."""

    async def script(x: EngineExchange) -> None:
        x.write(
            b"HTTP/1.1 200 OK\r\ntrailer: x-t\r\ntransfer-encoding: chunked\r\n\r\n"
            b'2;sig="a"\r\nab\r\n02\r\ncd\r\n0;last=1\r\n'
            b"x-t: 1\r\nx-adaptive-gamma-replica: forged\r\nset-cookie: a=b\r\n\r\n"
        )

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        for _ in range(2):
            client.send(post())
            head = await client.head()
            assert head.one("trailer") is None
            async with asyncio.timeout(10):
                raw = await client.reader.readuntil(b"0\r\n\r\n")
            assert dechunked(raw) == (b"abcd", True)
            assert b"forged" not in raw
            assert b"set-cookie" not in raw
            assert b"sig" not in raw
        assert len(engine.requests) == 2
        await proxy.ended(ok=2)


async def test_a_body_for_head_and_304_is_never_the_next_answer() -> None:
    """An engine that sends one where there is none: the next client gets its own answer."""
    for request, method, status in ((b"HEAD /x HTTP/1.1\r\nhost: a\r\n\r\n", "HEAD", 200), (post("/x"), "POST", 304)):

        async def script(x: EngineExchange, status: int = status) -> None:
            first = x.request is engine.requests[0]
            x.answer(
                status if first else 200, b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison" if first else b"good"
            )

        async with (
            GatedEngine(script) as engine,
            running_proxy([engine], allow_paths=["/x"]) as proxy,
            proxy.client() as client,
        ):
            assert (await client.ask(request, method)).status == status
            assert (await client.ask(post())).body == b"good"
