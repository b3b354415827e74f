"""A client that sends and sees raw bytes."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType

from tests.support.gated_engine import DEADLINE_S

__all__ = ["Answer", "RawClient", "dechunked", "post"]


@dataclass
class Answer:
    """A response as it came."""

    status: int
    version: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    chunks: list[bytes] = field(default_factory=list)
    complete: bool = False
    """Whether it ended as its framing says; False when the connection was cut."""

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def one(self, name: str) -> str | None:
        values = self.all(name)
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None

    @property
    def error_code(self) -> str:
        code: str = json.loads(self.body)["error"]["code"]
        return code


def post(
    path: str = "/v1/chat/completions",
    body: bytes | Mapping[str, object] | None = None,
    headers: tuple[tuple[str, str], ...] = (),
    method: str = "POST",
) -> bytes:
    """The bytes of a request with a body."""
    if body is None:
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "host: proxy.test", f"content-length: {len(raw)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + raw


def dechunked(raw: bytes) -> tuple[bytes, bool]:
    """The body in the bytes of a chunked one, as far as they are such, and whether they are its end."""
    body = b""
    while (found := re.match(rb"([0-9a-fA-F]{1,16})(?:;[^\r\n]*)?\r\n", raw)) is not None:
        size, raw = int(found[1], 16), raw[found.end() :]
        if size == 0:
            return body, raw.startswith(b"\r\n") or b"\r\n\r\n" in raw
        body += raw[:size]
        if raw[size : size + 2] != b"\r\n":
            break
        raw = raw[size + 2 :]
    return body, False


class RawClient:
    """One connection to a port of this machine."""

    def __init__(self, port: int, limit: int = 1 << 20) -> None:
        self._port = port
        self._limit = limit
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> RawClient:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port, limit=self._limit)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def drop(self) -> None:
        """Leave without a word."""
        self.writer.transport.abort()

    def leave(self, how: str) -> None:
        """Leave by ``close`` (FIN), ``reset`` (RST) or ``half`` (FIN, still reading)."""
        if how == "half":
            self.writer.write_eof()
            return
        if how == "reset":
            sock = self.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.drop()

    async def head(self) -> Answer:
        """The head of the next answer."""
        async with asyncio.timeout(DEADLINE_S):
            raw = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
        version, status, _ = first.split(" ", 2)
        headers = [(line.split(":", 1)[0].lower(), line.split(":", 1)[1].strip()) for line in lines]
        return Answer(int(status), version, headers)

    async def chunk(self) -> bytes:
        """The next HTTP chunk; empty at the end."""
        async with asyncio.timeout(DEADLINE_S):
            size = int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16)
            data = await self.reader.readexactly(size + 2)
        assert data.endswith(b"\r\n"), data[-40:]
        return data[:-2]

    async def rest(self, answer: Answer, method: str = "POST") -> Answer:
        """Read the body of an answer whose head has been read."""
        try:
            if method == "HEAD" or answer.status in (204, 304):
                answer.complete = True
            elif answer.one("transfer-encoding") == "chunked":
                while data := await self.chunk():
                    answer.chunks.append(data)
                answer.complete = True
            elif (length := answer.one("content-length")) is not None:
                async with asyncio.timeout(DEADLINE_S):
                    answer.chunks.append(await self.reader.readexactly(int(length)))
                answer.complete = True
            else:
                async with asyncio.timeout(DEADLINE_S):
                    answer.chunks.append(await self.reader.read())
                answer.complete = True
        except asyncio.IncompleteReadError as error:
            answer.chunks.append(error.partial)
        except ConnectionResetError:
            pass
        answer.body = b"".join(answer.chunks)
        return answer

    async def answer(self, method: str = "POST") -> Answer:
        """The next answer, whole or as far as it came."""
        return await self.rest(await self.head(), method)

    async def ask(self, request: bytes, method: str = "POST") -> Answer:
        self.send(request)
        return await self.answer(method)

    async def everything(self) -> tuple[bytes, bool]:
        """All bytes until the other side closes, and whether it closed with a reset."""
        parts = []
        async with asyncio.timeout(DEADLINE_S):
            try:
                while part := await self.reader.read(1 << 20):
                    parts.append(part)
            except ConnectionResetError:
                return b"".join(parts), True
        return b"".join(parts), False

    async def closed(self) -> bytes:
        """Wait until the other side closes; what came before."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""
