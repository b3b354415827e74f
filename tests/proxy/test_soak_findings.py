"""Faults that a soak of the whole found, each in its smallest form."""

from __future__ import annotations

import contextlib

from adaptive_gamma.errors import ScrapeError
from adaptive_gamma.fleet.scrape import EngineClient
from tests.support.gated_engine import GatedEngine, until


async def test_a_look_that_runs_out_of_time_leaves_no_connection() -> None:
    """Whenever the time is up: while connecting, between that and the request, in the answer."""
    async with GatedEngine() as engine:
        client = EngineClient(engine.url)
        try:
            for step in range(400):
                with contextlib.suppress(ScrapeError):
                    await client.fetch("/metrics", timeout_s=0.0002 + step * 0.000_01)
            await client.fetch("/metrics", timeout_s=5.0)
            await until(lambda: len(engine.open_connections) <= 1, "only the connection of the last answer is left")
        finally:
            await client.close()
