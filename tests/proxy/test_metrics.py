"""The exposition page: names, labels, and gauges that come back to 0."""

from __future__ import annotations

import re

import pytest
from openai import AsyncOpenAI, RateLimitError
from prometheus_client.parser import text_string_to_metric_families

from tests.support.gated_engine import EngineExchange, GatedEngine, answer_json, until
from tests.support.raw_client import post
from tests.support.running_proxy import RunningProxy, running_proxy

NAMES = {
    "adaptive_gamma_acceptance",
    "adaptive_gamma_config_reload_failures_total",
    "adaptive_gamma_decisions_total",
    "adaptive_gamma_gamma",
    "adaptive_gamma_in_flight",
    "adaptive_gamma_replica_healthy",
    "adaptive_gamma_requests_total",
    "adaptive_gamma_retries_total",
    "adaptive_gamma_scrape_age_seconds",
    "adaptive_gamma_scrape_failures_total",
}


async def _samples(proxy: RunningProxy) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = await proxy.admin("/metrics")
    assert answer.one("content-type") == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(answer.body.decode()))
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


async def test_names_and_labels() -> None:
    async with GatedEngine() as engine, running_proxy([engine], gammas=[3]) as proxy:
        await until(lambda: proxy.plane.fleet.replicas[0].scraped_at is not None, "the first scrape")
        await proxy.ask(post(headers=(("x-adaptive-gamma-class", "made-up"),)))
        await proxy.ask(post("/nothing"))
        page = (await proxy.admin("/metrics")).body.decode()
        documented = set(re.findall(r"^# TYPE (\S+) ", page, re.M))
        missing = {n for n in NAMES if n not in documented and n.removesuffix("_total") not in documented}
        assert not missing
        assert all(name.startswith("adaptive_gamma_") for name in documented)
        samples = await _samples(proxy)
        ok = (("class", "unsure"), ("outcome", "ok"), ("replica", "r0"))
        assert samples["adaptive_gamma_requests_total", ok] == 1
        refused = (("class", "none"), ("outcome", "client_error"), ("replica", "none"))
        assert samples["adaptive_gamma_requests_total", refused] == 1
        decided = (("class", "unsure"), ("pool", "speculative"), ("reason", "only_replica"))
        assert samples["adaptive_gamma_decisions_total", decided] == 1
        assert samples["adaptive_gamma_gamma", (("replica", "r0"),)] == 3
        assert samples["adaptive_gamma_in_flight", (("replica", "r0"),)] == 0
        assert samples["adaptive_gamma_replica_healthy", (("replica", "r0"),)] == 1
        assert samples["adaptive_gamma_scrape_age_seconds", (("replica", "r0"),)] >= 0
        assert samples["adaptive_gamma_request_duration_seconds_count", (("pool", "speculative"),)] == 1


async def test_in_flight_rises_and_falls() -> None:
    async def silent(x: EngineExchange) -> None:
        """The test speaks for the engine."""

    async with GatedEngine(silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        key = ("adaptive_gamma_in_flight", (("replica", "r0"),))
        client.send(post())
        x = await engine.arrived()
        assert (await _samples(proxy))[key] == 1
        x.answer(200, b"{}")
        assert (await client.answer()).status == 200
        assert (await _samples(proxy))[key] == 0


async def test_scrape_failures_by_reason() -> None:
    async with GatedEngine() as dead:
        url = dead.url
    async with running_proxy([url]) as proxy:
        await proxy.plane.fleet.scrape_once()
        failures = {k: v for k, v in (await _samples(proxy)).items() if k[0] == "adaptive_gamma_scrape_failures_total"}
        assert sum(failures.values()) >= 1


async def test_the_official_client() -> None:
    events = [b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n' % n for n in range(5)]

    async def script(x: EngineExchange) -> None:
        if b'"stream":true' not in x.request.body.replace(b" ", b""):
            await answer_json(429, {"error": {"message": "slow down", "type": "t", "code": "c"}})(x)
            return
        x.head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
        for event in [*events, b"data: [DONE]\n\n"]:
            x.chunk(event)
        x.end()

    async with GatedEngine(script) as engine, running_proxy([engine]) as proxy:
        base = f"{proxy.server.data.url}/v1"
        async with AsyncOpenAI(base_url=base, api_key="k", max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hello"}], stream=True
            )
            text = [chunk.choices[0].delta.content async for chunk in stream]
            assert text == ["0", "1", "2", "3", "4"]
            with pytest.raises(RateLimitError, match="slow down"):
                await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
        assert engine.requests[0].one("authorization") == b"Bearer k"
