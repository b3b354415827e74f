"""The access log: one line for each request, whatever becomes of it, and nothing in it that does not belong there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.config import Settings
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.proxy.telling import json_line, text_line
from tests.support.gated_engine import EngineExchange, GatedEngine, answer_json, until
from tests.support.lean import LeanEngine, hammer
from tests.support.raw_client import post
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.served import serve

USAGE = {"choices": [{"text": "hi"}], "usage": {"prompt_tokens": 3, "completion_tokens": 17, "total_tokens": 20}}
METRICS = {
    "metrics": {
        "speculative_decoding": {
            "num_spec_steps": 4, "num_accepted_draft_tokens": 9, "num_draft_tokens": 12, "num_spec_tokens": 3,
            "acceptance_histogram": [1, 0, 0, 3], "mean_acceptance_length": 3.25, "draft_acceptance_rate": 0.75,
        }
    }
}  # fmt: skip
EVENTS = (("content-type", "text/event-stream"), ("transfer-encoding", "chunked"))


def log_to(path: Path, **more: Any) -> dict[str, Any]:
    return {"format": "json", "path": str(path), **more}


async def lines_of(path: Path, count: int) -> list[dict[str, Any]]:
    def read() -> list[bytes]:
        return path.read_bytes().splitlines() if path.exists() else []

    await until(lambda: len(read()) >= count, f"{count} lines in {read()}")
    assert len(read()) == count
    return [json.loads(line) for line in read()]


async def silent(_: EngineExchange) -> None:
    """The test speaks for the engine."""


async def test_nothing_is_told_unless_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    async with GatedEngine(answer_json()) as engine, running_proxy([engine]) as proxy:
        assert (await proxy.ask(post())).status == 200
        assert json.loads((await proxy.admin("/status")).body)["telling"] == {"access_log": None, "tracing": None}
    assert capfd.readouterr().out == ""


async def test_a_whole_answer(tmp_path: Path) -> None:
    async with (
        GatedEngine(answer_json(200, {**USAGE, **METRICS})) as engine,
        running_proxy([engine], gammas=[3], access_log=log_to(tmp_path / "log")) as proxy,
    ):
        request = post(
            "/v1/chat/completions?key=hush",
            {"model": "m", "prompt": "hush hush", "user": "hush"},
            (("x-request-id", "my-id"), ("authorization", "Bearer hush"), ("x-session-id", "s-secret")),
        )
        answer = await proxy.ask(request)
        (line,) = await lines_of(tmp_path / "log", 1)
        status = json.loads((await proxy.admin("/status")).body)["telling"]["access_log"]
    expected = {
        "request_id": "my-id", "method": "POST", "path": "/v1/chat/completions", "model": "m", "class": "chat",
        "replica": "r0", "pool": "speculative", "gamma": 3, "status": 200, "outcome": "ok", "error": None, "tries": 1,
        "bytes": len(answer.body), "prompt_tokens": 3, "output_tokens": 17, "draft_tokens": 12, "accepted_tokens": 9,
    }  # fmt: skip
    assert {name: line[name] for name in expected} == expected | {"class": line["class"]}
    assert line["reason"] == answer.one("x-adaptive-gamma-reason")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert 0 <= line["queue_s"] <= line["ttft_s"] <= line["total_s"] < 10
    assert "hush" not in str(line)
    assert "secret" not in str(line)
    assert status == {"path": str(tmp_path / "log"), "written": 1, "waiting": 0, "dropped": 0, "errors": 0}


async def test_streams_and_their_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with GatedEngine(silent) as engine, running_proxy([engine], access_log=log_to(log)) as proxy:
        async with proxy.client() as client:
            client.send(post(body={"prompt": "x", "stream": True}))
            x = await engine.arrived()
            x.head(200, EVENTS)
            x.chunk(b'data: {"choices": [{"text": "\\"completion_tokens\\": 99"}]}\n\n')
            await client.head()
            await client.chunk()
            await asyncio.sleep(0.05)
            x.chunk(b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}\n\n')
            x.end()
            await lines_of(log, 1)
        async with proxy.client() as client:
            client.send(post(body={"prompt": "x", "stream": True}))
            x = await engine.arrived(2)
            x.head(200, EVENTS)
            x.chunk(b"data: {}\n\n")
            await client.head()
            client.drop()
            await lines_of(log, 2)
        async with proxy.client() as client:
            client.send(post(body={"prompt": "x", "stream": True}))
            x = await engine.arrived(3)
            x.head(200, EVENTS)
            x.chunk(b"data: {}\n\n")
            await client.head()
            x.die()
            whole, left, broken = await lines_of(log, 3)
    assert (whole["outcome"], whole["prompt_tokens"], whole["output_tokens"]) == ("ok", 5, 2)
    assert whole["total_s"] - whole["ttft_s"] >= 0.04
    assert (left["outcome"], left["status"], left["error"]) == ("client_closed", 200, None)
    assert (broken["outcome"], broken["status"], broken["bytes"]) == ("protocol_error", 200, 10)


async def test_requests_that_no_engine_sees(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with GatedEngine(silent) as engine, running_proxy([engine], access_log=log_to(log)) as proxy:
        await proxy.ask(b"GET /no%0aSTATUS%20200\x1b HTTP/1.1\r\nhost: a\r\n\r\n".replace(b"\x1b", b"%1b"), "GET")
        await proxy.ask(b"PUT /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")
        await proxy.ask(post(body=b"{"))
        await proxy.ask(b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n", "GET")
        lines = await lines_of(log, 4)
        raw = log.read_bytes()
    assert [(line["status"], line["error"], line["outcome"]) for line in lines[:3]] == [
        (404, "path_not_found", "client_error"),
        (405, "method_not_allowed", "client_error"),
        (400, lines[2]["error"], "client_error"),
    ]
    assert lines[0]["path"] == "/no\nSTATUS 200\x1b"
    assert raw.isascii()
    assert raw.count(b"\n") == 4
    assert b"\x1b" not in raw
    assert all(line["replica"] is None and line["tries"] == 0 for line in lines[:3])


async def test_retries_queues_and_refusals(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with (
        GatedEngine(answer_json(503, {"error": "busy"})) as busy,
        GatedEngine(answer_json(200, USAGE)) as free,
        running_proxy(
            [busy, free], gammas=[5, 0], access_log=log_to(log),
            load={"max_in_flight": 1, "queue": 1, "queue_timeout_s": 0.3},
        ) as proxy,
    ):  # fmt: skip
        while not busy.requests:
            assert (await proxy.ask(post())).status == 200
        await until(lambda: log.exists() and b'"tries":2' in log.read_bytes(), "a line with two tries")
        busy.script = free.script = silent
        log.unlink()
        async with proxy.client() as one, proxy.client() as two, proxy.client() as three, proxy.client() as four:
            one.send(post())
            two.send(post())
            await until(lambda: proxy.in_flight == 2, "both busy")
            three.send(post())
            await until(lambda: len(proxy.plane.waiting) == 1, "one waits")
            four.send(post())
            assert (await four.answer()).status == 503
            assert (await three.answer()).status == 503
        await proxy.counted("client_closed", 2)
        lines = await lines_of(log, 4)
    refused = [line for line in lines if line["status"] == 503]
    assert [line["outcome"] for line in refused] == ["rejected", "rejected"]
    assert [line["replica"] for line in refused] == [None, None]
    assert refused[1]["total_s"] >= 0.25
    assert {line["outcome"] for line in lines if line["status"] is None} == {"client_closed"}


async def test_every_request_has_one_line_and_its_outcome_is_the_one_counted(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def act(number: int) -> str | None:
        return {3: "close", 7: "reset"}.get(number % 11)

    async with LeanEngine(act) as engine, running_proxy([engine.url], access_log=log_to(log)) as proxy:
        await hammer(proxy.port, [post(body={"prompt": "x"})] * 600, 12)
        page = await proxy.metrics()
        lines = await lines_of(log, 600)
        counted = {
            outcome: page.requests(outcome) for outcome in ("ok", "protocol_error", "connect_error", "client_error")
        }
    told = {outcome: sum(line["outcome"] == outcome for line in lines) for outcome in counted}
    assert told == counted
    assert sum(told.values()) == 600
    assert len({line["request_id"] for line in lines}) == 600


TEXT = st.text(max_size=12)


@given(TEXT, st.none() | TEXT, st.integers(0, 9))
def test_no_text_of_a_client_breaks_a_line(path: str, model: str | None, number: int) -> None:
    fields = {"path": path, "model": model, "status": number, "class": None}
    as_json, as_text = json_line(1e9, fields), text_line(1e9, fields)
    for line in (as_json, as_text):
        assert line.isascii()
        assert all(0x20 <= byte < 0x7F for byte in line)
    decoded = json.loads(as_json)
    assert decoded == {"time": "2001-09-09T01:46:40.000Z", **fields}
    pattern = r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)'
    words = {name: json.loads(word) if word[0] == '"' else word for name, word in re.findall(pattern, as_text.decode())}
    assert words == {"path": path, "model": "-" if model is None else model, "status": str(number), "class": "-"}


async def test_a_full_disk_drops_lines_counts_them_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adaptive_gamma.observe.line_log.MOST_WAITING", 3)
    async with (
        LeanEngine() as engine,
        running_proxy([engine.url], access_log={"format": "json", "path": "/dev/full"}) as proxy,
    ):
        log = proxy.plane.telling._log
        assert log is not None
        log._most_waiting = 3
        seen = await hammer(proxy.port, [post(body={"prompt": "x"})] * 50, 4)
        assert seen == {200: 50}
        await until(lambda: log.dropped > 0 and log.errors > 0, "drops")
        page = (await proxy.admin("/metrics")).body.decode()
        assert re.search(r"^adaptive_gamma_access_log_lines_dropped_total [1-9]", page, re.M)
        assert re.search(r"^adaptive_gamma_access_log_errors_total [1-9]", page, re.M)


async def reload(proxy: RunningProxy, **change: Any) -> None:
    values = proxy.plane.settings.model_dump(by_alias=True)
    proxy.plane.apply(Settings(**{**values, **change}), proxy.plane.policy)


async def test_it_is_switched_on_off_and_over_while_requests_are_open(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with GatedEngine(silent) as engine, running_proxy([engine]) as proxy, proxy.client() as client:
        client.send(post())
        x = await engine.arrived()
        await reload(proxy, access_log=log_to(one))
        x.answer(200, b"{}")
        assert (await client.answer()).status == 200
        client.send(post())
        x = await engine.arrived(2)
        await reload(proxy, access_log=log_to(two, format="text"))
        x.answer(200, b"{}")
        assert (await client.answer()).status == 200
        await until(lambda: two.exists() and two.read_bytes().endswith(b"\n"), "the line")
        client.send(post())
        x = await engine.arrived(3)
        await reload(proxy)
        await reload(proxy, access_log={"format": "none"})
        x.answer(200, b"{}")
        assert (await client.answer()).status == 200
        with pytest.raises(ConfigurationError, match=r"access_log\.path: cannot be written"):
            await reload(proxy, access_log=log_to(tmp_path / "no" / "folder"))
        assert not proxy.plane.telling.active
    assert one.read_bytes() == b"", "the first had no account, the second ended under the second log"
    assert b" outcome=ok error=- tries=1 " in two.read_bytes()


def test_a_bare_off_is_explained() -> None:
    with pytest.raises(ValueError, match="YAML reads a bare"):
        Settings.model_validate({"policy": "p", "access_log": yaml.safe_load("format: off")})


async def test_a_process_that_is_rotated_and_told_to_reload(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    async with (
        GatedEngine(answer_json(200, USAGE)) as engine,
        serve(tmp_path, [engine], access_log=log_to(log)) as served,
    ):
        await served.ready()
        for turn in (1, 2):
            async with served.client() as client:
                assert (await client.ask(post())).status == 200
            await lines_of(log, 1)
            if turn == 1:
                log.rename(tmp_path / "access.log.old")
                served.signal(signal.SIGHUP)
                await served.logged("configuration loaded again")
        served.signal(signal.SIGTERM)
        assert await served.exit() == 0
    assert len((tmp_path / "access.log.old").read_bytes().splitlines()) == 1


async def test_standard_output_that_nobody_reads_holds_up_no_request(tmp_path: Path) -> None:
    """A pipe takes 64 KiB; the rest waits in the process, or is dropped and counted, and all come once it is read."""
    config = tmp_path / "serve.yaml"
    async with LeanEngine() as engine:
        config.write_text(
            yaml.safe_dump(
                {
                    "listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "policy": "h200-llama3-70b-fp8",
                    "replicas": [{"name": "r0", "url": engine.url, "gamma": 0}],
                    "access_log": {"format": "text"},
                }
            )
        )  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "adaptive_gamma", "serve", "--config", str(config),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=dict(os.environ), limit=1024,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            told = ""
            while "listening on" not in told:
                told = (await process.stderr.readline()).decode()
            port = int(re.findall(r"127\.0\.0\.1:(\d+), admin", told)[0])
            process.stdout._transport.pause_reading()  # type: ignore[attr-defined]  # a reader that is slow
            seen = await hammer(port, [post(body={"prompt": "x"})] * 700, 8)
            assert seen == {200: 700}
            process.stdout._transport.resume_reading()  # type: ignore[attr-defined]
            lines = [await process.stdout.readuntil(b"\n") for _ in range(700)]
            assert all(b" outcome=ok " in line for line in lines)
            process.terminate()
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()
