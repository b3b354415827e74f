"""Requests for structured output, in every API's words, and where they go."""

from __future__ import annotations

from typing import Any

import pytest

from adaptive_gamma.config import Settings
from adaptive_gamma.routing.structured_output import asks_for_structure
from tests.support.gated_engine import GatedEngine
from tests.support.raw_client import post
from tests.support.running_proxy import running_proxy

SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
STRUCTURED: list[dict[str, Any]] = [
    {"response_format": SCHEMA},
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "structural_tag", "structures": []}},
    {"structured_outputs": {"regex": "a+"}},
    {"guided_json": {"type": "object"}},
    {"guided_choice": ["yes", "no"]},
    {"grammar": 'root ::= "a"'},
    {"json_schema": {"type": "object"}},
    {"ebnf": "root ::= 'a'"},
    {"text": {"format": {"type": "json_schema", "schema": {}}}},
    {"output_format": {"type": "json_schema", "schema": {}}},
    {"output_config": {"format": {"type": "json_schema"}}},
    {"tool_choice": "required", "tools": []},
    {"tool_choice": {"type": "function", "function": {"name": "f"}}},
    {"tool_choice": {"type": "any"}},
]
FREE: list[dict[str, Any]] = [
    {},
    {"response_format": None},
    {"response_format": {"type": "text"}},
    {"response_format": "json"},
    {"structured_outputs": None},
    {"structured_outputs": {}},
    {"guided_json": None},
    {"grammar": ""},
    {"text": {"format": {"type": "text"}, "verbosity": "low"}},
    {"text": "hello"},
    {"text": {}},
    {"output_config": {"effort": "low"}},
    {"tool_choice": "auto", "tools": []},
    {"tool_choice": "none"},
    {"tool_choice": {"type": "auto"}},
    {"tool_choice": 7},
]


@pytest.mark.parametrize("fields", STRUCTURED, ids=repr)
def test_asked_for(fields: dict[str, Any]) -> None:
    assert asks_for_structure(fields)


@pytest.mark.parametrize("fields", FREE, ids=repr)
def test_not_asked_for(fields: dict[str, Any]) -> None:
    assert not asks_for_structure(fields)


async def test_it_stays_off_speculation_only_where_configured() -> None:
    async with GatedEngine() as spec, GatedEngine() as plain, running_proxy([spec, plain], gammas=[4, 0]) as proxy:

        async def ask(**fields: Any) -> tuple[str | None, str | None]:
            answer = await proxy.ask(post(body={"prompt": "x", **fields}))
            return answer.one("x-adaptive-gamma-replica"), answer.one("x-adaptive-gamma-reason")

        assert await ask(**STRUCTURED[0]) == ("r0", "low_load")
        assert await ask(min_p=0.1) == ("r1", "capability")
        values = proxy.plane.settings.model_dump(by_alias=True)
        settings = Settings(**{**values, "capability": {"structured_output": "plain"}})
        proxy.plane.apply(settings, proxy.plane.policy)
        assert await ask(**STRUCTURED[0]) == ("r1", "capability")
        assert await ask(**FREE[2]) == ("r0", "low_load")
        assert await ask(min_p=0.1) == ("r1", "capability"), "what the engine refuses anyway stays known"


async def test_a_long_prompt_stays_off_a_drafter_with_a_short_context() -> None:
    async with GatedEngine() as spec, GatedEngine() as plain:
        replicas = [
            {"name": "r0", "url": spec.url, "gamma": 4, "drafter_context": 2000},
            {"name": "r1", "url": plain.url, "gamma": 0},
        ]
        async with running_proxy([spec, plain], replicas=replicas) as proxy:
            for words, replica in ((100, "r0"), (700, "r0"), (1500, "r1")):
                answer = await proxy.ask(post(body={"prompt": "abc " * words}))
                assert answer.one("x-adaptive-gamma-replica") == replica
            assert answer.one("x-adaptive-gamma-reason") == "capability"
            excluded = (await proxy.decisions())[0]["decision"]["excluded"]
            assert excluded == [{"replica": "r0", "why": "near the drafter's context limit"}]
            values = proxy.plane.settings.model_dump(by_alias=True)
            replicas[0] = {**replicas[0], "drafter_context": None}
            proxy.plane.apply(Settings(**{**values, "replicas": replicas}), proxy.plane.policy)
            answer = await proxy.ask(post(body={"prompt": "abc " * 1500}))
            assert answer.one("x-adaptive-gamma-replica") == "r0"
