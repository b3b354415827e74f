"""An OpenAI endpoint whose pages and streams a test writes by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

__all__ = ["Exchange", "TalkingEngine", "chat_events", "models_page", "usage_event"]

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def models_page(*names: str) -> str:
    return json.dumps({"object": "list", "data": [{"id": name, "owned_by": "talker"} for name in names]})


def text_event(text: str, finish_reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}]}


def usage_event(tokens: int, prompt: int = 7) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": tokens}}


def chat_events(tokens: int) -> list[dict[str, Any]]:
    """A whole answer, one token an event."""
    opening = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
    words = [text_event(f"w{n} ", "length" if n == tokens - 1 else None) for n in range(tokens)]
    return [opening, *words, usage_event(tokens)]


@dataclass
class Exchange:
    """One request for an answer."""

    body: dict[str, Any]
    headers: dict[str, str]
    writer: asyncio.StreamWriter
    engine: TalkingEngine
    path: str = ""

    async def head(self) -> None:
        await self.raw(HEAD)

    async def event(self, *events: dict[str, Any]) -> None:
        """Several events in one write, which a client in the same event loop reads before what is written next."""
        await self.chunk(b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events))
        for _ in range(3):
            await asyncio.sleep(0)

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def end(self) -> None:
        await self.chunk(b"data: [DONE]\n\n")
        await self.raw(b"0\r\n\r\n")

    async def refuse(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        await self.raw(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(text), text))

    async def whole(self, tokens: int | None = None) -> None:
        """Answer as an engine does, with as many tokens as were asked for."""
        await self.head()
        for event in chat_events(self.body["max_tokens"] if tokens is None else tokens):
            await self.event(event)
        await self.end()


Script = Callable[[Exchange], Awaitable[None]]


async def _whole(exchange: Exchange) -> None:
    await exchange.whole()


@dataclass
class TalkingEngine:
    """``async with TalkingEngine(script) as engine``; pages are answered from ``engine.pages``, POSTs by the script."""

    script: Script = _whole
    pages: dict[str, str | tuple[int, str]] = field(default_factory=lambda: {"/v1/models": models_page("m")})
    requests: list[Exchange] = field(default_factory=list)
    got: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and headers of each page asked for."""
    open_now: int = 0
    most_open: int = 0
    connections: int = 0
    url: str = ""

    async def __aenter__(self) -> TalkingEngine:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop listening and drop what is open."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while not writer.is_closing():
                await self._exchange(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client is done, or the test is
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
        headers = {name.lower(): value for name, value in (item.split(": ", 1) for item in fields)}
        method, path, _ = line.split(" ")
        if method == "GET":
            self.got.append((path, headers))
            page = self.pages.get(path, (404, ""))
            status, text = page if isinstance(page, tuple) else (200, page)
            writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(text.encode())}\r\n\r\n{text}".encode())
            await writer.drain()
            return
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        exchange = Exchange(body, headers, writer, self, path)
        self.requests.append(exchange)
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            await self.script(exchange)
        finally:
            self.open_now -= 1
