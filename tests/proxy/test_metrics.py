"""The exposition page: names, labels, and gauges that come back to 0."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI, RateLimitError
from prometheus_client import Histogram as LibraryHistogram
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from adaptive_gamma.config.settings import HealthSettings, ReplicaSettings, ScrapeSettings
from adaptive_gamma.engines import EngineReading
from adaptive_gamma.engines.reading import SpeculationCounters
from adaptive_gamma.fleet import Fleet
from adaptive_gamma.proxy.metrics import OUTCOMES, Histogram, ProxyMetrics
from tests.support.gated_engine import EngineExchange, GatedEngine, answer_json, until
from tests.support.raw_client import post
from tests.support.running_proxy import RunningProxy, running_proxy

NAMES = {
    "adaptive_gamma_acceptance",
    "adaptive_gamma_affinity_entries",
    "adaptive_gamma_all_replicas_down",
    "adaptive_gamma_config_reload_failures_total",
    "adaptive_gamma_decisions_total",
    "adaptive_gamma_gamma",
    "adaptive_gamma_in_flight",
    "adaptive_gamma_queued",
    "adaptive_gamma_replica_healthy",
    "adaptive_gamma_replica_ramping",
    "adaptive_gamma_request_duration_seconds",
    "adaptive_gamma_requests_total",
    "adaptive_gamma_retries_total",
    "adaptive_gamma_scrape_age_seconds",
    "adaptive_gamma_scrape_failures_total",
    "adaptive_gamma_time_to_first_byte_seconds",
    "adaptive_gamma_upstream_connections_opened_total",
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
        assert samples["adaptive_gamma_replica_ramping", (("replica", "r0"),)] == 0
        for name in ("queued", "affinity_entries", "all_replicas_down"):
            assert samples[f"adaptive_gamma_{name}", ()] == 0


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


async def test_waiting_requests_are_shown() -> None:
    async def silent(x: EngineExchange) -> None:
        """The test speaks for the engine."""

    load = {"max_in_flight": 1, "queue": 2}
    async with GatedEngine(silent) as engine, running_proxy([engine], load=load) as proxy:
        async with proxy.client() as first, proxy.client() as second, proxy.client() as third:
            for client in (first, second, third):
                client.send(post())
            await until(lambda: len(proxy.plane.waiting) == 2, "two requests wait")
            samples = await _samples(proxy)
            assert samples["adaptive_gamma_queued", ()] == 2
            assert samples["adaptive_gamma_in_flight", (("replica", "r0"),)] == 1
        await until(lambda: len(proxy.plane.waiting) == 0, "nobody waits")
        assert (await _samples(proxy))["adaptive_gamma_queued", ()] == 0


async def test_a_fleet_that_is_down_and_comes_back() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        for _ in range(3):
            proxy.plane.fleet.note_failure("r0")
        samples = await _samples(proxy)
        assert samples["adaptive_gamma_all_replicas_down", ()] == 1
        assert samples["adaptive_gamma_replica_healthy", (("replica", "r0"),)] == 0
        await proxy.plane.fleet.check_health_once()
        await proxy.plane.fleet.check_health_once()
        samples = await _samples(proxy)
        assert samples["adaptive_gamma_all_replicas_down", ()] == 0
        assert samples["adaptive_gamma_replica_ramping", (("replica", "r0"),)] == 1


def _fleet(count: int) -> Fleet:
    """Replicas that have drafted."""
    replicas = [ReplicaSettings(name=f"replica-{number}", url="http://127.0.0.1:1") for number in range(count)]
    fleet = Fleet(replicas, scrape=ScrapeSettings(), health=HealthSettings())
    for replica in fleet.replicas:
        for drafts in (0.0, 1000.0):
            counters = SpeculationCounters(
                drafts=drafts,
                draft_tokens=drafts * 3,
                accepted_tokens=drafts * 1.5,
                accepted_per_position=(drafts * 0.8, drafts * 0.5, drafts * 0.2),
            )
            reading = EngineReading(running=1, waiting=0, speculative=True, gamma=3, speculation=counters)
            replica.took_reading(reading, started_at=drafts, in_flight_at_start=0, prior=None)
        replica.scrape_failures["timeout"] += 1
    return fleet


def _families(page: str) -> dict[str, tuple[str, str, list[tuple[str, dict[str, str], float]]]]:
    return {
        family.name: (family.type, family.documentation, [(s.name, s.labels, s.value) for s in family.samples])
        for family in text_string_to_metric_families(page)
    }


def test_the_page_says_what_the_library_would() -> None:
    """Strange label values included: a policy names its classes as it likes."""
    metrics = ProxyMetrics(_fleet(3), lambda: 1000.0, queued=lambda: 7, affinity_entries=lambda: 9)
    for name in ('quo"te', "back\\slash", "new\nline", "\u00e4\u2028", '{a=\\"b\\"}', ""):
        metrics.request_ended("replica-1", name, "ok")
        metrics.decided(name, "plain", "class")
    for seconds in (0.0, 0.005, 0.0050001, 3.0, 600.0, 1e9):
        metrics.duration["plain"].observe(seconds)
    metrics.retried("stale_connection")
    metrics.connection_opened("replica-2")()
    metrics.reload_failed()
    page = metrics.render().decode()
    assert page.endswith("\n")
    assert _families(page) == _families(generate_latest(metrics.registry).decode())
    kind, _, samples = _families(page)["adaptive_gamma_request_duration_seconds"]
    plain = {(name, labels.get("le")): value for name, labels, value in samples if labels["pool"] == "plain"}
    stem = "adaptive_gamma_request_duration_seconds"
    assert kind == "histogram"
    assert plain[f"{stem}_bucket", "0.005"] == 2, "an edge belongs to its bucket"
    assert plain[f"{stem}_bucket", "0.01"] == 3
    assert plain[f"{stem}_bucket", "600.0"] == 5
    assert plain[f"{stem}_bucket", "+Inf"] == plain[f"{stem}_count", None] == 6
    assert plain[f"{stem}_sum", None] == pytest.approx(1e9 + 603.0100001)
    assert metrics.registry.get_sample_value(
        "adaptive_gamma_requests_total", {"replica": "replica-1", "class": 'quo"te', "outcome": "ok"}
    ) == 1  # fmt: skip


@given(st.lists(st.floats(0, 1e6) | st.sampled_from([0.005, 0.01, 600.0]), max_size=60))
def test_histograms_count_as_the_librarys(values: list[float]) -> None:
    edges = [float(labels[-1]) for suffix, labels, _ in Histogram().rows() if suffix == "_bucket"]
    ours, theirs = Histogram(), LibraryHistogram("h", "h", buckets=edges, registry=None)
    for value in values:
        ours.observe(value)
        theirs.observe(value)
    expected = {
        (sample.name.removeprefix("h"), float(sample.labels.get("le", "nan")).hex()): sample.value
        for family in theirs.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    assert {
        (suffix, float(labels[-1] if labels else "nan").hex()): value for suffix, labels, value in ours.rows()
    } == expected


async def test_series_of_removed_replicas_vanish() -> None:
    fleet = _fleet(2)
    metrics = ProxyMetrics(fleet)
    opened = [metrics.connection_opened(replica.name) for replica in fleet.replicas]
    for replica in fleet.replicas:
        for outcome in OUTCOMES:
            metrics.request_ended(replica.name, "chat", outcome)
    metrics.request_ended("none", "none", "rejected")
    with fleet.open_request("replica-0", "chat"):
        fleet.replace([replica.settings for replica in fleet.replicas[1:]])
        series = _replicas_on(metrics)
        assert series["replica-0"] == {"in_flight", "requests", "upstream_connections_opened"}, "still at work"
    # What ends now was counted by nobody when it was chosen, and must not bring the series back.
    metrics.request_ended("replica-0", "chat", "ok")
    opened[0]()
    series = _replicas_on(metrics)
    assert set(series) == {"replica-1", "none"}
    assert series["none"] == {"requests"}
    assert {"gamma", "replica_healthy", "scrape_failures", "requests", "in_flight"} <= series["replica-1"]
    assert not any("replica-0" in repr(value) for value in vars(metrics).values()), "nothing is kept of it"
    await fleet.stop()


def _replicas_on(metrics: ProxyMetrics) -> dict[str, set[str]]:
    """The families that name each replica."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            if "replica" in sample.labels:
                found.setdefault(sample.labels["replica"], set()).add(family.name.removeprefix("adaptive_gamma_"))
    return found


async def test_names_at_one_address_after_another_are_one_series() -> None:
    fleet = _fleet(1)
    metrics = ProxyMetrics(fleet)
    with fleet.open_request("replica-0", "chat"):
        fleet.replace([ReplicaSettings(name="replica-0", url="http://127.0.0.1:2")])
        with fleet.open_request("replica-0", "chat"):
            page = metrics.render().decode()
            assert page.count('adaptive_gamma_in_flight{replica="replica-0"} 2.0') == 1
            lines = [line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")]
            assert len(set(lines)) == len(lines)
    await fleet.stop()


async def test_the_event_loop_goes_on_while_a_large_page_is_made() -> None:
    """256 replicas make thousands of lines; the loop gets its turn after every hundred or so, whatever the machine."""
    fleet = _fleet(256)
    metrics = ProxyMetrics(fleet, lambda: 5000.0)
    for replica in fleet.replicas:
        for outcome in OUTCOMES:
            for request_class in ("structured", "chat", "unsure"):
                metrics.request_ended(replica.name, request_class, outcome)
    turns, ended = 0, False

    async def tick() -> None:
        nonlocal turns
        while not ended:
            turns += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    before = turns
    page = await metrics.page()
    passed = turns - before
    ended = True
    await ticking
    lines = page.count(b"\n")
    assert lines > 7500
    assert passed >= lines / 128
    assert page == metrics.render()
    await fleet.stop()


async def test_the_fleet_may_change_while_the_page_is_made() -> None:
    fleet = _fleet(64)
    metrics = ProxyMetrics(fleet)
    for replica in fleet.replicas:
        metrics.connection_opened(replica.name)
        for outcome in OUTCOMES:
            metrics.request_ended(replica.name, "chat", outcome)
    settings = [replica.settings for replica in fleet.replicas]
    making = asyncio.create_task(metrics.page())
    turn = 0
    while not making.done():
        turn += 1
        fleet.replace(settings[turn % 2 :: 2])
        metrics.request_ended(f"replica-{turn % 64}", f"class-{turn}", "ok")
        metrics.decided(f"class-{turn}", "plain", "class")
        metrics.retried(f"reason-{turn}")
        metrics.forget_gone()
        await asyncio.sleep(0)
    page = (await making).decode()
    lines = [line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")]
    assert len(set(lines)) == len(lines)
    assert list(text_string_to_metric_families(page))
    await fleet.stop()


async def test_labels_are_bounded_whatever_clients_send() -> None:
    """10,000 requests, each with a model, a class, a session, a user, a path and an id of its own."""
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:

        async def some(first: int, last: int) -> None:
            async with proxy.client() as client:
                for number in range(first, last):
                    body = {"model": f"model-{number}", "user": f"user-{number}", "prompt": "hello"}
                    headers = (
                        ("x-adaptive-gamma-class", f"class-{number}"),
                        ("x-session-id", f"session-{number}"),
                        ("x-request-id", f"id-{number}"),
                    )
                    path = "/v1/completions" if number % 10 else f"/path-{number}"
                    assert (await client.ask(post(path, body, headers))).status == (200 if number % 10 else 404)

        await some(0, 20)
        before = {key for key, _ in (await _samples(proxy)).items()}
        await asyncio.gather(*(some(first, first + 1250) for first in range(20, 10_020, 1250)))
        samples = await _samples(proxy)
        assert set(samples) == before
        assert sum(value for (name, _), value in samples.items() if name == "adaptive_gamma_requests_total") == 10_020
