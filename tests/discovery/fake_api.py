"""An API server that knows EndpointSlices only: list and watch over real sockets, and what may go wrong with them."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.gated_engine import until

__all__ = ["FakeApi", "endpoint", "fake_api", "slice_of"]

LABEL = "kubernetes.io/service-name"


def endpoint(
    address: str | None, pod: str | None = None, *, ready: bool | None = True, terminating: bool | None = None
) -> dict[str, Any]:
    """An endpoint of a slice as the API writes it; None leaves a field out."""
    conditions = {"ready": ready, "serving": ready, "terminating": terminating}
    return {
        "addresses": [] if address is None else [address],
        "conditions": {key: value for key, value in conditions.items() if value is not None},
        **({} if pod is None else {"targetRef": {"kind": "Pod", "name": pod, "namespace": "default"}}),
    }


def slice_of(
    name: str, *endpoints: dict[str, Any], service: str = "spec", family: str = "IPv4", port: int = 8000
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {LABEL: service}},
        "addressType": family,
        "endpoints": list(endpoints),
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
    }


class FakeApi:
    """What the server has, what it was asked, and what it is to do wrong."""

    def __init__(self) -> None:
        self.url = ""
        self.slices: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.oldest = 0
        """Watches from before this version have expired."""
        self.expiry_by_status = False
        """Whether that is said by 410, or by an event after 200."""
        self.token: str | None = None
        """The only token taken; None takes everybody."""
        self.refusals: dict[str, list[tuple[int, str]]] = {"list": [], "watch": []}
        """Answers, status and message, to the next requests."""
        self.list_body: bytes | None = None
        """What to answer in place of a list."""
        self.end_at_once = False
        self.page_size: int | None = None
        self.requests: list[tuple[str, dict[str, str], dict[str, str]]] = []
        """Each as (list or watch, query, headers)."""
        self._history: list[tuple[int, dict[str, Any]]] = []
        self._watches: list[tuple[str, asyncio.StreamWriter]] = []

    # -- what happens in the cluster ----------------------------------------------------------------------------------

    def put(self, item: dict[str, Any], *, tell: bool = True) -> None:
        """A slice is added or changed; without ``tell`` no watch ever hears of it."""
        name = item["metadata"]["name"]
        kind = "MODIFIED" if name in self.slices else "ADDED"
        self.slices[name] = self._stamped(item)
        self._happened(kind, self.slices[name], tell=tell)

    def delete(self, name: str, *, tell: bool = True) -> None:
        self._happened("DELETED", self._stamped(self.slices.pop(name)), tell=tell)

    def bookmark(self) -> None:
        self.version += 1
        self.say({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}})

    def forget_history(self) -> None:
        """As etcd does when it is compacted: older versions cannot be watched from."""
        self.version += 1
        self.oldest = self.version
        self._history.clear()

    # -- what happens to its watches ----------------------------------------------------------------------------------

    def say(self, event: dict[str, Any] | bytes, service: str | None = None) -> None:
        """A line to every watch, of one service or of all."""
        line = event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n"
        for watched, writer in self._watches:
            if service in (None, watched) and not writer.is_closing():
                writer.write(b"%x\r\n%b\r\n" % (len(line), line))

    def end_watches(self) -> None:
        """As they end when their time is up."""
        for _, writer in self._watches:
            writer.write(b"0\r\n\r\n")
            writer.close()
        self._watches.clear()

    def drop_watches(self) -> None:
        """As when the server dies, or something in between does."""
        for _, writer in self._watches:
            writer.transport.abort()
        self._watches.clear()

    def count(self, kind: str) -> int:
        return sum(asked == kind for asked, _, _ in self.requests)

    async def asked(self, kind: str, count: int) -> dict[str, str]:
        """Wait for so many requests of a kind in all; the query of the last."""
        await until(lambda: self.count(kind) >= count, f"{count} requests: {kind}")
        return [query for asked, query, _ in self.requests if asked == kind][-1]

    # -- the server ---------------------------------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing() and (head := await reader.readuntil(b"\r\n\r\n")):
                await self._answer(head.decode(), writer)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            if all(writer is not watch for _, watch in self._watches):
                writer.close()

    async def _answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        first, *lines = head.split("\r\n")
        target = urlsplit(first.split(" ")[1])
        query = {key: values[-1] for key, values in parse_qs(target.query).items()}
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        kind = "watch" if query.get("watch") else "list"
        self.requests.append((kind, query, headers))
        namespace, service = target.path.split("/")[5], query["labelSelector"].removeprefix(f"{LABEL}=")
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            await self._refuse(writer, 401, "Unauthorized")
        elif self.refusals[kind]:
            await self._refuse(writer, *self.refusals[kind].pop(0))
        elif kind == "list":
            await self._list(writer, namespace, service, query)
        else:
            await self._watch(writer, service, int(query["resourceVersion"]))

    async def _list(self, writer: asyncio.StreamWriter, namespace: str, service: str, query: dict[str, str]) -> None:
        there = [item for item in self.slices.values() if self._is_of(item, service, namespace)]
        start = int(query.get("continue", "0"))
        end = len(there) if self.page_size is None else start + self.page_size
        more = {"continue": str(end)} if end < len(there) else {}
        page = {"kind": "EndpointSliceList", "metadata": {"resourceVersion": str(self.version), **more}}
        body = json.dumps({**page, "items": there[start:end]}).encode() if self.list_body is None else self.list_body
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()

    async def _watch(self, writer: asyncio.StreamWriter, service: str, version: int) -> None:
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        if version < self.oldest and self.expiry_by_status:
            await self._refuse(writer, 410, "too old resource version")
            return
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        self._watches.append((service, writer))
        if version < self.oldest:
            self.say({"type": "ERROR", "object": gone})
        for at, event in self._history:
            if at > version and self._is_of(event["object"], service):
                line = json.dumps(event).encode() + b"\n"
                writer.write(b"%x\r\n%b\r\n" % (len(line), line))
        if self.end_at_once:
            self.end_watches()

    async def _refuse(self, writer: asyncio.StreamWriter, status: int, message: str) -> None:
        body = json.dumps({"kind": "Status", "code": status, "message": message}).encode()
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))
        await writer.drain()

    def _stamped(self, item: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        return {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}

    def _happened(self, kind: str, item: dict[str, Any], *, tell: bool) -> None:
        if tell:
            self._history.append((self.version, {"type": kind, "object": item}))
            self.say(self._history[-1][1], item["metadata"]["labels"][LABEL])

    @staticmethod
    def _is_of(item: dict[str, Any], service: str, namespace: str = "default") -> bool:
        metadata = item["metadata"]
        return bool(metadata["labels"][LABEL] == service and metadata["namespace"] == namespace)


@asynccontextmanager
async def fake_api(tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeApi]:
    """A server on a free port, until the block ends."""
    api = FakeApi()
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    api.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
    try:
        yield api
    finally:
        server.close()
        api.drop_watches()
