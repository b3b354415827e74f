"""Faults that a soak of the whole found, each in its smallest form."""

from __future__ import annotations

import contextlib

import pytest

from adaptive_gamma.config import Settings
from adaptive_gamma.errors import ScrapeError
from adaptive_gamma.fleet.scrape import EngineClient
from tests.support.gated_engine import EngineExchange, GatedEngine, until
from tests.support.running_proxy import running_proxy


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


async def test_a_search_survives_the_removal_of_the_replica_it_would_ask_next() -> None:
    async def silent(x: EngineExchange) -> None:
        """The test speaks for the engine."""

    async with (
        GatedEngine(silent) as first,
        GatedEngine(silent) as second,
        running_proxy([first, second]) as proxy,
        proxy.client() as client,
    ):
        apply = getattr(proxy.plane, "apply", None)
        if apply is None:
            pytest.skip("a reload does not change the replicas yet")
        client.send(b"GET /v1/responses/resp_1 HTTP/1.1\r\nhost: a\r\n\r\n")
        await until(lambda: bool(first.exchanges or second.exchanges), "one replica is asked")
        asked, name = (first, "r0") if first.exchanges else (second, "r1")
        values = proxy.plane.settings.model_dump(by_alias=True)
        stay = [replica for replica in values["replicas"] if replica["name"] == name]
        apply(Settings(**{**values, "replicas": stay}), proxy.plane.policy)
        asked.exchanges[0].answer(404, b"{}")
        assert (await client.answer("GET")).status == 404
        await proxy.counted("client_error")
