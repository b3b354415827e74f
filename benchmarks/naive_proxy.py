"""The proxy one writes first: a FastAPI route, one ``httpx.AsyncClient`` and a ``StreamingResponse``.

Written to be as good as that form gets without leaving it: no limit on connections and time (the library's own would
fail streams), bytes passed as they come, least requests in flight, connections released in ``finally``.
Run as ``python -m benchmarks.naive_proxy PORT ENGINE_PORT ENGINE_PORT``.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

__all__ = ["naive_app"]

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length"}
)


@dataclass
class _Engine:
    url: str
    in_flight: int = 0


def naive_app(engine_ports: list[int]) -> FastAPI:
    """Passes ``POST /v1/...`` to the engine with the fewest requests in flight."""
    app = FastAPI()
    engines = [_Engine(f"http://127.0.0.1:{port}") for port in engine_ports]
    client = httpx.AsyncClient(
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None), timeout=None, trust_env=False
    )

    async def relay(answer: httpx.Response, engine: _Engine) -> AsyncIterator[bytes]:
        try:
            async for piece in answer.aiter_raw():
                yield piece
        finally:
            engine.in_flight -= 1
            await answer.aclose()

    @app.post("/v1/{path:path}")
    async def generate(path: str, request: Request) -> StreamingResponse:
        await request.json()  # any router has to know the model's name
        engine = min(engines, key=lambda each: each.in_flight)
        headers = [(name, value) for name, value in request.headers.items() if name not in _HOP_BY_HOP]
        asked = client.build_request("POST", f"{engine.url}/v1/{path}", headers=headers, content=await request.body())
        engine.in_flight += 1
        try:
            answer = await client.send(asked, stream=True)
        except BaseException:
            engine.in_flight -= 1
            raise
        kept = {name: value for name, value in answer.headers.items() if name not in _HOP_BY_HOP - {"content-length"}}
        return StreamingResponse(relay(answer, engine), answer.status_code, headers=kept)

    return app


if __name__ == "__main__":
    port, *engine_ports = (int(argument) for argument in sys.argv[1:])
    uvicorn.run(
        naive_app(engine_ports),
        host="127.0.0.1",
        port=port,
        backlog=4096,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=1,  # it never learns that clients have left, and would wait for them
    )
