"""The one timer of a connection."""

from __future__ import annotations

import asyncio
from math import inf

from adaptive_gamma.proxy.deadline import Deadline
from tests.support.gated_engine import until


async def test_calls_once_when_it_is_time() -> None:
    loop = asyncio.get_running_loop()
    calls: list[float] = []
    deadline = Deadline(loop, lambda: calls.append(loop.time()))
    deadline.set(loop.time() + 0.01)
    await until(lambda: bool(calls), "the call")
    assert deadline.at == inf
    deadline.set(loop.time() + 0.01)
    await until(lambda: len(calls) == 2, "the second call")


async def test_moved_back_by_writing() -> None:
    loop = asyncio.get_running_loop()
    calls: list[float] = []
    deadline = Deadline(loop, lambda: calls.append(loop.time()))
    deadline.set(loop.time() + 0.01)
    deadline.at = later = loop.time() + 0.05
    await until(lambda: bool(calls), "the call")
    assert calls[0] >= later - 0.002


async def test_brought_forward_by_set() -> None:
    loop = asyncio.get_running_loop()
    calls: list[float] = []
    deadline = Deadline(loop, lambda: calls.append(loop.time()))
    deadline.set(loop.time() + 3600)
    deadline.set(loop.time() + 0.01)
    await until(lambda: bool(calls), "the call")


async def test_never() -> None:
    loop = asyncio.get_running_loop()
    calls: list[float] = []
    put_off, closed = (Deadline(loop, lambda: calls.append(loop.time())) for _ in range(2))
    for deadline in (put_off, closed):
        deadline.set(loop.time() + 0.01)
    put_off.at = inf
    closed.close()
    closed.close()
    other = Deadline(loop, lambda: calls.append(-1.0))
    other.set(loop.time() + 0.03)
    await until(lambda: bool(calls), "the call of the other")
    assert calls == [-1.0]
