"""Another configuration while requests are open: all of it or nothing, and what is under way ends as it began."""

from __future__ import annotations

from typing import Any

import pytest

from adaptive_gamma.config import Settings
from adaptive_gamma.errors import ConfigurationError
from tests.support.gated_engine import EngineExchange, GatedEngine, until
from tests.support.raw_client import post
from tests.support.running_proxy import RunningProxy, running_proxy


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


def _changed(proxy: RunningProxy, **change: Any) -> Settings:
    values = proxy.plane.settings.model_dump(by_alias=True)
    return Settings(**{**values, **change})


def _replicas(**places: str) -> list[dict[str, Any]]:
    return [{"name": name, "url": url, "gamma": 0} for name, url in places.items()]


async def _reload(proxy: RunningProxy, **change: Any) -> None:
    proxy.plane.apply(_changed(proxy, **change), proxy.plane.policy)


async def test_a_stream_on_a_removed_replica_ends_undisturbed() -> None:
    async with GatedEngine(_silent) as old, GatedEngine() as new, running_proxy([old]) as proxy:
        async with proxy.client() as client:
            client.send(post())
            x = await old.arrived()
            x.head()
            x.chunk(b"one")
            head = await client.head()
            state = proxy.plane.fleet.states[0]
            await _reload(proxy, replicas=_replicas(r1=new.url))
            assert (await proxy.ask(post())).one("x-adaptive-gamma-replica") == "r1"
            assert (state.in_flight, proxy.plane.fleet.in_flight()) == (1, {"r0": 1, "r1": 0})
            x.chunk(b"two")
            x.end()
            answer = await client.rest(head)
            assert (answer.body, answer.complete) == (b"onetwo", True)
            await until(lambda: state.in_flight == 0, "the removed replica is idle")
            assert (await client.ask(post())).one("x-adaptive-gamma-replica") == "r1", "the client's connection goes on"
        assert proxy.plane.fleet.leaving == ()
        await x.gone()


async def test_a_request_that_waits_for_its_first_byte_is_answered_by_a_removed_replica() -> None:
    async with (
        GatedEngine(_silent) as old,
        GatedEngine() as new,
        running_proxy([old]) as proxy,
        proxy.client() as client,
    ):
        client.send(post())
        x = await old.arrived()
        await _reload(proxy, replicas=_replicas(r1=new.url))
        x.answer(200, b'{"late":true}', [("content-type", "application/json")])
        answer = await client.answer()
        assert (answer.status, answer.body, answer.one("x-adaptive-gamma-replica")) == (200, b'{"late":true}', "r0")


async def test_another_address_of_the_same_name() -> None:
    async with GatedEngine(_silent) as old, GatedEngine() as new, running_proxy([old]) as proxy:
        async with proxy.client() as client:
            client.send(post())
            x = await old.arrived()
            x.head()
            await _reload(proxy, replicas=_replicas(r0=new.url))
            assert (await proxy.ask(post())).status == 200
            assert (len(old.requests), len(new.requests)) == (1, 1)
            assert proxy.plane.fleet.in_flight() == {"r0": 1}
            x.chunk(b"end")
            x.end()
            assert (await client.answer()).body == b"end"
        await until(lambda: proxy.plane.fleet.in_flight() == {"r0": 0}, "both are idle")
        await x.gone()


async def test_idle_connections_of_removed_replicas_are_dropped_and_others_kept() -> None:
    async with GatedEngine() as one, GatedEngine() as two, running_proxy([one, two]) as proxy:
        for _ in range(40):
            await proxy.ask(post())
        served = {"r0": one, "r1": two}
        assert all(engine.requests for engine in served.values())
        kept = proxy.plane.upstreams["r1"]
        idle = kept.idle_connections
        assert idle > 0
        connections = set(one.open_connections)
        await _reload(proxy, replicas=_replicas(r1=two.url, r2=one.url))
        assert proxy.plane.upstreams["r1"] is kept
        assert kept.idle_connections == idle
        assert set(proxy.plane.upstreams) == {"r1", "r2"}
        assert proxy.plane.upstreams["r2"].idle_connections == 0
        await until(lambda: not connections & one.open_connections, "the removed replica's connections are dropped")


async def test_other_time_limits_hold_for_new_requests() -> None:
    async with GatedEngine(_silent) as engine, running_proxy([engine]) as proxy:
        before = proxy.plane.upstreams["r0"]
        await _reload(proxy, limits={"first_byte_timeout_s": 0.05, "body_bytes": 10})
        assert proxy.plane.upstreams["r0"] is not before
        assert (await proxy.ask(post())).status == 413
        await _reload(proxy, limits={"first_byte_timeout_s": 0.05})
        assert (await proxy.ask(post())).status == 504


async def test_what_decides_changes_with_it() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        plane = proxy.plane
        chooser = plane.chooser
        assert (await proxy.ask(post("/extra"))).status == 404
        for _ in range(5):
            await proxy.ask(post(headers=(("x-class", "chat"),)))
        assert len(plane.decisions) == 5
        await _reload(
            proxy,
            mode="observe",
            allow_paths=["/extra"],
            engine_api_key="new-key",
            classify={"header": "x-class", "default": "structured"},
            decision={"keep": 2, "kv_usage_limit": 0.5},
            retry={"attempts": 3},
        )
        assert plane.chooser is chooser
        assert (chooser.mode, chooser.limits.kv_usage, len(plane.decisions)) == ("observe", 0.5, 2)
        answer = await proxy.ask(post("/extra"))
        assert (answer.status, answer.one("x-adaptive-gamma-reason")) == (200, "observe")
        assert answer.one("x-adaptive-gamma-class") == "structured"
        answer = await proxy.ask(post(headers=(("x-class", "chat"),)))
        assert answer.one("x-adaptive-gamma-class") == "chat"
        assert engine.requests[-1].one("authorization") == b"Bearer new-key"
        assert len(plane.decisions) == 2
        assert plane.settings.retry.attempts == 3


async def test_what_needs_a_restart_is_refused_and_nothing_changes() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        plane = proxy.plane
        before = (plane.settings, plane.upstreams, plane.fleet.replicas, plane.classifier, plane.chooser.mode)
        settings = _changed(
            proxy, listen="127.0.0.1:1", admin="127.0.0.1:2", mode="observe", replicas=_replicas(other=engine.url)
        )
        with pytest.raises(ConfigurationError) as caught:
            plane.apply(settings, plane.policy, lambda key: f"file of {key}")
        assert str(caught.value).splitlines() == [
            "file of listen: listen: 127.0.0.1:1 needs a restart; this process serves at 127.0.0.1:0",
            "file of admin: admin: 127.0.0.1:2 needs a restart; this process serves at 127.0.0.1:00",
        ]
        assert before == (
            plane.settings, plane.upstreams, plane.fleet.replicas, plane.classifier, plane.chooser.mode
        )  # fmt: skip
        assert "adaptive_gamma_config_reload_failures_total 1.0" in (await proxy.admin("/metrics")).body.decode()
        assert (await proxy.ask(post())).status == 200


async def test_a_hundred_reloads_under_traffic_lose_no_answer() -> None:
    """Two engines change names and addresses while requests come one after another on kept connections."""
    async with GatedEngine() as one, GatedEngine() as two, running_proxy([one, two]) as proxy:
        fleets = [
            _replicas(r0=one.url, r1=two.url),
            _replicas(r0=two.url),
            _replicas(r1=one.url, r0=two.url),
            _replicas(new=one.url),
        ]
        async with proxy.client() as client, proxy.client() as other:
            for turn in range(100):
                client.send(post())
                other.send(post())
                await _reload(proxy, replicas=fleets[turn % len(fleets)])
                assert (await client.answer()).status == 200
                await _reload(proxy, replicas=fleets[(turn + 1) % len(fleets)])
                assert (await other.answer()).status == 200
        assert proxy.count("ok") <= 200
        await until(lambda: set(proxy.plane.fleet.in_flight().values()) == {0}, "nothing is open")
        assert proxy.plane.fleet.leaving == ()


PROMPT = {"model": "m", "prompt": "Once upon a time. " * 200, "user": "somebody"}


async def test_caches_of_replicas_that_leave_or_come_back_are_forgotten() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        plane = proxy.plane
        await proxy.ask(post("/v1/completions", PROMPT))
        known = plane.affinity
        assert known is not None
        entries = len(known)
        assert entries > 0
        assert f"adaptive_gamma_affinity_entries {entries}.0" in (await proxy.admin("/metrics")).body.decode()
        await _reload(proxy, replicas=_replicas(r0=engine.url, r1=engine.url), mode="observe")
        assert (plane.affinity, len(known)) == (known, entries), "nobody left"
        for _ in range(3):
            plane.fleet.note_failure("r0")
        for _ in range(2):
            await plane.fleet.check_health_once()
        assert len(known) == 0, "it came back from down"
        while not len(known):
            await proxy.ask(post("/v1/completions", PROMPT))
        await _reload(proxy, replicas=_replicas(r2=engine.url))
        assert len(known) == 0, "it was removed"
        assert plane.affinity is known


async def test_another_size_of_the_affinity_index_makes_it_anew() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        await proxy.ask(post("/v1/completions", PROMPT))
        before = proxy.plane.affinity
        await _reload(proxy, affinity={"entries": 2, "max_age_s": 60})
        assert proxy.plane.affinity is not before
        await proxy.ask(post("/v1/completions", PROMPT))
        assert "adaptive_gamma_affinity_entries 2.0" in (await proxy.admin("/metrics")).body.decode()
        await _reload(proxy, affinity={"entries": 0})
        assert proxy.plane.affinity is None
        assert (await proxy.ask(post("/v1/completions", PROMPT))).status == 200
        assert "adaptive_gamma_affinity_entries 0.0" in (await proxy.admin("/metrics")).body.decode()
