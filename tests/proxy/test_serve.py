"""``adaptive-gamma serve`` as a process: start-up line, drain, second signal, reload, exit codes."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import yaml

from adaptive_gamma.policy import find_policy
from tests.support.gated_engine import DEADLINE_S, EngineExchange, GatedEngine
from tests.support.raw_client import RawClient, post
from tests.support.served import serve


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


async def test_drain_lets_streams_finish(tmp_path: Path) -> None:
    async with GatedEngine(_silent) as engine, serve(tmp_path, [engine]) as served:
        assert await served.get("/livez") == (200, b"ok\n")
        async with asyncio.timeout(10):
            while (await served.get("/readyz"))[0] != 200:  # noqa: ASYNC110  # it has no event
                await asyncio.sleep(0.02)
        async with RawClient(served.port) as client, RawClient(served.port) as waiting, RawClient(served.port) as idle:
            engine.script = _silent
            client.send(post())
            first = await engine.arrived()
            first.head()
            first.chunk(b"one")
            head = await client.head()
            assert head.one("connection") is None
            waiting.send(post())
            second = await engine.arrived(2)
            served.signal(signal.SIGTERM)
            await served.logged("draining: 2 requests open")
            assert (await served.get("/readyz")) == (503, b"not ready: draining\n")
            assert (await served.get("/livez"))[0] == 200
            assert await idle.closed() == b""
            async with RawClient(served.port) as late:
                late.send(post())
                third = await engine.arrived(3)
                third.answer(200, b"{}")
                answer = await late.answer()
                assert (answer.status, answer.one("connection")) == (200, "close")
            second.answer(200, b"{}")
            answer = await waiting.answer()
            assert (answer.status, answer.one("connection")) == (200, "close")
            first.chunk(b"two")
            first.end()
            rest = await client.rest(head)
            assert (rest.body, rest.complete) == (b"onetwo", True)
        assert await served.exit() == 0
        assert not any("Traceback" in line or "cut" in line for line in served.lines), served.lines


async def test_past_the_grace_the_rest_is_cut_and_said_so(tmp_path: Path) -> None:
    drain = {"grace_s": 0.3}
    async with GatedEngine(_silent) as engine, serve(tmp_path, [engine], drain=drain) as served:
        async with RawClient(served.port) as client, RawClient(served.port) as other:
            client.send(post())
            x = await engine.arrived()
            x.head()
            x.chunk(b"one")
            head = await client.head()
            assert await client.chunk() == b"one"
            other.send(post())
            await engine.arrived(2)
            served.signal(signal.SIGTERM)
            rest = await client.rest(head)
            assert not rest.complete
        assert await served.exit() == 0
        await x.gone()
        assert any("2 requests were still open and are cut" in line for line in served.lines), served.lines
        assert not any("Traceback" in line for line in served.lines), served.lines


async def test_second_signal_cuts_at_once(tmp_path: Path) -> None:
    async with GatedEngine(_silent) as engine, serve(tmp_path, [engine]) as served, RawClient(served.port) as client:
        client.send(post())
        await engine.arrived()
        served.signal(signal.SIGINT)
        await served.logged("draining")
        served.signal(signal.SIGINT)
        assert await served.exit() == 0
        assert any("1 requests were still open and are cut" in line for line in served.lines)


async def test_policy_is_read_again_on_sighup(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    shutil.copy(find_policy("h200-llama3-70b-fp8"), policy)
    async with GatedEngine() as engine, serve(tmp_path, [engine], policy=str(policy)) as served:
        served.signal(signal.SIGHUP)
        await served.logged("loaded again")
        policy.write_text("schema: something else\n")
        served.signal(signal.SIGHUP)
        await served.logged("the policy stays as it is")
        page = (await served.get("/metrics"))[1].decode()
        assert "adaptive_gamma_config_reload_failures_total 1.0" in page
        async with RawClient(served.port) as client:
            assert (await client.ask(post())).status == 200


async def test_a_port_in_use_is_told_and_exits_2(tmp_path: Path) -> None:
    async with GatedEngine() as engine:
        config = tmp_path / "c.yaml"
        config.write_text(
            yaml.safe_dump({"policy": "h200-llama3-70b-fp8", "replicas": [{"name": "r", "url": engine.url}]})
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "adaptive_gamma", "serve", "--config", str(config),
            "--listen", f"127.0.0.1:{engine.port}", "--admin", "127.0.0.1:0",
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, errors = await process.communicate()
        assert process.returncode == 2
        assert f"cannot listen on 127.0.0.1:{engine.port}" in errors.decode()
        assert "Traceback" not in errors.decode()


async def test_wrong_settings_exit_2_with_one_line_each(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("policyy: x\nreplicas: []\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "adaptive_gamma", "serve", "--config", str(config), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    text = errors.decode()
    assert "policyy: no such key (did you mean 'policy'?)" in text
    assert "policy: is missing" in text
    assert "Traceback" not in text


async def _refused(tmp_path: Path, **values: Any) -> str:
    """What a start that must fail with exit code 2 says."""
    config = tmp_path / "c.yaml"
    whole = {
        "listen": "127.0.0.1:0",
        "admin": "127.0.0.1:00",
        "policy": "h200-llama3-70b-fp8",
        "replicas": [{"name": "r", "url": "http://127.0.0.1:1"}],
        **values,
    }
    config.write_text(yaml.safe_dump(whole))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "adaptive_gamma", "serve", "--config", str(config), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    text = errors.decode()
    assert process.returncode == 2, text
    assert "Traceback" not in text
    return text


async def test_two_names_of_one_port_are_told_and_exit_2(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    text = await _refused(tmp_path, listen=f"localhost:{port}", admin=f"127.0.0.1:{port}")
    assert f"admin: cannot listen on 127.0.0.1:{port}: " in text


async def test_wrong_policy_name_is_told_with_the_file_and_key(tmp_path: Path) -> None:
    text = await _refused(tmp_path, policy="h200-llama3-70b-fp9")
    assert f"{tmp_path / 'c.yaml'}: policy: 'h200-llama3-70b-fp9': no such file, and no policy of that name" in text
    assert "did you mean 'h200-llama3-70b-fp8'?" in text


async def test_wrong_class_name_is_told_with_the_nearest(tmp_path: Path) -> None:
    text = await _refused(tmp_path, classify={"default": "structurd"})
    assert f"{tmp_path / 'c.yaml'}: classify.default: expected a class of the policy" in text
    assert "did you mean 'structured'?" in text


async def test_status_page(tmp_path: Path) -> None:
    async with GatedEngine(models=["m"]) as engine, serve(tmp_path, [engine]) as served:

        async def seen() -> dict[str, Any]:
            page: dict[str, Any] = json.loads((await served.get("/status"))[1])
            return page

        async with asyncio.timeout(DEADLINE_S):
            while (page := await seen())["replicas"][0]["running"] is None:
                pass
        assert page["mode"] == "act"
        assert page["replicas"][0]["name"] == "r0"
        assert page["replicas"][0]["in_flight"] == 0
        assert page["policy"]["name"]
        table = json.loads((await served.get("/policy"))[1])["table"]
        assert table["chat"]["best_gamma"][0][0] == 1
