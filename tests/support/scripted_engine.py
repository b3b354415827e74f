"""An HTTP server whose every answer a test writes by hand, faults included."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import TracebackType

__all__ = ["Reply", "ScriptedEngine"]


@dataclass
class Reply:
    """What a path answers."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    silent: bool = False
    """Never answer."""
    announced: int | None = None
    """Content-Length to send where it is not the body's; the connection closes after the body."""
    raw: bytes | None = None
    """Send these bytes instead of an HTTP answer, and close."""
    gate: asyncio.Event | None = None
    """Answer when this is set."""


class ScriptedEngine:
    """``async with ScriptedEngine() as engine``: a server on a free port, answering ``engine.replies[path]``."""

    def __init__(self, replies: dict[str, Reply] | None = None) -> None:
        self.replies: dict[str, Reply] = replies or {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        """(path, headers) of each request, in order of arrival."""
        self.arrived = asyncio.Event()
        self.url = ""
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def page(self, path: str, text: str) -> None:
        self.replies[path] = Reply(text.encode())

    async def __aenter__(self) -> ScriptedEngine:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client is done, or the test is
        finally:
            self._connections.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *fields = head.split("\r\n")
        path = line.split(" ")[1]
        headers = dict(item.split(": ", 1) for item in fields if item)
        self.requests.append((path, {name.lower(): value for name, value in headers.items()}))
        self.arrived.set()
        reply = self.replies.get(path, Reply(status=404))
        if reply.silent:
            await asyncio.Event().wait()
        if reply.gate is not None:
            await reply.gate.wait()
        if reply.raw is not None:
            writer.write(reply.raw)
            await writer.drain()
            return False
        length = len(reply.body) if reply.announced is None else reply.announced
        extra = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
        writer.write(f"HTTP/1.1 {reply.status} X\r\ncontent-length: {length}\r\n{extra}\r\n".encode() + reply.body)
        await writer.drain()
        return reply.announced is None
