"""Requests that no engine sees, and requests in unusual forms."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.gated_engine import EngineExchange, GatedEngine
from tests.support.raw_client import post
from tests.support.running_proxy import running_proxy

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\n"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"\xff\xfe", b"{}x", b"[" * 100_000, b'{"a":1'])
async def test_bodies_that_are_not_json_objects(body: bytes) -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post(body=body))
        assert (answer.status, answer.error_code) == (400, "invalid_json")
        assert json.loads(answer.body)["error"]["type"] == "invalid_request_error"
        assert engine.requests == []
        assert proxy.count("client_error", "none", "none") == 1


async def test_compressed_bodies_are_refused() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post(headers=(("content-encoding", "gzip"),)))
        assert (answer.status, answer.error_code) == (415, "unsupported_encoding")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/metrics",
        "/health",
        "/v1",
        "/v1/chat/completions/",
        "/V1/completions",
        "/v1/load_lora_adapter",
        "/sleep",
        "/v1/responses/..",
        "/v1/responses/a/b",
        "/start_profile",
        "/generate",
    ],
)
async def test_unknown_paths(path: str) -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post(path))
        assert (answer.status, answer.error_code) == (404, "path_not_found")
        assert engine.requests == []


async def test_allowed_paths_pass_unparsed() -> None:
    async with GatedEngine() as engine, running_proxy([engine], allow_paths=["/v1/realtime_token"]) as proxy:
        assert (await proxy.ask(post("/v1/realtime_token", b"\x00\x01"))).status == 200
        assert engine.requests[0].body == b"\x00\x01"
        assert (await proxy.ask(b"GET /v1/realtime_token HTTP/1.1\r\nhost: a\r\n\r\n", "GET")).status == 200
        assert engine.requests[1].one("content-length") is None


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/chat/completions", "OPTIONS, POST"),
        ("HEAD", "/v1/chat/completions", "OPTIONS, POST"),
        ("DELETE", "/v1/models", "GET, HEAD, OPTIONS"),
        ("PUT", "/v1/responses/r-1", "GET, HEAD, OPTIONS"),
    ],
)
async def test_wrong_methods(method: str, path: str, allow: str) -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(f"{method} {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode(), method)
        assert (answer.status, answer.one("allow")) == (405, allow)
        assert engine.requests == []


async def test_body_over_the_limit() -> None:
    async with GatedEngine() as engine, running_proxy([engine], limits={"body_bytes": 1000}) as proxy:
        async with proxy.client() as client:
            client.send(HEAD + b"expect: 100-continue\r\ncontent-length: 1001\r\n\r\n")
            answer = await client.answer()
            assert (answer.status, answer.error_code) == (413, "body_too_large")
        async with proxy.client() as client:
            client.send(HEAD + b"content-length: 5000000\r\n\r\n" + b"x" * 5_000_000)
            assert (await client.answer()).status == 413
            assert (await client.ask(post("/v1/completions", b"{}"))).status == 200
        async with proxy.client() as client:
            client.send(HEAD + b"transfer-encoding: chunked\r\n\r\n")
            for _ in range(3):
                client.send(b"190\r\n" + b" " * 400 + b"\r\n")
            assert (await client.answer()).status == 413
        assert len(engine.requests) == 1
        assert (await proxy.ask(post("/v1/completions", b"{}" + b" " * 998))).status == 200


async def test_body_that_stops() -> None:
    async with GatedEngine() as engine, running_proxy([engine], limits={"idle_timeout_s": 0.1}) as proxy:
        async with proxy.client() as client:
            client.send(post()[:-5])
            answer = await client.answer()
            assert (answer.status, answer.error_code) == (408, "body_timeout")
        assert engine.requests == []


@pytest.mark.parametrize("spread", [False, True])
async def test_heads_over_64_kib(spread: bool) -> None:
    fields = b"".join(b"x-%d: %b\r\n" % (n, b"y" * 1000) for n in range(70)) if spread else b"x: " + b"y" * 70_000
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(HEAD + fields + (b"\r\n" if spread else b""))
        answer = await client.answer()
        assert (answer.status, answer.error_code) == (431, "head_too_large")
        assert answer.one("connection") == "close"
        assert await client.closed() == b""
        assert engine.requests == []


async def test_heads_just_below_the_limit_pass() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post(headers=tuple((f"x-{n}", "y" * 1000) for n in range(60))))
        assert answer.status == 200
        assert len(engine.requests[0].all("x-59")) == 1


FRAMINGS = {
    "both": b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "both, turned": b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "the same length twice": b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}",
    "a list of lengths": b"content-length: 2, 2\r\n\r\n{}",
    "a signed length": b"content-length: +2\r\n\r\n{}",
    "a hexadecimal length": b"content-length: 0x2\r\n\r\n{}",
    "an unknown coding": b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "identity": b"transfer-encoding: identity\r\n\r\n{}",
    "a coding inside": b"transfer-encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunked twice": b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a space before the colon": b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    "a vertical tab": b"transfer-encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "a folded field": b"x: a\r\n b\r\ncontent-length: 2\r\n\r\n{}",
    "a NUL": b"x: a\x00b\r\ncontent-length: 2\r\n\r\n{}",
    "a bare CR": b"x: a\rb\r\ncontent-length: 2\r\n\r\n{}",
    "a bad name": b"x[: a\r\ncontent-length: 2\r\n\r\n{}",
    "a second host": b"host: b\r\ncontent-length: 2\r\n\r\n{}",
    "a chunk size that is none": b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a chunk too long": b"transfer-encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("name", FRAMINGS)
async def test_contradictory_framing(name: str) -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(HEAD + FRAMINGS[name] + post())
        answer = await client.answer()
        assert answer.status == 400
        assert json.loads(answer.body)["error"]["type"] == "invalid_request_error"
        assert answer.one("connection") == "close"
        assert await client.closed() == b""
        assert engine.requests == []


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"POST /v1/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}", 400),
        (b"POST /v1/completions HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400),
        (b"POST /v1/completions HTTP/2.0\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}", 505),
        (b"GET /v1/models\r\n\r\n", 505),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"POST /v1/\xc3\xa9 HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        (b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n", 400),
    ],
)
async def test_requests_that_are_not_http_1(raw: bytes, status: int) -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(raw)
        assert (await client.answer()).status == status
        assert engine.requests == []


async def test_rubbish_behind_a_good_request_does_not_spoil_its_answer() -> None:
    async def script(x: EngineExchange) -> None:
        x.answer(200, b"good")

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post() + b"\x00rubbish\r\n\r\n")
        answer = await client.answer()
        assert (answer.status, answer.body) == (200, b"good")
        assert await client.closed() == b""


@pytest.mark.parametrize("together", [True, False])
async def test_pipelined_requests_are_refused(together: bool) -> None:
    """The first is answered whole, then the connection ends: its client may send the others again."""

    async def script(x: EngineExchange) -> None:
        await go.wait()
        x.answer(200, x.request.body)

    go = asyncio.Event()
    first, second = b'{"prompt": 1}', b'{"prompt": 2}'
    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        if together:
            client.send(post("/v1/completions", first) + post("/v1/completions", second) * 1000)
            await engine.arrived()
        else:
            client.send(post("/v1/completions", first))
            await engine.arrived()
            client.send(post("/v1/completions", second) * 1000)
        go.set()
        answer = await client.answer()
        assert answer.body == first
        assert answer.one("connection") in ("close", None if not together else "close")
        assert await client.closed() == b""
        assert len(engine.requests) == 1
        await proxy.counted("ok")


async def test_chunked_upload_is_sent_with_its_length() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n1;a=b\r\n}\r\n0\r\nx-trailer: 1\r\n\r\n")
        assert (await client.answer()).status == 200
        assert engine.requests[0].body == b"{}"
        assert engine.requests[0].one("content-length") == b"2"
        assert engine.requests[0].one("transfer-encoding") is None
        assert engine.requests[0].one("x-trailer") is None


async def test_head_and_options() -> None:
    async def script(x: EngineExchange) -> None:
        if x.request.method == "HEAD":
            x.head(200, [("content-length", "17"), ("x-engine", "1")])
        else:
            x.head(204, [("access-control-allow-origin", "*")])

    async with GatedEngine(script) as engine, running_proxy([engine], allow_paths=["/x"]) as proxy:
        async with proxy.client() as client:
            answer = await client.ask(b"HEAD /x HTTP/1.1\r\nhost: a\r\n\r\n", "HEAD")
            assert (answer.status, answer.one("content-length"), answer.one("x-engine")) == (200, "17", "1")
            answer = await client.ask(
                b"OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: a\r\norigin: http://b\r\n\r\n", "OPTIONS"
            )
            assert (answer.status, answer.one("access-control-allow-origin")) == (204, "*")
        assert [request.method for request in engine.requests] == ["HEAD", "OPTIONS"]


async def test_offer_to_upgrade_is_not_taken() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        headers = (("connection", "upgrade, http2-settings"), ("upgrade", "h2c"), ("http2-settings", "AAM"))
        answer = await client.ask(post(headers=headers))
        assert answer.status == 200
        request = engine.requests[0]
        assert request.one("upgrade") is request.one("http2-settings") is request.one("connection") is None
        assert request.body == post().partition(b"\r\n\r\n")[2]
        assert (await client.ask(post())).status == 200


async def test_a_request_behind_one_that_was_refused_and_closed_is_not_served() -> None:
    """The first is answered before its body came and asks for the close; what stands behind its body is not heard."""
    first = b"POST /nowhere HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 5\r\n\r\n"
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(first)
        assert (await client.answer()).status == 404
        client.send(b"12345" + post() + b"rubbish\r\n\r\n")
        assert await client.closed() == b""
        assert engine.requests == []
        await proxy.ended(client_error=1)
