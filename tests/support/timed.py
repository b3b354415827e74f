"""One process with its clock in the test's hand, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.gated_engine import EngineExchange, GatedEngine, answer_json
from tests.support.metrics_page import MetricsPage
from tests.support.raw_client import RawClient
from tests.support.served import Served, serve
from tests.support.time_machine import TimeMachine

__all__ = ["Timed", "timed_process"]

QUIET: dict[str, Any] = {
    "scrape": {"interval_s": 60, "timeout_s": 60, "stale_after_s": 3600},
    "health": {"interval_s": 3600, "timeout_s": 60},
}


@dataclass
class Timed:
    """The process, its engine, and what had been counted before the test began."""

    served: Served
    engine: GatedEngine
    before: MetricsPage

    def client(self, **options: Any) -> RawClient:
        return self.served.client(**options)

    async def advance(self, seconds: float) -> None:
        await self.served.advance(seconds)

    def stand(self) -> None:
        assert self.served.clock is not None
        self.served.clock.stand()

    async def arrived(self, count: int = 1) -> EngineExchange:
        """The test's ``count``-th request, at the engine."""
        return await self.engine.arrived(count)

    async def ended(self, **outcomes: int) -> None:
        """Wait until these outcomes are counted since the test began; then nothing else may be, or be in flight."""
        for outcome, count in outcomes.items():
            page = await self.served.counted(outcome, count, since=self.before)
        assert page.requests() - self.before.requests() == sum(outcomes.values())

    async def grown(self, metric: str, **labels: str) -> float:
        """By how much a counter has grown since the test began."""
        return (await self.served.metrics()).total(metric, **labels) - self.before.total(metric, **labels)

    async def again(self) -> Timed:
        """For the next test: the clock runs, no connection is kept from before, nothing has been seen."""
        assert self.served.clock is not None
        self.served.clock.run()
        await self.served.advance(200)
        self.engine.script = answer_json()
        self.engine.requests.clear()
        self.engine.exchanges.clear()
        return Timed(self.served, self.engine, await self.served.metrics())


@asynccontextmanager
async def timed_process(folder: Path, **settings: Any) -> AsyncIterator[Timed]:
    """Start it in front of one scripted engine, r0."""
    async with (
        GatedEngine() as engine,
        serve(folder, [engine], clock=TimeMachine(folder), **{**QUIET, **settings}) as served,
    ):
        await served.ready()
        yield Timed(served, engine, await served.metrics())
