"""``serve`` as it ships sets the schedule of an engine with the plugin's faces, and reloads while a stream is open."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.running import Serve, eventually, running_serve
from tests.support.schedule_plugin import FileFace, HttpFace, SchedulePlugin

TOKEN, NEXT = "s3cret-Token", "an0ther-Token"
LOAD = 100


@contextlib.asynccontextmanager
async def an_engine(folder: Path) -> AsyncIterator[tuple[SchedulePlugin, HttpFace]]:
    """An engine at work, with a hundred requests of others in each step."""
    plugin = SchedulePlugin(time.time, max_gamma=8, max_batch=128)
    async with HttpFace(plugin, TOKEN) as face:
        face.running = LOAD
        files = FileFace(plugin, folder / "gamma.json")

        async def work() -> None:
            while True:
                plugin.step(LOAD, rate=0.6)
                files.tick()
                await asyncio.sleep(0.02)

        task = asyncio.create_task(work())
        try:
            yield plugin, face
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def settings(url: str, way: dict[str, str], set_gamma: str = "vllm_schedule") -> dict[str, Any]:
    return {
        "policy": "h200-llama3-70b-fp8",
        "replicas": [{"name": "r", "url": url, "engine": "vllm", "set_gamma": set_gamma, "gamma_control": way}],
        "control": {"interval_s": 0.1, "dwell_s": 1.0, "min_gain": 0.01},
        "scrape": {"interval_s": 0.2, "timeout_s": 2.0, "stale_after_s": 20.0},
    }


async def in_state(serve: Serve, state: str) -> dict[str, Any]:
    async def reached() -> dict[str, Any] | None:
        row = await serve.replica("r")
        found: dict[str, Any] | None = row["set_gamma"]
        return row if found is not None and found["state"] == state else None

    return await eventually(reached, within_s=30.0)


@pytest.mark.parametrize("way", ["http", "file"])
async def test_a_schedule_is_set_and_reloads_harm_no_stream(way: str, tmp_path: Path) -> None:
    async with an_engine(tmp_path) as (plugin, face):
        given = {"token": TOKEN} if way == "http" else {"file": str(tmp_path / "gamma.json")}
        async with (
            running_serve(tmp_path, **settings(face.url, given)) as serve,
            httpx.AsyncClient(trust_env=False, timeout=30) as client,
        ):
            row = await in_state(serve, "verified")
            print(row["set_gamma"]["gamma"], row["set_gamma"]["engine"])
            assert plugin.schedule == row["set_gamma"]["gamma"]
            assert row["scheduled_gamma"] in {gamma for _, _, gamma in plugin.schedule} | {8}
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
            async with client.stream("POST", serve.url + "/v1/chat/completions", json=body) as stream:
                lines = stream.aiter_lines()
                assert "delta" in await anext(lines)

                async def reload(**change: Any) -> None:
                    config = tmp_path / "serve.yaml"
                    before = yaml.safe_load(config.read_text())
                    config.write_text(yaml.safe_dump({**before, **change}))
                    serve.process.send_signal(signal.SIGHUP)

                await reload(**settings(face.url, given, "none"))

                async def withdrawn() -> bool:
                    return plugin.schedule == plugin.startup and (await serve.replica("r"))["set_gamma"] is None

                await eventually(withdrawn)
                if way == "http":
                    given = {"token": NEXT}
                    await reload(**settings(face.url, given))
                    await in_state(serve, "stopped")
                    face.token = NEXT
                    # What a new start of the engine would do: other settings begin anew.
                    await reload(**settings(face.url, given, "none"))
                    await eventually(withdrawn)
                await reload(**settings(face.url, given))
                row = await in_state(serve, "verified")
                assert plugin.schedule != plugin.startup
                await reload(mode="observe")
                await eventually(lambda: asyncio.sleep(0, plugin.schedule == plugin.startup))
                face.release.set()
                assert [line async for line in lines if line] == ["data: [DONE]"]
            metrics = (await serve.admin.get("/metrics")).text
            assert 'adaptive_gamma_actuator_stopped{replica="r"} 0.0' in metrics
            shown = str(await serve.status()) + metrics + serve.log.read_text()
            assert TOKEN not in shown
            assert NEXT not in shown
            assert "Traceback" not in shown
