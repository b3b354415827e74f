"""What is over is freed at once: ``serve`` lets the collector run seldom, so that cycles would pile up."""

from __future__ import annotations

import asyncio
import gc

from tests.support.gated_engine import EngineExchange, GatedEngine, answer_json, until
from tests.support.raw_client import post
from tests.support.running_proxy import running_proxy

PARTS = ("ClientConnection", "EngineConnection", "RequestReader", "Exchange", "UpstreamCall", "Deadline", "OpenRequest")


def _alive() -> dict[str, int]:
    counts = dict.fromkeys(PARTS, 0)
    for thing in gc.get_objects():
        name = type(thing).__name__
        if name in counts:
            counts[name] += 1
    return counts


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


async def test_requests_and_connections_leave_no_cycles() -> None:
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy:
        gc.collect()
        gc.disable()
        try:
            before = _alive()
            async with proxy.client() as client:
                client.send(post())
                await engine.arrived()
                client.leave("reset")
            await proxy.counted("client_closed")
            engine.script = answer_json()
            for _ in range(20):
                assert (await proxy.ask(post())).status == 200
            engine.script = answer_json(headers=[("connection", "close")])
            assert (await proxy.ask(post())).status == 200
            await until(lambda: not proxy.server.data.connections, "all clients are gone")
            await asyncio.sleep(0)
            after = _alive()
        finally:
            gc.enable()
        assert {name: after[name] - before[name] for name in PARTS if after[name] > before[name] + 1} == {}
