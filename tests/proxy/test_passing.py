"""What passes through unchanged."""

from __future__ import annotations

import json

from tests.support.gated_engine import EngineExchange, GatedEngine, answer_json
from tests.support.raw_client import post
from tests.support.running_proxy import running_proxy

PIECES = [
    b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
    "data: é".encode()[:-1],
    "é\u2028\n\n".encode()[1:],
    b": a comment\r\n\r\n",
    b"data: x\r\ndata: y\r\n\r\n",
    b'event: error\ndata: {"error":{"message":"out of memory"}}\n\n',
    b"data: [DONE]\n\n",
]


async def test_request_and_answer_pass_byte_for_byte() -> None:
    body = b'{ "model" :"m",\t"messages":[ {"role":"user","content":"\\u00e9 \xc3\xa9"}], "x": 1.0e0 }'
    answer = answer_json(200, {"id": "1"}, [("x-engine", "yes")])
    async with GatedEngine(answer) as engine, running_proxy([engine]) as proxy:
        got = await proxy.ask(post("/v1/chat/completions?a=%20b&a=c", body))
        assert got.status == 200
        assert json.loads(got.body) == {"id": "1"}
        assert got.one("x-engine") == "yes"
        request = engine.requests[0]
        assert request.body == body
        assert request.target == "/v1/chat/completions?a=%20b&a=c"
        assert request.one("content-length") == str(len(body)).encode()
        assert proxy.count("ok", "r0") == 1


async def test_chunks_pass_as_they_come_and_verbatim() -> None:
    async def script(x: EngineExchange) -> None:
        x.head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post())
        x = await engine.arrived()
        answer = await client.head()
        assert answer.one("content-type") == "text/event-stream"
        for piece in PIECES:
            x.chunk(piece)
            assert await client.chunk() == piece
        x.end()
        assert await client.chunk() == b""
        await proxy.counted("ok")


async def test_many_chunks_at_once_lose_no_byte() -> None:
    pieces = [b"data: %d\n\n" % number for number in range(2000)]

    async def script(x: EngineExchange) -> None:
        x.head()
        for piece in pieces:
            x.chunk(piece)
        x.end()

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy:
        assert (await proxy.ask(post())).body == b"".join(pieces)


async def test_large_upload_and_large_answer() -> None:
    big = json.dumps({"model": "m", "prompt": "x" * 8_000_000}).encode()

    async def script(x: EngineExchange) -> None:
        x.answer(200, x.request.body)

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        answer = await client.ask(post("/v1/completions", big))
        assert answer.body == big


async def test_kept_connections_are_used_again() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        for _ in range(20):
            assert (await client.ask(post())).status == 200
        assert len({request.connection for request in engine.requests}) == 1
        opened = proxy.plane.metrics.registry.get_sample_value(
            "adaptive_gamma_upstream_connections_opened_total", {"replica": "r0"}
        )
        assert opened == 1


async def test_interim_answers_are_skipped() -> None:
    async def script(x: EngineExchange) -> None:
        x.write(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")
        x.answer(200, b"{}")

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post())
        assert (answer.status, answer.body) == (200, b"{}")
        assert answer.one("link") is None
