"""Every time limit as it is by default, with the process's clock moved on instead of waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.gated_engine import EngineExchange, GatedEngine, until
from tests.support.raw_client import post
from tests.support.served import Served, serve
from tests.support.time_machine import TimeMachine

QUIET = {"scrape": {"interval_s": 60, "timeout_s": 60, "stale_after_s": 3600}, "health": {"interval_s": 3600}}


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


@asynccontextmanager
async def _in_time(folder: Path, engine: GatedEngine, **settings: Any) -> AsyncIterator[Served]:
    async with serve(folder, [engine], clock=TimeMachine(folder), **{**QUIET, **settings}) as served:
        await served.ready()
        yield served


async def test_idle_connections(tmp_path: Path) -> None:
    """To engines: 4 s, below their 5 s. From clients: 75 s, above what balancers in front of us keep (60 s)."""
    async with GatedEngine() as engine, _in_time(tmp_path, engine) as served:
        async with served.client() as fresh, served.client() as used:
            assert (await used.ask(post())).status == 200
            await served.advance(3.8)
            assert (await used.ask(post())).status == 200
            assert engine.requests[1].connection == engine.requests[0].connection
            x = engine.exchanges[1]
            assert not x.left.is_set()
            await served.advance(4.2)
            await x.gone()
            assert (await used.ask(post())).status == 200
            assert engine.requests[2].connection != engine.requests[0].connection
            await served.advance(65)
            assert (await used.ask(post())).status == 200
            await served.advance(1)
            assert not fresh.reader.at_eof()
            await served.advance(3)
            assert await fresh.closed() == b""
            await served.advance(70)
            assert (await used.ask(post())).status == 200
            await served.advance(76)
            assert await used.closed() == b""
        await served.counted("ok", 5)
