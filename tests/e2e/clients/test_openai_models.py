"""The models that the official openai client finds."""

from __future__ import annotations

from collections.abc import Callable

import openai

from tests.e2e.clients.asks import settled
from tests.e2e.clients.making import async_openai_client
from tests.e2e.clients.stack import Stack


def test_the_models_are_those_of_all_engines(client: openai.OpenAI, direct: Callable[[str], openai.OpenAI]) -> None:
    models = {model.id: model for model in client.models.list()}
    assert set(models) == {"tiny", "tiny-embed"}
    (expected,) = direct("embed-0").models.list().data
    assert settled(models["tiny-embed"]) == settled(expected)


async def test_the_models_are_those_of_all_engines_async(stack: Stack) -> None:
    async with async_openai_client(stack.url) as client:
        assert {"tiny", "tiny-embed"} == {model.id async for model in client.models.list()}
