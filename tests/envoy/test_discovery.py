"""Envoy follows what is found: replicas come and go under open streams, and nothing waits for a restart."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.discovery.fake_api import fake_api
from tests.discovery.fake_dns import fake_dns
from tests.discovery.found import kubernetes_section, pod_of
from tests.support.envoy import FilesMode, needs_envoy, running_command
from tests.support.gated_engine import EngineExchange, GatedEngine, answer_json
from tests.support.running import eventually

PATH = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "Write a warm letter to my parents."}]}
QUICK: dict[str, Any] = {
    "policy": "demo-llamacpp-cpu",
    "health": {"interval_s": 0.2, "timeout_s": 1.0, "ramp_s": 0},
    "scrape": {"interval_s": 0.2, "timeout_s": 1.0},
}


async def begins(x: EngineExchange) -> None:
    """The test says the rest."""
    x.head()
    x.chunk(b"one")


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=30.0, trust_env=False) as one:
        yield one


async def ask(client: httpx.AsyncClient, mode: FilesMode, body: Any = None) -> tuple[int, str | None]:
    answer = await client.post(mode.url + PATH, json=body or BODY)
    return answer.status_code, answer.headers.get("x-adaptive-gamma-replica")


async def rows(mode: FilesMode) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in (await mode.status())["replicas"]}


async def shared_by(mode: FilesMode, *names: str) -> None:
    """Wait until the requests of a cluster are shared by just these replicas, as far as Envoy's files say."""

    async def so() -> bool:
        return set(await mode.first("any-chat")) == set(names)

    await eventually(so)


async def lands_on(client: httpx.AsyncClient, mode: FilesMode, name: str) -> None:
    async def so() -> bool:
        return await ask(client, mode) == (200, name)

    await eventually(so)


async def test_a_stream_on_a_pod_that_ends_goes_on_and_the_pod_gets_nothing_new(
    tmp_path: Path, client: httpx.AsyncClient
) -> None:
    needs_envoy()
    async with GatedEngine(begins) as old, GatedEngine() as new, fake_api() as api:
        api.put(pod_of(old, "p1"))
        async with running_command(tmp_path, discovery=kubernetes_section(api), **QUICK) as (mode, _):
            async with client.stream("POST", mode.url + PATH, json=BODY) as answer:
                x = await old.arrived()
                old.script = answer_json()
                parts = answer.aiter_raw()
                assert await anext(parts) == b"one"

                async def counted() -> bool:
                    return bool((await rows(mode))["spec-p1"]["in_flight"] == 1)

                await eventually(counted)
                api.put(pod_of(new, "p2"))
                await lands_on(client, mode, "spec-p2")
                api.put(pod_of(old, "p1", ready=False, terminating=True))

                async def draining() -> bool:
                    row = (await rows(mode)).get("spec-p1", {})
                    return bool(row.get("draining") and row.get("in_flight") == 1)

                await eventually(draining)
                await shared_by(mode, "spec-p2")
                await lands_on(client, mode, "spec-p2")
                before = len(old.requests)
                assert [await ask(client, mode) for _ in range(10)] == [(200, "spec-p2")] * 10
                api.delete("slice-p1")

                async def gone_but_for_the_stream() -> bool:
                    status = await mode.status()
                    return bool(status["discovery"][0]["ready"] == 1 and not status["discovery"][0]["not_ready"])

                await eventually(gone_but_for_the_stream)
                await asyncio.sleep(0.5)  # several looks and rewrites
                assert (await rows(mode))["spec-p1"]["in_flight"] == 1, "Envoy goes on telling what is open on it"
                assert len(old.requests) == before
                x.chunk(b"two")
                x.end()
                assert [part async for part in parts] == [b"two"]

            async def forgotten() -> bool:
                return set(await rows(mode)) == {"spec-p2"}

            await eventually(forgotten)
            page = (await mode.admin.get("/metrics")).text
            assert "spec-p1" not in page
            assert 'adaptive_gamma_discovery_up{service="spec"} 1.0' in page

            async def unlisted() -> bool:
                return "spec-p1" not in json.dumps(mode.endpoints("any-chat"))

            await eventually(unlisted)


async def opened(
    client: httpx.AsyncClient, mode: FilesMode, engine: GatedEngine, model: str
) -> tuple[asyncio.Task[httpx.Response], EngineExchange]:
    """A request for a model, once it has come to the engine that is to have it."""
    async with asyncio.timeout(30):
        while True:
            asking = asyncio.create_task(client.post(mode.url + PATH, json={**BODY, "model": model}))
            arriving = asyncio.create_task(engine.arrived(len(engine.exchanges) + 1))
            await asyncio.wait({asking, arriving}, return_when=asyncio.FIRST_COMPLETED)
            if arriving.done():
                return asking, await arriving
            arriving.cancel()


async def test_no_request_fails_while_replicas_of_several_models_come_and_go(
    tmp_path: Path, client: httpx.AsyncClient
) -> None:
    """What models there are says which clusters Envoy has; these change under requests, and under a stream."""
    needs_envoy()
    async with (
        GatedEngine(models=["a"]) as one,
        GatedEngine(models=["a", "b"]) as two,
        GatedEngine(models=["c"]) as three,
        fake_api() as api,
    ):
        api.put(pod_of(one, "p1"))
        async with running_command(tmp_path, discovery=kubernetes_section(api), **QUICK) as (mode, _):
            answers: list[tuple[int, str | None]] = []
            over = asyncio.Event()

            async def hammer() -> None:
                async with httpx.AsyncClient(timeout=30.0, trust_env=False) as own:
                    while not over.is_set():
                        answers.append(await ask(own, mode, {**BODY, "model": "a"}))

            async def serves(model: str, status: int = 200) -> None:
                async def so() -> bool:
                    return (await ask(client, mode, {**BODY, "model": model}))[0] == status

                await eventually(so)

            async with contextlib.AsyncExitStack() as stack:
                hammers = [asyncio.create_task(hammer()) for _ in range(3)]
                stack.callback(over.set)
                for _ in range(3):
                    api.put(pod_of(two, "p2"))
                    await serves("b")
                    api.put(pod_of(three, "p3"))
                    three.script = begins
                    stream, x = await opened(client, mode, three, "c")
                    three.script = answer_json()
                    api.delete("slice-p3")
                    await serves("c", 404)
                    x.chunk(b"two")
                    x.end()
                    assert (await stream).content == b"onetwo"
                    api.delete("slice-p2")
                    await serves("b", 404)
            await asyncio.gather(*hammers)
            failed = [answer for answer in answers if answer[0] != 200]
            print(f"{len(answers)} requests, {len(failed)} failed: {failed[:5]}")
            assert not failed
            assert len(answers) > 30


async def test_nothing_found_yet(tmp_path: Path, client: httpx.AsyncClient) -> None:
    needs_envoy()
    async with GatedEngine() as engine, fake_api() as api:
        api.refusals["list"] = [(503, "starting")] * 2
        async with running_command(tmp_path, ready=False, discovery=kubernetes_section(api), **QUICK) as (mode, _):
            ready = await mode.admin.get("/readyz")
            assert (ready.status_code, ready.text) == (503, "not ready: no replica has been found\n")
            row = (await mode.status())["discovery"][0]
            assert (row["name"], row["ready"]) == ("spec", 0)
            answer = await client.post(mode.url + PATH, json=BODY)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_replica")
            assert answer.headers["retry-after"] == "1"
            api.put(pod_of(engine, "p1"))
            await lands_on(client, mode, "spec-p1")
            assert (await mode.admin.get("/readyz")).status_code == 200


async def test_the_list_stays_while_the_api_server_is_gone_and_a_reload_may_change_the_section(
    tmp_path: Path, client: httpx.AsyncClient
) -> None:
    needs_envoy()
    async with GatedEngine() as one, GatedEngine() as two, fake_api() as api:
        api.put(pod_of(one, "p1"))
        api.put(pod_of(two, "q1", service="plain"))
        async with running_command(tmp_path, discovery=kubernetes_section(api), **QUICK) as (mode, process):
            await lands_on(client, mode, "spec-p1")
            await api.asked("watch", 1)
            api.refusals = {"list": [(500, "")] * 99, "watch": [(500, "")] * 99}
            api.drop_watches()

            async def noticed() -> bool:
                return bool((await mode.status())["discovery"][0]["error_reason"] == "status_500")

            await eventually(noticed)
            assert await ask(client, mode) == (200, "spec-p1")
            assert (await mode.admin.get("/readyz")).status_code == 200
            api.refusals = {"list": [], "watch": []}
            config = tmp_path / "files.yaml"
            values = yaml.safe_load(config.read_text())
            services = [{"name": "plain", "service": "plain", "gamma": 0}]
            config.write_text(yaml.safe_dump({**values, "discovery": kubernetes_section(api, services=services)}))
            process.send_signal(signal.SIGHUP)
            await lands_on(client, mode, "plain-q1")
            config.write_text(yaml.safe_dump({**values, "discovery": {**values["discovery"], "kubernetes": {}}}))
            process.send_signal(signal.SIGHUP)

            async def refused() -> bool:
                return "adaptive_gamma_config_reload_failures_total 1.0" in (await mode.admin.get("/metrics")).text

            await eventually(refused)
            assert await ask(client, mode) == (200, "plain-q1")


async def test_a_name_is_followed(tmp_path: Path, client: httpx.AsyncClient) -> None:
    needs_envoy()
    async with GatedEngine() as engine, fake_dns() as server:
        server.set("engines.example", "A", "127.0.0.1", ttl=0)
        section = {
            "kind": "dns",
            "services": [{"name": "spec", "host": "engines.example", "port": engine.port, "gamma": 0}],
            "dns": {"servers": [server.address], "min_interval_s": 0.1},
        }
        async with running_command(tmp_path, discovery=section, **QUICK) as (mode, _):
            await lands_on(client, mode, "spec-127.0.0.1")
            server.set("engines.example", "A", "127.0.0.1", "127.0.0.2", ttl=0)

            async def both() -> bool:
                return set(await rows(mode)) == {"spec-127.0.0.1", "spec-127.0.0.2"}

            await eventually(both)
            assert (await ask(client, mode))[0] == 200


async def test_once_writes_what_is_found(tmp_path: Path) -> None:
    async with GatedEngine() as engine, fake_api() as api:
        api.put(pod_of(engine, "p1"))
        config = tmp_path / "c.yaml"
        values = {"listen": "127.0.0.1:28080", "admin": "127.0.0.1:28090", "discovery": kubernetes_section(api)}
        config.write_text(yaml.safe_dump({**QUICK, **values}))
        line = [
            sys.executable,
            "-m",
            "adaptive_gamma",
            "envoy",
            "--config",
            str(config),
            "--out",
            str(tmp_path / "out"),
        ]
        done = await asyncio.to_thread(
            subprocess.run, [*line, "--once"], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        page = json.loads((tmp_path / "out/endpoints/any-chat.json").read_text())
        (endpoint,) = page["resources"][0]["endpoints"][0]["lb_endpoints"]
        assert endpoint["endpoint"]["address"]["socket_address"]["port_value"] == engine.port


async def test_a_section_that_cannot_be_used_here_is_said_at_the_start(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    services = [{"name": "spec", "service": "spec"}]
    values = {"listen": "127.0.0.1:28080", "discovery": {"kind": "kubernetes", "services": services}}
    config.write_text(yaml.safe_dump({**QUICK, **values}))
    for command in (["envoy", "--out", str(tmp_path / "out")], ["picker"]):
        line = [sys.executable, "-m", "adaptive_gamma", command[0], "--config", str(config), *command[1:]]
        done = await asyncio.to_thread(
            subprocess.run, line, capture_output=True, text=True, timeout=60, check=False, env={}
        )
        assert done.returncode == 2
        assert "KUBERNETES_SERVICE_HOST" in done.stderr
        assert "Traceback" not in done.stderr
