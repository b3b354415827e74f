"""An engine whose every byte is scripted: heads, chunks, silences, deaths; it records what came, and its leaving."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import httptools

__all__ = ["Arrived", "EngineExchange", "GatedEngine", "Script", "answer_json", "until"]

DEADLINE_S = 10.0
METRICS_PAGE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 0.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
"""


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, at most ten seconds."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110  # what is waited for has no event
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"did not happen: {what}") from None


@dataclass
class Arrived:
    """A request as it reached the engine."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    connection: int
    """Which connection it came on, counted from 0."""

    def all(self, name: str) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name.encode()]

    def one(self, name: str) -> bytes | None:
        values = self.all(name)
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None


@dataclass
class EngineExchange:
    """The engine's side of one request."""

    request: Arrived
    transport: asyncio.Transport
    left: asyncio.Event
    """Set when the other side has closed the connection."""
    writable: asyncio.Event = field(default_factory=asyncio.Event)

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def head(self, status: int = 200, headers: Sequence[tuple[str, str]] = (("transfer-encoding", "chunked"),)) -> None:
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers), "", ""]
        self.write("\r\n".join(lines).encode("latin-1"))

    def chunk(self, data: bytes) -> None:
        self.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self.write(b"0\r\n\r\n")

    def answer(self, status: int, body: bytes, headers: Sequence[tuple[str, str]] = ()) -> None:
        self.head(status, [*headers, ("content-length", str(len(body)))])
        self.write(body)

    def close(self) -> None:
        self.transport.close()

    def die(self) -> None:
        self.transport.abort()

    async def gone(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await self.left.wait()


Script = Callable[[EngineExchange], Awaitable[None]]


def answer_json(status: int = 200, body: object = None, headers: Sequence[tuple[str, str]] = ()) -> Script:
    """A script that answers with JSON at once."""
    text = json.dumps({"ok": True} if body is None else body).encode()

    async def script(exchange: EngineExchange) -> None:
        exchange.answer(status, text, [("content-type", "application/json"), *headers])

    return script


class GatedEngine:
    """Serves ``script`` to every request except health, metrics and the model list."""

    def __init__(self, script: Script | None = None, *, models: list[str] | None = None) -> None:
        self.script: Script = script or answer_json()
        self.models = models
        self.requests: list[Arrived] = []
        self.exchanges: list[EngineExchange] = []
        self.connections = 0
        self.open_connections: set[asyncio.Transport] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.healthy = True
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def arrived(self, count: int = 1) -> EngineExchange:
        """The exchange of the ``count``-th request, once it has come."""
        await until(lambda: len(self.exchanges) >= count, f"request {count} at the engine")
        return self.exchanges[count - 1]

    async def __aenter__(self) -> GatedEngine:
        self._server = await asyncio.get_running_loop().create_server(lambda: _Connection(self), "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def stop(self) -> None:
        """Stop listening and drop what is open, as a killed process would."""
        if self._server is not None:
            self._server.close()
        for transport in list(self.open_connections):
            transport.abort()


class _Connection(asyncio.Protocol):
    def __init__(self, engine: GatedEngine) -> None:
        self._engine = engine
        self._left = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._number = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._number = self._engine.connections
        self._engine.connections += 1
        self._engine.open_connections.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._engine.open_connections.discard(self._transport)
        self._left.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        engine = self._engine
        request = Arrived(
            self._parser.get_method().decode(),
            self._target.decode(),
            self._headers,
            b"".join(self._body),
            self._number,
        )
        exchange = EngineExchange(request, self._transport, self._left, self._writable)
        script = self._housekeeping(request.target)
        if script is None:
            engine.requests.append(request)
            engine.exchanges.append(exchange)
            script = engine.script
        task = asyncio.get_running_loop().create_task(self._run(script, exchange))
        engine.tasks.add(task)
        task.add_done_callback(engine.tasks.discard)

    async def _run(self, script: Script, exchange: EngineExchange) -> None:
        await script(exchange)

    def _housekeeping(self, target: str) -> Script | None:
        if target == "/health":
            return answer_json(200 if self._engine.healthy else 503)
        if target == "/metrics":
            return _metrics
        if target == "/v1/models":
            if self._engine.models is None:
                return answer_json(500, {})
            entries = [{"id": name, "object": "model"} for name in self._engine.models]
            return answer_json(200, {"object": "list", "data": entries})
        return None


async def _metrics(exchange: EngineExchange) -> None:
    exchange.answer(200, METRICS_PAGE.encode(), [("content-type", "text/plain; version=0.0.4")])
