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

import pytest
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
        await served.logged("the configuration stays as it is")
        page = (await served.get("/metrics"))[1].decode()
        assert "adaptive_gamma_config_reload_failures_total 1.0" in page
        async with RawClient(served.port) as client:
            assert (await client.ask(post())).status == 200


def _rewrite(tmp_path: Path, **change: Any) -> None:
    config = tmp_path / "serve.yaml"
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), **change}))


async def test_the_whole_configuration_is_read_again_on_sighup(tmp_path: Path) -> None:
    async with GatedEngine(_silent) as old, GatedEngine() as new, serve(tmp_path, [old]) as served:
        async with RawClient(served.port) as client:
            client.send(post())
            x = await old.arrived()
            x.head()
            x.chunk(b"one")
            head = await client.head()
            _rewrite(tmp_path, replicas=[{"name": "other", "url": new.url, "gamma": 0}], mode="observe")
            served.signal(signal.SIGHUP)
            await served.logged("configuration loaded again")
            async with RawClient(served.port) as late:
                answer = await late.ask(post())
                assert (answer.status, answer.one("x-adaptive-gamma-replica")) == (200, "other")
            page = json.loads((await served.get("/status"))[1])
            rows = [(row["name"], row["leaving"], row["in_flight"]) for row in page["replicas"]]
            assert (page["mode"], rows) == ("observe", [("other", False, 0), ("r0", True, 1)])
            x.chunk(b"two")
            x.end()
            rest = await client.rest(head)
            assert (rest.body, rest.complete) == (b"onetwo", True)
        page = json.loads((await served.get("/status"))[1])
        assert [row["name"] for row in page["replicas"]] == ["other"]
        assert b'replica="r0"' not in (await served.get("/metrics"))[1]
        assert not any("Traceback" in line for line in served.lines), served.lines


async def test_a_wrong_configuration_changes_nothing_and_says_why(tmp_path: Path) -> None:
    async with GatedEngine() as engine, serve(tmp_path, [engine]) as served:
        before = json.loads((await served.get("/status"))[1])
        good = (tmp_path / "serve.yaml").read_text()
        other = {"replicas": [{"name": "other", "url": "http://127.0.0.1:1"}]}
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"retyr": 1}, "retyr: no such key (did you mean 'retry'?)"),
            ({**other, "classify": {"default": "structurd"}}, "did you mean 'structured'?"),
            ({**other, "policy": "h200-llama3-70b-fp9"}, "did you mean 'h200-llama3-70b-fp8'?"),
            (
                {**other, "listen": "127.0.0.1:2"},
                "listen: 127.0.0.1:2 needs a restart; this process serves at 127.0.0.1:0",
            ),
            (
                {**other, "admin": "127.0.0.1:2"},
                "admin: 127.0.0.1:2 needs a restart; this process serves at 127.0.0.1:00",
            ),
        ]
        for change, said in wrong:
            (tmp_path / "serve.yaml").write_text(good)
            _rewrite(tmp_path, **change)
            served.signal(signal.SIGHUP)
            await served.logged(said)
        (tmp_path / "serve.yaml").write_text("replicas: [\n")
        served.signal(signal.SIGHUP)
        await served.logged("line 2, column 1")
        said_so = [line for line in served.lines if "the configuration stays as it is" in line]
        assert len(said_so) == len(wrong) + 1
        page = (await served.get("/metrics"))[1].decode()
        assert f"adaptive_gamma_config_reload_failures_total {len(wrong) + 1}.0" in page
        after = json.loads((await served.get("/status"))[1])
        assert [row["name"] for row in after["replicas"]] == [row["name"] for row in before["replicas"]]
        assert after["policy"] == before["policy"]
        (tmp_path / "serve.yaml").write_text(good)
        served.signal(signal.SIGHUP)
        await served.logged("configuration loaded again")


async def test_every_signal_of_a_burst_is_heeded(tmp_path: Path) -> None:
    async with GatedEngine() as engine, serve(tmp_path, [engine]) as served:
        for count in range(1, 20):
            names = [{"name": f"n{index}", "url": engine.url, "gamma": 0} for index in range(count)]
            _rewrite(tmp_path, replicas=names)
            served.signal(signal.SIGHUP)
        await served.logged("n18=")
        page = json.loads((await served.get("/status"))[1])
        assert [row["name"] for row in page["replicas"]] == [f"n{index}" for index in range(19)]


async def test_more_than_one_worker_is_refused_with_the_reason_and_the_way_on() -> None:
    async def told(count: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "adaptive_gamma", "serve", "--workers", count, "--config", "nowhere.yaml",
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, errors = await process.communicate()
        return process.returncode, errors.decode()

    code, text = await told("2")
    assert code == 2
    assert text.startswith("adaptive-gamma: --workers: expected 1, not 2: open requests, session affinity")
    assert "Envoy" in text
    assert "sidecars" in text
    code, text = await told("1")
    assert (code, "nowhere.yaml: cannot be read" in text) == (2, True), "the number is accepted"
    assert (await told("0"))[0] == 2


async def test_a_port_in_use_is_told_and_exits_2(tmp_path: Path) -> None:
    async with GatedEngine() as engine:
        config = tmp_path / "c.yaml"
        config.write_text(
            yaml.safe_dump({"policy": "h200-llama3-70b-fp8", "replicas": [{"name": "r", "url": "http://127.0.0.1:9"}]})
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


@pytest.mark.parametrize("key", ["listen", "admin"])
async def test_a_port_that_is_taken_is_told_with_the_file_the_key_and_the_way_out(tmp_path: Path, key: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        text = await _refused(tmp_path, **{key: address})
        begin = f"{tmp_path / 'c.yaml'}: {key}: cannot listen on {address}: Address already in use: "
        assert begin + "another process, or another port of this one, is there; stop it or give another port" in text


async def test_an_address_of_another_machine_is_told_with_the_way_out(tmp_path: Path) -> None:
    text = await _refused(tmp_path, listen="203.0.113.1:8080")
    assert f"{tmp_path / 'c.yaml'}: listen: cannot listen on 203.0.113.1:8080: " in text
    assert "0.0.0.0 is every address it has" in text


async def test_a_name_that_is_no_address_is_told_with_the_way_out(tmp_path: Path) -> None:
    text = await _refused(tmp_path, admin="no-such-host.invalid:9090")
    assert f"{tmp_path / 'c.yaml'}: admin: cannot listen on no-such-host.invalid:9090: " in text
    assert "give a name that this machine resolves" in text


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
