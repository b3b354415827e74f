"""The picker behind a real Envoy: where requests land, what streams, and what happens when pickers go."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.envoy_gateway import EnvoyGateway, PickerProcess, envoy_gateway, picker_process
from tests.support.gated_engine import DEADLINE_S, EngineExchange, GatedEngine, Script, answer_json
from tests.support.gateway import CODE, POLICY, PROSE
from tests.support.raw_client import RawClient, post
from tests.support.running import eventually

MODES = ["FULL_DUPLEX_STREAMED", "BUFFERED"]
FAST = {
    "scrape": {"interval_s": 60, "timeout_s": 10, "stale_after_s": 3600},
    "health": {"interval_s": 3600, "ramp_s": 0},
}
CLEAR = ("--tls", "off", "--linger", "0")
TLS = ("--linger", "0")


def _settings(spec: GatedEngine, plain: GatedEngine) -> dict[str, Any]:
    replicas = [{"name": "spec", "url": spec.url, "gamma": 2}, {"name": "plain", "url": plain.url, "gamma": 0}]
    return {"policy": POLICY, "replicas": replicas, **FAST}


def _places(*engines: GatedEngine) -> list[str]:
    return [f"127.0.0.1:{engine.port}" for engine in engines]


@asynccontextmanager
async def _behind(
    folder: Path,
    spec: GatedEngine,
    plain: GatedEngine,
    *,
    options: tuple[str, ...] = CLEAR,
    settings: dict[str, Any] | None = None,
    **gateway: Any,
) -> AsyncIterator[tuple[EnvoyGateway, PickerProcess]]:
    async with (
        picker_process(folder, options=options, **_settings(spec, plain), **(settings or {})) as picker,
        envoy_gateway(folder, _places(spec, plain), [picker.port], **gateway) as envoy,
    ):
        yield envoy, picker


def _engines(script: Script | None = None) -> tuple[GatedEngine, GatedEngine]:
    return GatedEngine(script, models=["m"]), GatedEngine(script, models=["m"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tls", [False, True])
async def test_code_and_prose_land_as_decided(tmp_path: Path, mode: str, tls: bool) -> None:
    spec, plain = _engines()
    async with spec, plain, _behind(tmp_path, spec, plain, mode=mode, tls=tls, options=TLS if tls else CLEAR) as (e, p):
        # Four of each: own picks make the load at which code still speculates and prose no more.
        for _ in range(4):
            await e.client.post("/v1/completions", json=PROSE)
        answers = [await e.client.post("/v1/completions", json=body) for body in (CODE, PROSE)]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert [answer.headers["x-adaptive-gamma-class"] for answer in answers] == ["structured", "chat"]
        assert [answer.headers["x-adaptive-gamma-replica"] for answer in answers] == ["spec", "plain"]
        landed = {engine: [json.loads(request.body) for request in engine.requests] for engine in (spec, plain)}
        assert landed[spec][-1] == CODE
        assert landed[plain][-1] == PROSE
        assert await p.sample('adaptive_gamma_decisions_total{class="structured",pool="speculative",reason="class"}')


@pytest.mark.parametrize("mode", MODES)
async def test_bodies_arrive_as_they_were_sent(tmp_path: Path, mode: str) -> None:
    spec, plain = _engines()
    large = {**CODE, "padding": "x" * 900_000}
    async with spec, plain, _behind(tmp_path, spec, plain, mode=mode) as (envoy, _):
        content = json.dumps(large).encode()
        answer = await envoy.client.post("/v1/completions", content=content)
        assert answer.status_code == 200
        assert (await envoy.client.get("/v1/models")).status_code == 200
        (request,) = [request for engine in (spec, plain) for request in engine.requests if request.method == "POST"]
        assert request.body == content


async def test_what_a_client_smuggles_is_not_heeded(tmp_path: Path) -> None:
    spec, plain = _engines()
    async with GatedEngine() as elsewhere, spec, plain, _behind(tmp_path, spec, plain) as (envoy, _):
        sent = {
            "x-gateway-destination-endpoint": f"127.0.0.1:{elsewhere.port}",
            "x-adaptive-gamma-replica": "elsewhere",
        }
        answer = await envoy.client.post("/v1/completions", json=CODE, headers=sent)
        assert answer.headers["x-adaptive-gamma-replica"] == "spec"
        (request,) = spec.requests
        assert request.one("x-adaptive-gamma-replica") is None
        assert request.one("x-gateway-destination-endpoint") == b"127.0.0.1:%d,127.0.0.1:%d" % (spec.port, plain.port)


async def test_own_answers_reach_the_client(tmp_path: Path) -> None:
    spec, plain = _engines()
    load = {"load": {"max_in_flight": 1}}
    async with spec, plain, _behind(tmp_path, spec, plain, settings=load) as (envoy, _):
        bad = await envoy.client.post("/v1/completions", content=b"{")
        assert (bad.status_code, bad.json()["error"]["code"]) == (400, "invalid_json")
        assert (await envoy.client.post("/sleep")).json()["error"]["code"] == "path_not_found"
        for _ in range(2):
            assert (await envoy.client.post("/v1/completions", json=CODE)).status_code == 200
        full = await envoy.client.post("/v1/completions", json=CODE)
        assert (full.status_code, full.headers["retry-after"]) == (429, "1")
        assert full.json()["error"]["code"] == "at_capacity"
        assert full.headers["content-type"] == "application/json"


@pytest.mark.parametrize("response", [False, True])
async def test_streams_flow_and_none_of_them_through_the_picker(tmp_path: Path, response: bool) -> None:
    """Also where the gateway is told to send responses to the picker, as Istio does."""
    goes_on = asyncio.Event()

    async def script(x: EngineExchange) -> None:
        x.head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
        x.chunk(b"data: first\n\n")
        await goes_on.wait()
        for _ in range(50):
            x.chunk(b"data: more\n\n")
            await asyncio.sleep(0.001)
        x.end()

    spec, plain = _engines(script)
    async with spec, plain, _behind(tmp_path, spec, plain, response=response) as (envoy, picker):
        async with (
            asyncio.timeout(DEADLINE_S),
            envoy.client.stream("POST", "/v1/completions", json={**CODE, "stream": True}) as answer,
        ):
            parts = answer.aiter_raw()
            assert await anext(parts) == b"data: first\n\n"
            goes_on.set()
            rest = b"".join([part async for part in parts])
        assert rest == b"data: more\n\n" * 50
        assert await picker.sample("adaptive_gamma_picker_open") == 0
        assert await envoy.stat("http.in.ext_proc.streams_failed") == 0
        sent = await envoy.stat("http.in.ext_proc.stream_msgs_sent")
        assert 1 <= sent <= 6, sent


async def test_a_client_that_leaves_frees_the_engine(tmp_path: Path) -> None:
    async def script(x: EngineExchange) -> None:
        x.head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
        x.chunk(b"data: first\n\n")
        await x.gone()

    spec, plain = _engines(script)
    async with spec, plain, _behind(tmp_path, spec, plain) as (envoy, _):
        async with envoy.client.stream("POST", "/v1/completions", json=CODE) as answer:
            assert await anext(answer.aiter_raw()) == b"data: first\n\n"
        await (await spec.arrived()).gone()


async def test_a_client_that_leaves_with_half_a_body_is_forgotten(tmp_path: Path) -> None:
    spec, plain = _engines()
    async with spec, plain, _behind(tmp_path, spec, plain) as (envoy, picker):
        async with RawClient(envoy.client.base_url.port or 0) as client:
            whole = post("/v1/completions", body=CODE)
            client.send(whole[:-10])

            async def one_open() -> bool:
                return await picker.sample("adaptive_gamma_picker_open") == 1

            async def none_open() -> bool:
                return await picker.sample("adaptive_gamma_picker_open") == 0

            await eventually(one_open)
        await eventually(none_open)
        assert not spec.requests
        assert not plain.requests


async def _status(envoy: EnvoyGateway, method: str) -> int:
    if method == "GET":
        return (await envoy.client.get("/v1/models")).status_code
    return (await envoy.client.post("/v1/completions", json=CODE)).status_code


@pytest.mark.parametrize(
    ("mode", "fail_open", "health", "expected"),
    [
        ("FULL_DUPLEX_STREAMED", False, False, (500, 500)),
        ("BUFFERED", False, False, (500, 500)),
        ("BUFFERED", True, False, (200, 200)),
        # The way out: once the health check has tripped, the picker is not asked any more.
        ("FULL_DUPLEX_STREAMED", True, True, (200, 200)),
        ("BUFFERED", True, True, (200, 200)),
        ("FULL_DUPLEX_STREAMED", False, True, (500, 500)),
    ],
)
async def test_a_picker_that_is_down(
    tmp_path: Path, mode: str, fail_open: bool, health: bool, expected: tuple[int, int]
) -> None:
    spec, plain = _engines(answer_json())
    options: dict[str, Any] = {"mode": mode, "fail_open": fail_open, "health": health}
    async with spec, plain, _behind(tmp_path, spec, plain, **options) as (envoy, picker):
        if health:
            await envoy.healthy_pickers(1)
        assert (await _status(envoy, "POST"), await _status(envoy, "GET")) == (200, 200)
        picker.process.kill()
        picker.process.wait()
        if health:
            await envoy.healthy_pickers(0)
        assert (await _status(envoy, "POST"), await _status(envoy, "GET")) == expected


async def test_duplex_does_not_fail_open_once_a_body_has_begun(tmp_path: Path) -> None:
    """The known weakness of Envoy 1.40. Where it notices before it sends any of the body, it lets the request pass."""
    spec, plain = _engines(answer_json())
    whole = post("/v1/completions", body=CODE)
    async with spec, plain, _behind(tmp_path, spec, plain, fail_open=True) as (envoy, picker):
        assert await _status(envoy, "POST") == 200
        async with RawClient(envoy.client.base_url.port or 0) as client:
            client.send(whole[:-10])

            async def one_open() -> bool:
                return await picker.sample("adaptive_gamma_picker_open") == 1

            await eventually(one_open)
            picker.process.kill()
            picker.process.wait()
            client.send(whole[-10:])
            assert (await client.answer()).status == 500
        assert await _status(envoy, "POST") in (200, 500)
        assert await _status(envoy, "GET") == 200


@pytest.mark.parametrize("mode", MODES)
async def test_one_of_two_pickers_killed_costs_nothing_once_noticed(tmp_path: Path, mode: str) -> None:
    async with (
        GatedEngine(models=["m"]) as spec,
        GatedEngine(models=["m"]) as plain,
        picker_process(tmp_path, "one", **_settings(spec, plain)) as one,
        picker_process(tmp_path, "two", **_settings(spec, plain)) as two,
        envoy_gateway(tmp_path, _places(spec, plain), [one.port, two.port], mode=mode, health=True) as envoy,
    ):
        await envoy.healthy_pickers(2)
        one.process.kill()
        one.process.wait()
        await envoy.healthy_pickers(1)
        statuses = [await _status(envoy, "POST") for _ in range(60)]
        assert statuses == [200] * 60
        assert await two.sample('adaptive_gamma_picks_total{replica="spec",outcome="ok"}') > 0


async def test_a_picker_that_is_told_to_stop_costs_nothing(tmp_path: Path) -> None:
    """It says so to the health check first, and answers until that has been heard."""
    linger = ("--tls", "off", "--linger", "1.5")
    async with (
        GatedEngine(models=["m"]) as spec,
        GatedEngine(models=["m"]) as plain,
        picker_process(tmp_path, "one", options=linger, **_settings(spec, plain)) as one,
        picker_process(tmp_path, "two", **_settings(spec, plain)) as two,
        envoy_gateway(tmp_path, _places(spec, plain), [one.port, two.port], health=True) as envoy,
    ):
        await envoy.healthy_pickers(2)
        one.process.send_signal(signal.SIGTERM)
        statuses = []
        while one.process.poll() is None:
            statuses.append(await _status(envoy, "POST"))
        statuses += [await _status(envoy, "POST") for _ in range(20)]
        assert set(statuses) == {200}
        assert one.process.returncode == 0
        assert two.process.poll() is None


async def test_a_reload_changes_where_requests_go(tmp_path: Path) -> None:
    spec, plain = _engines()
    async with spec, plain, _behind(tmp_path, spec, plain) as (envoy, picker):
        assert (await envoy.client.post("/v1/completions", json=CODE)).headers["x-adaptive-gamma-replica"] == "spec"
        config = tmp_path / "picker.yaml"
        config.write_text(config.read_text().replace("name: spec", "name: other"))
        picker.process.send_signal(signal.SIGHUP)

        async def renamed() -> bool:
            page: httpx.Response = await picker.admin.get("/status")
            return {row["name"] for row in page.json()["replicas"]} == {"other", "plain"}

        await eventually(renamed)
        answer = await envoy.client.post("/v1/completions", json=CODE)
        assert answer.headers["x-adaptive-gamma-replica"] in ("other", "plain")
