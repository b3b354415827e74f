"""``serve`` reads its files again when they change, where it is told to look."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path
from typing import Any

import yaml

from adaptive_gamma.observe import read_log
from adaptive_gamma.policy import find_policy
from tests.support.gated_engine import DEADLINE_S, EngineExchange, GatedEngine, answer_json
from tests.support.raw_client import post
from tests.support.served import Served, serve

WATCH = {"watch_s": 0.05}


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


def _write(path: Path, config: Path, **change: Any) -> None:
    """A new version of the configuration, put in place as a whole."""
    values = {**yaml.safe_load(config.read_text()), **change}
    fresh = path.with_name(".fresh")
    fresh.write_text(yaml.safe_dump(values))
    fresh.replace(path)


async def _times(served: Served, text: str, count: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while sum(text in line for line in served.lines) < count:  # noqa: ASYNC110  # it has no event
            await asyncio.sleep(0.01)


async def test_a_change_of_the_file_switches_modes_under_an_open_stream(tmp_path: Path) -> None:
    log, config = tmp_path / "observed.jsonl", tmp_path / "serve.yaml"
    observe = {"log": str(log)}
    async with (
        GatedEngine(_silent) as engine,
        serve(tmp_path, [engine], reload=WATCH, mode="observe", observe=observe) as served,
    ):
        async with served.client() as client:
            client.send(post(headers=(("x-request-id", "long"),)))
            x = await engine.arrived()
            x.head()
            x.chunk(b"one")
            head = await client.head()
            _write(config, config, mode="act")
            await served.logged("mode act")
            engine.script = answer_json()
            async with served.client() as other:
                assert (await other.ask(post())).one("x-adaptive-gamma-reason") == "only_replica"
            x.chunk(b"two")
            x.end()
            rest = await client.rest(head)
            assert (rest.body, rest.complete) == (b"onetwo", True)
        _write(config, config, mode="observe")
        await _times(served, "mode observe", 2)
        async with served.client() as client:
            assert (await client.ask(post())).one("x-adaptive-gamma-reason") == "observe"
        served.signal(signal.SIGTERM)
        assert await served.exit() == 0
    assert [each.outcome for each in read_log(log, 0.0).observations] == ["ok", "ok"]


async def test_a_bad_file_keeps_the_old_one_is_counted_once_and_a_good_one_is_taken(tmp_path: Path) -> None:
    config, policy = tmp_path / "serve.yaml", tmp_path / "policy.yaml"
    shutil.copy(find_policy("h200-llama3-70b-fp8"), policy)
    good = policy.read_bytes()
    failures = "adaptive_gamma_config_reload_failures_total"
    async with GatedEngine() as engine, serve(tmp_path, [engine], policy=str(policy), reload=WATCH) as served:
        policy.write_text("schema: something else\n")
        await _times(served, "the configuration stays as it is", 1)
        whole = config.read_text()
        config.write_text("listen: [")
        await _times(served, "the configuration stays as it is", 2)
        async with served.client() as client:
            assert (await client.ask(post())).status == 200
        policy.write_bytes(good)
        config.write_text(whole)
        await served.logged("configuration loaded again")
        before = len(served.lines)
        await asyncio.sleep(0.3)
        assert [line for line in served.lines[before:] if "again" in line or "stays" in line] == []
        page = (await served.get("/metrics"))[1].decode()
        assert float(page.split(f"\n{failures} ")[1].split()[0]) >= 2
        policy.unlink()
        await _times(served, "no such file", 1)
        policy.write_bytes(good)
        await _times(served, "configuration loaded again", 2)
        assert not any("Traceback" in line for line in served.lines), served.lines


async def test_a_config_map_is_followed(tmp_path: Path) -> None:
    """The configuration lies behind two links, of which the kubelet replaces the first."""
    mount = tmp_path / "mount"
    async with GatedEngine() as engine, serve(tmp_path, [engine]) as plain:
        base = tmp_path / "serve.yaml"
        values = {**yaml.safe_load(base.read_text()), "reload": WATCH}
        plain.signal(signal.SIGTERM)
        assert await plain.exit() == 0
    async with GatedEngine() as engine:
        values["replicas"][0]["url"] = engine.url
        for name, mode in (("..v1", "act"), ("..v2", "observe")):
            (mount / name).mkdir(parents=True)
            (mount / name / "serve.yaml").write_text(yaml.safe_dump({**values, "mode": mode}))
        (mount / "..data").symlink_to("..v1")
        base.unlink()
        (mount / "serve.yaml").symlink_to("..data/serve.yaml")
        base.symlink_to(mount / "serve.yaml")
        served = serve(tmp_path, [engine], write=False)
        async with served as running:
            (mount / "..data_tmp").symlink_to("..v2")
            (mount / "..data_tmp").replace(mount / "..data")
            shutil.rmtree(mount / "..v1")
            await running.logged("mode observe")
            assert not any("stays as it is" in line for line in running.lines), running.lines


async def test_it_is_off_by_default_and_can_be_switched_on(tmp_path: Path) -> None:
    config = tmp_path / "serve.yaml"
    async with GatedEngine() as engine, serve(tmp_path, [engine]) as served:
        _write(config, config, mode="observe", reload=WATCH)
        await asyncio.sleep(1.2)
        assert not any("again" in line for line in served.lines)
        served.signal(signal.SIGHUP)
        await served.logged("mode observe")
        _write(config, config, mode="act")
        await _times(served, "loaded again", 2)
        _write(config, config, reload={})
        await _times(served, "loaded again", 3)
        _write(config, config, mode="observe")
        await asyncio.sleep(1.2)
        assert sum("loaded again" in line for line in served.lines) == 3
