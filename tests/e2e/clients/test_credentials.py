"""What the official clients say of themselves, and which of it an engine gets to hear."""

from __future__ import annotations

from tests.e2e.clients.apis import ANSWER, Api, asking
from tests.support.gated_engine import answer_json


async def test_an_engine_hears_who_asks(api: Api) -> None:
    async with asking(api, answer_json(200, ANSWER), max_retries=0) as (client, engine, _):
        await api.ask(client)
        (request,) = engine.requests
    assert request.all("authorization") == [b"Bearer none"]
    assert request.one("x-stainless-lang") == b"python"
    assert api.library.__name__.encode() in (request.one("user-agent") or b"").lower()
    if api.library.__name__ == "anthropic":
        assert request.one("anthropic-version")


async def test_a_key_of_the_engines_takes_the_place_of_the_clients(api: Api) -> None:
    async with asking(api, answer_json(200, ANSWER), max_retries=0, engine_api_key="secret") as (client, engine, _):
        await api.ask(client)
        (request,) = engine.requests
    assert request.all("authorization") == [b"Bearer secret"]
