"""Server-sent events as an ASGI answer: their form, and every way in which they end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import MutableMapping
from typing import Any

from adaptive_gamma.page import EventStream, Feed
from adaptive_gamma.page.event_stream import event

SCOPE: dict[str, Any] = {"type": "http", "method": "GET", "client": ("127.0.0.1", 4), "headers": []}


class Reader:
    """The other side of an ASGI application."""

    def __init__(self) -> None:
        self.messages: list[MutableMapping[str, Any]] = []
        self.came = asyncio.Event()
        self.left = asyncio.Event()
        self.stuck: asyncio.Event | None = None

    async def receive(self) -> MutableMapping[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if self.stuck is not None:
            await self.stuck.wait()
        self.messages.append(message)
        self.came.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(5):
            while text not in self.body:
                self.came.clear()
                await self.came.wait()


class Told:
    """Connections that note what is asked of them."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []

    def narrow(self, client: object) -> None:
        self.calls.append(("narrow", client))

    def cut(self, client: object) -> None:
        self.calls.append(("cut", client))


async def sections() -> dict[str, bytes]:
    return {"policy": event("policy", b'{"a":1}'), "state": event("state", b'{"b":2}')}


async def ended(task: asyncio.Task[None]) -> None:
    async with asyncio.timeout(5):
        await task


async def test_the_form_of_the_stream() -> None:
    feed, reader = Feed(sections, interval_s=3600), Reader()
    task = asyncio.create_task(EventStream(feed)(SCOPE, reader.receive, reader.send))
    await reader.until(b'{"b":2}')
    start = reader.messages[0]
    headers = dict(start["headers"])
    assert start["status"] == 200
    assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert headers[b"cache-control"] == b"no-store"
    assert reader.body == b'retry: 2000\n\nevent: policy\ndata: {"a":1}\n\nevent: state\ndata: {"b":2}\n\n'
    reader.left.set()
    await ended(task)


async def test_who_leaves_frees_the_place() -> None:
    feed, reader = Feed(sections, interval_s=3600, most=1), Reader()
    task = asyncio.create_task(EventStream(feed)(SCOPE, reader.receive, reader.send))
    await reader.until(b"state")
    assert feed.listeners == 1
    reader.left.set()
    await ended(task)
    assert (feed.listeners, feed.running) == (0, False)


async def test_one_too_many_is_told_to_come_later() -> None:
    feed, reader = Feed(sections, interval_s=3600, most=0), Reader()
    await EventStream(feed)(SCOPE, reader.receive, reader.send)
    assert reader.messages[0]["status"] == 503
    assert (b"retry-after", b"10") in reader.messages[0]["headers"]


async def test_the_end_of_the_feed_is_told() -> None:
    feed, reader = Feed(sections, interval_s=3600), Reader()
    task = asyncio.create_task(EventStream(feed)(SCOPE, reader.receive, reader.send))
    await reader.until(b"state")
    feed.close()
    await ended(task)
    assert reader.body.endswith(b"event: end\ndata: {}\n\n")
    assert reader.messages[-1]["more_body"] is False
    assert feed.listeners == 0


async def test_one_who_takes_nothing_is_cut() -> None:
    numbers = itertools.count()

    async def counting() -> dict[str, bytes]:
        return {"state": event("state", b"%d" % next(numbers))}

    feed, reader = Feed(counting, interval_s=0.001), Reader()
    told = Told()
    task = asyncio.create_task(EventStream(feed, connections=told, stall_s=0.05)(SCOPE, reader.receive, reader.send))
    await reader.until(b"state")
    reader.stuck = asyncio.Event()
    await ended(task)
    assert told.calls == [("narrow", ("127.0.0.1", 4)), ("cut", ("127.0.0.1", 4))]
    assert feed.listeners == 0


async def test_being_cancelled_frees_the_place() -> None:
    feed, reader = Feed(sections, interval_s=3600), Reader()
    task = asyncio.create_task(EventStream(feed)(SCOPE, reader.receive, reader.send))
    await reader.until(b"state")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (feed.listeners, feed.running) == (0, False)
