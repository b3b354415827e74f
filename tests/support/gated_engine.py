"""An engine whose every byte is scripted: heads, chunks, silences, deaths; it records what came, and its leaving."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections import deque
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
    whole: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the request has come to its end."""

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    async def room(self) -> None:
        """Wait until what was written is taken; what happened meanwhile is seen even where there is room already."""
        await asyncio.sleep(0)
        await self.writable.wait()

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

    def reset(self) -> None:
        """Close as a crashed host's firewall would: with a reset, whatever was sent before."""
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
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
    """Serves ``script`` to every request except health, metrics and the model list.

    An ``early`` engine runs its script when a request's head has come; its body follows in ``exchange.request.body``.
    A script that fails fails the test.
    """

    def __init__(
        self, script: Script | None = None, *, models: list[str] | None = None, early: bool = False, port: int = 0
    ) -> None:
        self.script: Script = script or answer_json()
        self.models = models
        self.early = early
        self.received: list[bytearray] = []
        """All bytes that came, by connection."""
        self.faults: list[BaseException] = []
        self._wanted_port = port
        self.requests: list[Arrived] = []
        self.exchanges: list[EngineExchange] = []
        self.connections = 0
        self.open_connections: set[asyncio.Transport] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.healthy = True
        self.next_probes: deque[bool] = deque()
        """What the next health probes are told, before ``healthy`` holds again."""
        self.probes = 0
        self.scrapes = 0
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
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self._wanted_port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if kind is None and self.faults:
            raise self.faults[0]

    def stop_listening(self) -> None:
        """Refuse connections from here on; those that are open stay."""
        if self._server is not None:
            self._server.close()

    async def stop(self) -> None:
        """Stop listening and drop what is open, as a killed process would."""
        self.stop_listening()
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
        self._engine.received.append(bytearray())

    def connection_lost(self, exc: Exception | None) -> None:
        self._engine.open_connections.discard(self._transport)
        self._left.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._engine.received[self._number] += data
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._engine.faults.append(error)
            self._transport.abort()

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._exchange: EngineExchange | None = None

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._exchange is not None:
            self._engine.faults.append(AssertionError(f"a trailer reached the engine: {name!r}: {value!r}"))
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        method = self._parser.get_method().decode()
        request = Arrived(method, self._target.decode(), self._headers, b"", self._number)
        self._body: list[bytes] = []
        self._exchange = EngineExchange(request, self._transport, self._left, self._writable)
        if self._engine.early and self._housekeeping(request.target) is None:
            self._begin(self._exchange)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        exchange = self._exchange
        assert exchange is not None
        exchange.request.body = b"".join(self._body)
        exchange.whole.set()
        if not self._engine.early or self._housekeeping(exchange.request.target) is not None:
            self._begin(exchange)

    def _begin(self, exchange: EngineExchange) -> None:
        engine = self._engine
        script = self._housekeeping(exchange.request.target)
        if script is None:
            engine.requests.append(exchange.request)
            engine.exchanges.append(exchange)
            script = engine.script
        task = asyncio.get_running_loop().create_task(self._run(script, exchange))
        engine.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._engine.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._engine.faults.append(error)

    async def _run(self, script: Script, exchange: EngineExchange) -> None:
        await script(exchange)

    def _housekeeping(self, target: str) -> Script | None:
        if target == "/health":
            return self._health
        if target == "/metrics":
            return self._metrics
        if target == "/v1/models":
            if self._engine.models is None:
                return answer_json(500, {})
            entries = [{"id": name, "object": "model"} for name in self._engine.models]
            return answer_json(200, {"object": "list", "data": entries})
        return None

    async def _health(self, exchange: EngineExchange) -> None:
        engine = self._engine
        healthy = engine.next_probes.popleft() if engine.next_probes else engine.healthy
        engine.probes += 1
        await answer_json(200 if healthy else 503)(exchange)

    async def _metrics(self, exchange: EngineExchange) -> None:
        self._engine.scrapes += 1
        exchange.answer(200, METRICS_PAGE.encode(), [("content-type", "text/plain; version=0.0.4")])
