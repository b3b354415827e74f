"""The feed: one computation for all who listen, none for nobody, and no queue for one who is slow."""

from __future__ import annotations

import asyncio
import logging

import pytest

from adaptive_gamma.page import Feed, Listener
from tests.support.gated_engine import until


class Counted:
    """Makes sections that say how often they were made."""

    def __init__(self) -> None:
        self.made = 0
        self.fault: Exception | None = None
        self.policy = b"p"

    async def __call__(self) -> dict[str, bytes]:
        self.made += 1
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        return {"policy": self.policy, "state": b"%d" % self.made}


def listening(feed: Feed) -> Listener:
    listener = feed.listen()
    assert listener is not None
    return listener


async def taken(listener: Listener) -> list[bytes] | None:
    async with asyncio.timeout(5):
        return await listener.take()


async def test_nothing_is_made_while_nobody_listens() -> None:
    counted = Counted()
    feed = Feed(counted, interval_s=0.001)
    await asyncio.sleep(0.02)
    assert (counted.made, feed.running) == (0, False)
    listener = listening(feed)
    assert await taken(listener) == [b"p", b"1"]
    feed.leave(listener)
    made = counted.made
    await asyncio.sleep(0.02)
    assert (counted.made, feed.running, feed.listeners) == (made, False, 0)


async def test_all_share_one_tick_and_a_late_one_gets_it_at_once() -> None:
    counted = Counted()
    feed = Feed(counted, interval_s=3600)
    first, second = listening(feed), listening(feed)
    assert await taken(first) == await taken(second) == [b"p", b"1"]
    late = listening(feed)
    assert await taken(late) == [b"p", b"1"]
    assert counted.made == feed.ticks == 1
    for listener in (first, second, late):
        feed.leave(listener)


async def test_what_has_not_changed_is_not_sent_again() -> None:
    counted = Counted()
    feed = Feed(counted, interval_s=0.001)
    listener = listening(feed)
    assert await taken(listener) == [b"p", b"1"]
    following = await taken(listener)
    assert following is not None
    assert len(following) == 1
    counted.policy = b"q"
    while b"q" not in (await taken(listener) or []):
        continue
    feed.leave(listener)


async def test_one_who_is_slow_gets_the_latest_and_holds_nobody_up() -> None:
    counted = Counted()
    feed = Feed(counted, interval_s=0.001)
    slow, quick = listening(feed), listening(feed)
    seen = 0
    while seen < 20:
        seen += len(await taken(quick) or [])
    waiting = await taken(slow)
    assert waiting is not None
    assert len(waiting) == 2, "one of each section, however many ticks went by"
    assert int(waiting[1]) >= 10
    for listener in (slow, quick):
        feed.leave(listener)


async def test_there_are_only_so_many_places() -> None:
    feed = Feed(Counted(), interval_s=3600, most=2)
    one, two = listening(feed), listening(feed)
    assert feed.listen() is None
    feed.leave(one)
    feed.leave(one)
    three = listening(feed)
    assert (feed.listeners, feed.listen()) == (2, None)
    for listener in (two, three):
        feed.leave(listener)


async def test_closing_ends_all_after_what_is_there() -> None:
    feed = Feed(Counted(), interval_s=3600)
    listener, waiting = listening(feed), listening(feed)
    await taken(waiting)
    end = asyncio.create_task(taken(waiting))
    await asyncio.sleep(0)
    feed.close()
    assert await end is None
    assert await taken(listener) == [b"p", b"1"]
    assert await taken(listener) is None
    assert feed.listen() is None
    assert not await feed.emptied(0.001)
    for each in (listener, waiting):
        feed.leave(each)
    assert await feed.emptied(0.001)
    assert not feed.running


async def test_a_fault_is_told_once_and_the_next_tick_is_made(caplog: pytest.LogCaptureFixture) -> None:
    counted = Counted()
    counted.fault = KeyError("x")
    feed = Feed(counted, interval_s=0.001)
    listener = listening(feed)
    with caplog.at_level(logging.ERROR, "adaptive_gamma.page"):
        await until(lambda: counted.made >= 5, "five ticks")
        counted.fault = None
        assert (await taken(listener) or [])[0] == b"p"
    assert len(caplog.records) == 1
    feed.leave(listener)


async def test_leaving_and_coming_back_starts_afresh() -> None:
    counted = Counted()
    feed = Feed(counted, interval_s=3600)
    for number in (1, 2, 3):
        listener = listening(feed)
        assert await taken(listener) == [b"p", b"%d" % number]
        feed.leave(listener)
