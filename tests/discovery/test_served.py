"""What is found is served: replicas come and go under open streams, and nothing is lost with the place that tells."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from adaptive_gamma.cli.discovered import DiscoveredReplicas, first_replicas
from adaptive_gamma.config import Settings
from adaptive_gamma.discovery import Discovery
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.policy import load_policy
from tests.discovery.fake_api import fake_api
from tests.discovery.fake_dns import fake_dns
from tests.discovery.found import kubernetes_section, pod_of
from tests.discovery.held_pace import HeldPace
from tests.support.gated_engine import EngineExchange, GatedEngine, until
from tests.support.raw_client import post
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.served import serve


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


@dataclass
class Finding:
    """A proxy whose replicas are found."""

    proxy: RunningProxy
    discovery: Discovery
    found: DiscoveredReplicas
    pace: HeldPace

    @property
    def names(self) -> list[str]:
        return [replica.name for replica in self.proxy.plane.fleet.replicas]

    async def has(self, *names: str) -> None:
        await until(lambda: self.names == list(names), f"{names}, not {self.names}")

    async def is_draining(self, name: str, draining: bool = True) -> None:
        fleet = self.proxy.plane.fleet
        await until(lambda: fleet.by_name(name).state.draining is draining, f"{name} draining: {draining}")

    async def row(self) -> dict[str, Any]:
        page = json.loads((await self.proxy.admin("/status")).body)
        row: dict[str, Any] = page["discovery"][0]
        return row

    def reload(self, **change: Any) -> None:
        """Another configuration, of the values that the test gives."""
        plane = self.proxy.plane
        values = {**plane.settings.model_dump(by_alias=True), "replicas": [], **change}
        self.found.reload(Settings(**values), load_policy(plane.settings.policy), lambda key: "serve.yaml")


@asynccontextmanager
async def _finding(section: dict[str, Any], **settings: Any) -> AsyncIterator[Finding]:
    async with running_proxy([], **{"replicas": [], "discovery": section, **settings}) as proxy:
        pace = HeldPace()
        discovery = Discovery(proxy.plane.settings.discovery, environment={}, pace=pace)
        found = DiscoveredReplicas(proxy.plane.settings, discovery, proxy.plane)
        await discovery.start()
        try:
            yield Finding(proxy, discovery, found, pace)
        finally:
            await discovery.stop()


async def test_a_stream_on_a_pod_that_ends_goes_on_and_the_pod_gets_nothing_new() -> None:
    async with GatedEngine(_silent) as old, GatedEngine() as new, fake_api() as api:
        api.put(pod_of(old, "p1"))
        async with _finding(kubernetes_section(api)) as finding, finding.proxy.client() as client:
            proxy = finding.proxy
            await finding.has("spec-p1")
            client.send(post())
            x = await old.arrived()
            x.head()
            x.chunk(b"one")
            head = await client.head()
            state = proxy.plane.fleet.states[0]

            api.put(pod_of(new, "p2"))
            await finding.has("spec-p1", "spec-p2")
            api.put(pod_of(old, "p1", ready=False, terminating=True))
            await finding.is_draining("spec-p1")
            for _ in range(3):
                assert (await proxy.ask(post())).one("x-adaptive-gamma-replica") == "spec-p2"
            assert (await proxy.status())["spec-p1"]["draining"] is True

            api.delete("slice-p1")
            await finding.has("spec-p2")
            assert proxy.plane.fleet.in_flight() == {"spec-p2": 0, "spec-p1": 1}
            assert list((await proxy.metrics()).values("in_flight", replica="spec-p1")) == [1]
            x.chunk(b"two")
            x.end()
            answer = await client.rest(head)
            assert (answer.body, answer.complete) == (b"onetwo", True)
            await until(lambda: state.in_flight == 0, "the stream has ended")
            page = await proxy.metrics()
            assert not [labels for _, labels, _ in page.samples if labels.get("replica") == "spec-p1"]
            assert proxy.plane.fleet.leaving == ()


async def test_a_replica_whose_readiness_flaps_stays_the_same_replica() -> None:
    """What is known of it, its open streams and its load are kept, and it does not start slowly again."""
    async with GatedEngine(_silent) as engine, GatedEngine() as other, fake_api() as api:
        api.put(pod_of(engine, "p1"))
        api.put(pod_of(other, "p2"))
        async with _finding(kubernetes_section(api)) as finding, finding.proxy.client() as client:
            await finding.has("spec-p1", "spec-p2")
            fleet = finding.proxy.plane.fleet
            replicas = fleet.replicas
            other.stop_listening()
            client.send(post())
            x = await engine.arrived()
            ramps = [replica.state.ramp_until for replica in replicas]
            for _ in range(3):
                api.put(pod_of(engine, "p1", ready=False))
                await finding.is_draining("spec-p1")
                api.put(pod_of(engine, "p1"))
                await finding.is_draining("spec-p1", False)
            assert fleet.replicas == replicas
            assert [replica.state.ramp_until for replica in replicas] == ramps
            assert fleet.in_flight()["spec-p1"] == 1
            x.answer(200, b"{}")
            assert (await client.answer()).status == 200


async def test_a_pod_joins_when_it_is_ready_first() -> None:
    async with GatedEngine() as engine, GatedEngine() as starting, fake_api() as api:
        api.put(pod_of(engine, "p1"))
        api.put(pod_of(starting, "p2", ready=False))
        async with _finding(kubernetes_section(api)) as finding:
            await finding.has("spec-p1")
            assert (await finding.row())["not_ready"] == ["p2"]
            api.put(pod_of(starting, "p2"))
            await finding.has("spec-p1", "spec-p2")


async def test_the_list_stays_while_the_api_server_is_gone() -> None:
    async with GatedEngine() as engine, fake_api() as api:
        api.put(pod_of(engine, "p1"))
        async with _finding(kubernetes_section(api)) as finding:
            await finding.has("spec-p1")
            await finding.proxy.plane.fleet.scrape_once()
            await finding.proxy.plane.fleet.check_health_once()
            await api.asked("watch", 1)
            page = await finding.proxy.metrics()
            assert (page.total("discovery_up"), page.total("discovery_age_seconds")) == (1, 0)
            api.refusals = {"list": [(500, "")] * 9, "watch": [(500, "")] * 9}
            api.drop_watches()
            await until(lambda: bool(finding.pace.sleeps), "the watch is lost")
            finding.pace.advance(0.5)
            await until(lambda: len(finding.pace.sleeps) == 2, "so is the next")
            finding.pace.advance(0.25)
            row = await finding.row()
            assert (row["error_reason"], row["age_s"], row["error_age_s"]) == ("status_500", 0.75, 0.75)
            assert (row["name"], row["kind"], row["source"]) == ("spec", "kubernetes", "endpointslices default/spec")
            page = await finding.proxy.metrics()
            assert (page.total("discovery_up"), page.total("discovery_age_seconds")) == (0, 0.75)
            assert page.total("discovery_endpoints", service="spec", state="ready") == 1
            assert page.total("discovery_failures_total", reason="status_500") == 1
            assert (await finding.proxy.admin("/readyz")).status == 200
            assert (await finding.proxy.ask(post())).one("x-adaptive-gamma-replica") == "spec-p1"


async def test_nothing_found_yet() -> None:
    async with GatedEngine() as engine, fake_api() as api, _finding(kubernetes_section(api)) as finding:
        await api.asked("watch", 1)
        ready = await finding.proxy.admin("/readyz")
        assert (ready.status, ready.body) == (503, b"not ready: no replica has been found\n")
        answer = await finding.proxy.ask(post())
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (503, "no_replica")
        assert (await finding.proxy.ask(b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n", "GET")).status == 503
        api.put(pod_of(engine, "p1"))
        await finding.has("spec-p1")
        assert (await finding.proxy.ask(post())).status == 200


async def test_a_request_that_waits_for_room_takes_a_replica_that_is_found() -> None:
    async with GatedEngine(_silent) as full, GatedEngine() as new, fake_api() as api:
        api.put(pod_of(full, "p1"))
        load = {"max_in_flight": 1, "queue": 4}
        async with (
            _finding(kubernetes_section(api), load=load) as finding,
            finding.proxy.client() as first,
            finding.proxy.client() as second,
        ):
            await finding.has("spec-p1")
            first.send(post())
            x = await full.arrived()
            second.send(post())
            await until(lambda: len(finding.proxy.plane.waiting) == 1, "the second waits")
            api.put(pod_of(new, "p2"))
            assert (await second.answer()).one("x-adaptive-gamma-replica") == "spec-p2"
            x.answer(200, b"{}")
            assert (await first.answer()).status == 200


async def test_a_reload_may_change_the_section_and_what_stays_is_not_touched() -> None:
    async with GatedEngine(_silent) as one, GatedEngine() as two, GatedEngine() as fixed, fake_api() as api:
        api.put(pod_of(one, "p1"))
        api.put(pod_of(two, "q1", service="plain"))
        async with _finding(kubernetes_section(api)) as finding, finding.proxy.client() as client:
            await finding.has("spec-p1")
            replica = finding.proxy.plane.fleet.replicas[0]
            client.send(post())
            x = await one.arrived()
            both = [{"name": n, "service": n, "gamma": 0, "max_in_flight": 9} for n in ("spec", "plain")]
            finding.reload(
                discovery=kubernetes_section(api, services=both),
                replicas=[{"name": "fixed", "url": fixed.url, "gamma": 0}],
            )
            assert finding.names == ["fixed", "spec-p1"], "at once, nothing has to be found again"
            await finding.has("fixed", "spec-p1", "plain-q1")
            assert finding.proxy.plane.fleet.replicas[1] is replica
            assert replica.state.max_in_flight == 9
            assert [query["labelSelector"] for kind, query, _ in api.requests if kind == "list"] == [
                "kubernetes.io/service-name=spec", "kubernetes.io/service-name=plain",
            ]  # fmt: skip

            finding.reload(discovery=kubernetes_section(api, services=both, retry_max_s=60.0))
            assert finding.names == ["spec-p1", "plain-q1"], "asked in another way, and what was known stays"
            assert finding.proxy.plane.fleet.replicas[0] is replica
            await api.asked("list", 4)

            with pytest.raises(ConfigurationError, match="KUBERNETES_SERVICE_HOST"):
                finding.reload(discovery={**kubernetes_section(api), "kubernetes": {}})
            assert finding.names == ["spec-p1", "plain-q1"]
            assert (await finding.proxy.metrics()).total("config_reload_failures_total") == 1

            finding.reload(discovery=None, replicas=[{"name": "fixed", "url": fixed.url, "gamma": 0}])
            assert finding.names == ["fixed"]
            assert json.loads((await finding.proxy.admin("/status")).body)["discovery"] == []
            api.put(pod_of(two, "p2"))
            x.answer(200, b"{}")
            answer = await client.answer()
            assert (answer.status, answer.one("x-adaptive-gamma-replica")) == (200, "spec-p1")
            assert finding.names == ["fixed"]


async def test_changes_while_draining_change_nothing() -> None:
    async with GatedEngine() as engine, fake_api() as api, _finding(kubernetes_section(api)) as finding:
        await api.asked("watch", 1)
        finding.proxy.plane.draining = True
        api.put(pod_of(engine, "p1"))
        await until(lambda: len(finding.discovery.replicas([]).replicas) == 1, "it is found")
        assert finding.names == []


async def test_the_first_replicas_are_those_that_are_ready() -> None:
    async with GatedEngine() as engine, GatedEngine() as starting, fake_api() as api:
        api.put(pod_of(engine, "p1"))
        api.put(pod_of(starting, "p2", ready=False))
        settings = Settings(policy="p", discovery=kubernetes_section(api))  # type: ignore[arg-type]  # as the file gives it
        discovery = Discovery(settings.discovery, environment={}, pace=HeldPace())
        await discovery.start(5)
        try:
            assert [replica.name for replica in first_replicas(settings, discovery).replicas] == ["spec-p1"]
        finally:
            await discovery.stop()


async def test_the_command_finds_serves_and_takes_anotherkubernetes_section(tmp_path: Path) -> None:
    async with GatedEngine(_silent) as one, GatedEngine() as two, fake_api() as api:
        token = tmp_path / "token"
        token.write_text("cluster-secret")
        api.token = "cluster-secret"
        api.put(pod_of(one, "p1"))
        api.put(pod_of(two, "q1", service="plain"))
        section = kubernetes_section(api, kubernetes={"api_url": api.url, "token_file": str(token)})
        async with serve(tmp_path, [], discovery=section) as served:
            await served.ready()
            await served.logged("replicas spec-p1=")
            async with served.client() as client:
                client.send(post())
                x = await one.arrived()
                x.head()
                head = await client.head()
                services = [{"name": "plain", "service": "plain", "gamma": 0}]
                config = tmp_path / "serve.yaml"
                values = yaml.safe_load(config.read_text())
                config.write_text(yaml.safe_dump({**values, "discovery": {**section, "services": services}}))
                served.signal(signal.SIGHUP)
                await served.logged("replica plain-q1 joins")
                async with served.client() as late:
                    assert (await late.ask(post())).one("x-adaptive-gamma-replica") == "plain-q1"
                x.chunk(b"end")
                x.end()
                assert (await client.rest(head)).complete
            rows = (await served.status())["discovery"]
            assert [(row["name"], row["ready"], row["error"]) for row in rows] == [("plain", 1, None)]
            config.write_text(yaml.safe_dump({**values, "discovery": {**section, "kind": "dns"}}))
            served.signal(signal.SIGHUP)
            await served.logged("service has no meaning with kind dns")
            served.signal(signal.SIGTERM)
            assert await served.exit() == 0
        assert not any("cluster-secret" in line for line in served.lines)


async def test_the_command_starts_while_the_api_server_is_gone(tmp_path: Path) -> None:
    async with GatedEngine() as engine, fake_api() as api:
        api.refusals["list"] = [(503, "starting")]
        api.put(pod_of(engine, "p1"))
        async with serve(tmp_path, [], discovery=kubernetes_section(api)) as served:
            await served.ready()
            assert any("status_503" in line and "what is known of it stays" in line for line in served.lines)
            async with served.client() as client:
                assert (await client.ask(post())).one("x-adaptive-gamma-replica") == "spec-p1"


async def test_the_command_finds_by_name(tmp_path: Path) -> None:
    async with GatedEngine() as engine, fake_dns() as server:
        server.set("engines.example", "A", "127.0.0.1")
        section = {
            "kind": "dns",
            "services": [{"name": "spec", "host": "engines.example", "port": engine.port, "gamma": 0}],
            "dns": {"servers": [server.address]},
        }
        async with serve(tmp_path, [], discovery=section) as served:
            await served.ready()
            async with served.client() as client:
                assert (await client.ask(post())).one("x-adaptive-gamma-replica") == "spec-127.0.0.1"
            assert (await served.status())["discovery"][0]["source"] == "address records of engines.example"
