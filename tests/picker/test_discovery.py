"""The picker follows what is found, and tells gateways of nobody who is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import yaml

from adaptive_gamma.config import Settings
from tests.discovery.fake_api import fake_api
from tests.discovery.fake_dns import fake_dns
from tests.discovery.found import kubernetes_section, pod_of
from tests.support.envoy_gateway import PickerProcess, picker_process
from tests.support.gated_engine import GatedEngine
from tests.support.gateway import CODE, POLICY, Gateway, busy_engine, immediate, picked, running_picker
from tests.support.running import eventually

QUICK: dict[str, Any] = {
    "policy": POLICY,
    "health": {"interval_s": 0.2, "timeout_s": 1.0, "ramp_s": 0},
    "scrape": {"interval_s": 0.2, "timeout_s": 1.0},
}


async def _picked(picker: PickerProcess) -> set[str]:
    """The replicas that one of ten requests goes to first or next."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{picker.port}") as channel:
        gateway = Gateway(channel)
        answers = [picked(await gateway.ask(CODE)) for _ in range(10)]
    return {place for answer in answers for place in answer.endpoint.split(",")}


async def _goes_to(picker: PickerProcess, *engines: GatedEngine) -> None:
    wanted = {f"127.0.0.1:{engine.port}" for engine in engines}

    async def so() -> bool:
        return await _picked(picker) == wanted

    await eventually(so)


async def test_pods_come_and_go(tmp_path: Path) -> None:
    async with GatedEngine() as one, GatedEngine() as two, fake_api() as api:
        api.put(pod_of(one, "p1"))
        async with picker_process(tmp_path, discovery=kubernetes_section(api), **QUICK) as picker:
            await _goes_to(picker, one)
            api.put(pod_of(two, "p2", ready=False))
            api.put(pod_of(two, "p2"))
            await _goes_to(picker, one, two)
            api.put(pod_of(one, "p1", ready=False, terminating=True))
            await _goes_to(picker, two)
            rows = {row["name"]: row["draining"] for row in (await picker.status())["replicas"]}
            assert rows == {"spec-p1": True, "spec-p2": False}
            api.delete("slice-p1")

            async def gone() -> bool:
                return [row["name"] for row in (await picker.status())["replicas"]] == ["spec-p2"]

            await eventually(gone)
            page = (await picker.admin.get("/metrics")).text
            assert 'adaptive_gamma_discovery_endpoints{service="spec",state="ready"} 1.0' in page
            assert "spec-p1" not in page
            assert (await picker.status())["discovery"][0]["source"] == "endpointslices default/spec"


async def test_nothing_found_yet(tmp_path: Path) -> None:
    async with GatedEngine() as engine, fake_api() as api:
        api.refusals["list"] = [(503, "starting")] * 2
        async with picker_process(tmp_path, ready=False, discovery=kubernetes_section(api), **QUICK) as picker:
            assert (await picker.admin.get("/readyz")).text == "not ready: no replica has been found\n"
            async with grpc.aio.insecure_channel(f"127.0.0.1:{picker.port}") as channel:
                status, headers, error = immediate(await Gateway(channel).ask(CODE))
            assert (status, error["code"], headers["retry-after"]) == (503, "no_replica", "1")
            api.put(pod_of(engine, "p1"))

            async def ready() -> bool:
                return (await picker.admin.get("/readyz")).status_code == 200

            await eventually(ready)
            await _goes_to(picker, engine)


async def test_a_name_is_followed_and_a_changed_file_read(tmp_path: Path) -> None:
    async with GatedEngine() as engine, GatedEngine() as fixed, fake_dns() as server:
        server.set("engines.example", "A", "127.0.0.1")
        services = [{"name": "spec", "host": "engines.example", "port": engine.port, "gamma": 0}]
        section = {"kind": "dns", "services": services, "dns": {"servers": [server.address]}}
        async with picker_process(tmp_path, discovery=section, reload={"watch_s": 0.05}, **QUICK) as picker:
            await _goes_to(picker, engine)
            config = tmp_path / "picker.yaml"
            values = yaml.safe_load(config.read_text())
            # Its name has to be looked up: until that is done it is not picked.
            replicas = [{"name": "fixed", "url": f"http://localhost:{fixed.port}", "gamma": 0}]
            config.write_text(yaml.safe_dump({**values, "replicas": replicas}))
            await _goes_to(picker, engine, fixed)
            config.write_text(yaml.safe_dump({**values, "admin": "127.0.0.1:1"}))

            async def refused() -> bool:
                return await picker.sample("adaptive_gamma_config_reload_failures_total") == 1

            await eventually(refused)
            await _goes_to(picker, engine, fixed)


async def test_replicas_that_change_while_names_are_looked_up() -> None:
    """An answer of the resolver that comes late must not bring back those who have gone meanwhile."""
    async with busy_engine() as one, busy_engine() as two, running_picker([one]) as run:
        picker = run.picker
        values = picker.settings.model_dump(by_alias=True)
        other = Settings(**{**values, "replicas": [{"name": "other", "url": two.url, "gamma": 0}]})
        looking = asyncio.create_task(picker.look_up())
        await asyncio.sleep(0)
        picker.take_replicas(other.replicas)
        await looking
        assert picked(await run.gateway.ask(CODE)).endpoint == two.url.removeprefix("http://")
