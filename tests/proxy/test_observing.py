"""Observe mode: what is recorded of each request, where it is kept, and switching modes under open streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adaptive_gamma.config import Settings
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.observe import Observation, build_report, read_lines, read_log
from tests.support.gated_engine import EngineExchange, GatedEngine, answer_json, until
from tests.support.raw_client import post
from tests.support.running_proxy import RunningProxy, running_proxy

USAGE = {"choices": [{"text": "hi"}], "usage": {"prompt_tokens": 3, "completion_tokens": 17, "total_tokens": 20}}
EVENT_STREAM = (("content-type", "text/event-stream"), ("transfer-encoding", "chunked"))


async def _silent(x: EngineExchange) -> None:
    """The test speaks for the engine."""


async def _observed(proxy: RunningProxy, since: float = 0.0) -> list[Observation]:
    answer = await proxy.admin(f"/observations?since={since}")
    assert answer.status == 200
    found = read_lines(answer.body.splitlines(), 0.0)
    assert found.unreadable == 0
    return found.observations


async def _reload(proxy: RunningProxy, **change: Any) -> None:
    values = proxy.plane.settings.model_dump(by_alias=True)
    proxy.plane.apply(Settings(**{**values, **change}), proxy.plane.policy)


async def test_a_whole_answer_is_observed() -> None:
    async with (
        GatedEngine(answer_json(200, USAGE)) as one,
        GatedEngine(answer_json(200, USAGE)) as two,
        running_proxy([one, two], gammas=[4, 0], mode="observe") as proxy,
    ):
        for _ in range(20):
            answer = await proxy.ask(post(body={"prompt": "hello " * 20, "max_tokens": 50}))
            assert answer.one("x-adaptive-gamma-reason") == "observe"
        made = await _observed(proxy)
        assert len(made) == 20
        assert {each.decided.replica for each in made} == {"r0"}, "the policy's drafter pays on an idle fleet"
        assert {each.sent.replica for each in made} == {"r0", "r1"}
        for each in made:
            assert (each.outcome, each.status, each.stream, each.output_tokens) == ("ok", 200, False, 17)
            assert (each.prompt_tokens, each.expected_tokens, each.path) == (30, 50, "/v1/chat/completions")
            assert 0 < (each.first_byte_s or 0) <= each.total_s
            assert each.decided.tpot_s <= each.sent.tpot_s
            assert each.sent.gamma == (4 if each.sent.replica == "r0" else 0)
            assert each.decided.cost_s >= each.decided.tpot_s
        assert len(await _observed(proxy, made[10].time_s)) <= 10
        assert (await proxy.decisions())[0]["counterfactual"]["sent"]["replica"] == made[-1].sent.replica
        page = (await proxy.admin("/metrics")).body.decode()
        elsewhere = sum(each.sent.replica == "r1" for each in made)
        line = (
            f'adaptive_gamma_observed_requests_total{{class="{made[0].request_class}",elsewhere="yes"}} {elsewhere}.0'
        )
        assert line in page
        assert 'choice="decided"' in page
        report = build_report(read_lines((await proxy.admin("/observations")).body.splitlines(), 0.0))
        assert report["would_have_moved"]["requests"] == elsewhere


async def test_a_stream_is_observed_from_its_first_token_to_its_last() -> None:
    async with (
        GatedEngine(_silent) as engine,
        running_proxy([engine], mode="observe") as proxy,
        proxy.client() as client,
    ):
        client.send(post(body={"prompt": "x", "stream": True}))
        x = await engine.arrived()
        x.head(200, EVENT_STREAM)
        head = await client.head()
        x.chunk(b'data: {"choices": [{"text": "one \\"completion_tokens\\": 99 "}]}\n\n')
        await client.chunk()
        x.chunk(b'data: {"choices": [], "usage": {"completion_tokens": ')
        x.chunk(b"5}}\n\n" + b"data: [DONE]\n\n")
        x.end()
        await client.rest(head)
        (made,) = await _observed(proxy)
        assert (made.stream, made.output_tokens, made.outcome) == (True, 5, "ok")
        assert made.first_byte_s is not None
        assert made.first_byte_s <= made.total_s


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b'{"content": "x", "tokens_predicted": 8}', 8),
        (b'{"usage": {"input_tokens": 4, "output_tokens": 6}}', 6),
        (b'{"output_tokens": 1}' + b" " * 40_000 + b'{"output_tokens": 6}', 6),
        (b'{"usage": {"completion_tokens": 4000}, "metrics": {"per_step_accepted": [' + b"5," * 7000 + b"5]}}", 4000),
        (b'{"text": "\\"completion_tokens\\": 7"}', None),
        (b'{"usage": null}', None),
        (b"", None),
    ],
)
async def test_the_engine_counts_the_tokens(body: bytes, tokens: int | None) -> None:
    async def script(x: EngineExchange) -> None:
        x.answer(200, body, [("content-type", "application/json")])

    async with GatedEngine(script) as engine, running_proxy([engine], mode="observe") as proxy:
        assert (await proxy.ask(post())).body == body
        (made,) = await _observed(proxy)
        assert made.output_tokens == tokens


async def test_ends_of_all_kinds_are_told_apart() -> None:
    async with GatedEngine(_silent) as engine, running_proxy([engine], mode="observe") as proxy:
        async with proxy.client() as client:
            client.send(post())
            x = await engine.arrived()
            x.head()
            x.chunk(b"one")
            await client.head()
        await proxy.counted("client_closed")
        async with proxy.client() as client:
            client.send(post())
            x = await engine.arrived(2)
            x.head()
            x.chunk(b"one")
            await client.head()
            x.die()
            await client.closed()
        engine.script = answer_json(500)
        await proxy.ask(post())
        assert [each.outcome for each in await _observed(proxy)] == ["client_closed", "protocol_error", "engine_error"]


async def test_each_try_of_a_request_is_observed() -> None:
    async with GatedEngine() as dead:
        url = dead.url
    async with GatedEngine() as engine, running_proxy([engine, url], mode="observe") as proxy:
        while not proxy.retries("connect_error"):
            await proxy.ask(post())
        made = await _observed(proxy)
        assert [each.outcome for each in made].count("connect_error") == 1
        assert made[-1].outcome == "ok"
        assert len({each.request_id for each in made}) == len(made) - 1


async def test_a_try_that_was_rejected_is_observed_once() -> None:
    """Whether another replica takes the request in the end, or the rejection is what the client gets."""
    reject = answer_json(429, {"error": {"message": "full"}})
    async with (
        GatedEngine(reject) as full,
        GatedEngine(answer_json(200, USAGE)) as other,
        running_proxy([full, other], mode="observe", retry={"attempts": 5}) as proxy,
    ):
        while not full.requests:
            await proxy.ask(post())
        made = await _observed(proxy)
        assert [each.outcome for each in made] == ["ok"] * (len(made) - 2) + ["rejected", "ok"]
        assert [(each.sent.replica, each.status) for each in made[-2:]] == [("r0", 429), ("r1", 200)]
        other.script = reject
        assert (await proxy.ask(post())).status == 429
        again = (await _observed(proxy))[len(made) :]
        assert [(each.outcome, each.status) for each in again] == [("rejected", 429)] * 2
        assert {each.sent.replica for each in again} == {"r0", "r1"}
        assert {row["outcome"] for row in (await proxy.decisions())[:2]} == {"rejected"}


async def test_what_decodes_nothing_is_not_observed() -> None:
    async with GatedEngine() as engine, running_proxy([engine], mode="observe") as proxy:
        await proxy.ask(post("/v1/embeddings", {"input": "x"}))
        await proxy.ask(post("/tokenize", {"prompt": "x"}))
        assert await _observed(proxy) == []
        assert (await proxy.decisions())[0]["counterfactual"] is None


async def test_acting_observes_nothing() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        await proxy.ask(post())
        assert await _observed(proxy) == []


async def test_memory_keeps_the_last(tmp_path: Path) -> None:
    log = tmp_path / "observed.jsonl"
    observe = {"keep": 3, "log": str(log)}
    async with GatedEngine() as engine, running_proxy([engine], mode="observe", observe=observe) as proxy:
        for n in range(8):
            await proxy.ask(post(headers=(("x-request-id", f"id-{n}"),)))
        assert [each.request_id for each in await _observed(proxy)] == ["id-5", "id-6", "id-7"]
    assert [each.request_id for each in read_log(log, 0.0).observations] == [f"id-{n}" for n in range(8)]


async def test_modes_switch_under_open_streams(tmp_path: Path) -> None:
    """A stream that began while observing ends whole while acting, and is observed; and the other way about."""
    log = tmp_path / "observed.jsonl"
    async with (
        GatedEngine(_silent) as one,
        GatedEngine(_silent) as two,
        running_proxy([one, two], gammas=[4, 0], mode="observe", observe={"log": str(log)}) as proxy,
    ):
        engines = (one, two)
        clients = [proxy.client() for _ in range(6)]
        exchanges: list[EngineExchange] = []
        heads = []
        for n, client in enumerate(clients):
            await client.__aenter__()
            client.send(post(headers=(("x-request-id", f"s{n}"),)))
            await until(lambda n=n: len(one.exchanges) + len(two.exchanges) == n + 1, "it arrived")  # type: ignore[misc]
            (x,) = [x for engine in engines for x in engine.exchanges if x not in exchanges]
            exchanges.append(x)
            x.head(200, EVENT_STREAM)
            x.chunk(b"data: 1\n\n")
            heads.append(await client.head())
            await _reload(proxy, mode="act" if n % 2 == 0 else "observe")
        reasons = [head.one("x-adaptive-gamma-reason") for head in heads]
        assert [reason == "observe" for reason in reasons] == [True, False] * 3
        for x in exchanges:
            x.chunk(b"data: 2\n\n")
            x.end()
        for client, head in zip(clients, heads, strict=True):
            rest = await client.rest(head)
            assert (rest.body, rest.complete) == (b"data: 1\n\ndata: 2\n\n", True)
            client.drop()
        await proxy.counted("ok", 6)
        assert {each.request_id for each in await _observed(proxy)} == {"s0", "s2", "s4"}
        assert [row["mode"] for row in await proxy.decisions()] == ["act", "observe"] * 3
    assert {each.request_id for each in read_log(log, 0.0).observations} == {"s0", "s2", "s4"}


async def test_another_log_by_reload_and_a_wrong_one_keeps_the_old(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    async with GatedEngine() as engine, running_proxy([engine], mode="observe", observe={"log": str(first)}) as proxy:
        await proxy.ask(post())
        with pytest.raises(ConfigurationError, match=r"observe\.log: cannot be written: No such file"):
            await _reload(proxy, observe={"log": str(tmp_path / "none" / "c")}, mode="act")
        assert proxy.plane.chooser.mode == "observe"
        assert "adaptive_gamma_config_reload_failures_total 1.0" in (await proxy.admin("/metrics")).body.decode()
        await proxy.ask(post())
        await _reload(proxy, observe={"log": str(second), "keep": 1})
        await proxy.ask(post())
        assert len(await _observed(proxy)) == 1
        await until(lambda: second.exists() and second.stat().st_size > 0, "it is written")
        page = json.loads((await proxy.admin("/status")).body)["observations"]
        assert page["log"] == {"path": str(second), "written": 1, "waiting": 0, "dropped": 0, "errors": 0}
        await until(
            lambda: "adaptive_gamma_observe_lines_written_total 3.0" in proxy.plane.metrics.render().decode(),
            "lines of both logs are counted",
        )
        await _reload(proxy, observe={})
        await proxy.ask(post())
        assert json.loads((await proxy.admin("/status")).body)["observations"]["log"] is None
    assert [len(read_log(path, 0.0).observations) for path in (first, second)] == [2, 1]
