"""What a client sends at length is neither kept nor said back whole."""

from __future__ import annotations

import json

from adaptive_gamma.proxy.answers import shortened
from tests.support.gated_engine import GatedEngine, until
from tests.support.raw_client import post
from tests.support.running_proxy import running_proxy

LONG = "m" * 3_000_000


def test_shortened() -> None:
    assert shortened("m" * 256) == "m" * 256
    assert shortened("m" * 257) == "m" * 253 + "..."


async def test_record_keeps_a_piece_of_the_model_name() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        assert (await proxy.ask(post(body={"model": LONG, "prompt": "x"}))).status == 200
        assert json.loads(engine.requests[0].body)["model"] == LONG
        (record,) = proxy.plane.decisions.newest(10)
        assert record["model"] == shortened(LONG)
        assert len(json.dumps(record)) < 10_000


async def test_unknown_model_is_said_back_in_part() -> None:
    async with GatedEngine(models=["known"]) as engine, running_proxy([engine]) as proxy:
        await until(lambda: all(state.models for state in proxy.plane.fleet.states), "the models are known")
        answer = await proxy.ask(post(body={"model": LONG, "prompt": "x"}))
        assert (answer.status, answer.error_code) == (404, "model_not_found")
        assert len(answer.body) < 1000
        short = await proxy.ask(post(body={"model": "other", "prompt": "x"}))
        assert json.loads(short.body)["error"]["message"] == "no replica has the model 'other'"


async def test_unknown_path_is_said_back_in_part() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        answer = await proxy.ask(post("/" + "p" * 20_000))
        assert (answer.status, answer.error_code) == (404, "path_not_found")
        assert len(answer.body) < 1000
