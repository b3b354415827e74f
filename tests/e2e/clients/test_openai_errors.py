"""What goes wrong is told by the openai client's own exception classes, with status, code and request id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import openai
import pytest

from tests.e2e.clients.asks import HUGE, LONG, MESSAGES
from tests.e2e.clients.making import async_openai_client
from tests.e2e.clients.stack import Stack


class Case(NamedTuple):
    ask: Callable[[Any], Any]
    error: type[openai.APIStatusError]
    status: int
    code: str
    type: str


def _chat(**options: Any) -> Callable[[Any], Any]:
    return lambda client: client.chat.completions.create(
        **{"model": "tiny", "messages": MESSAGES, "max_tokens": 4, **options}
    )


FROM_THE_PROXY = {
    "unknown model": Case(_chat(model="nope"), openai.NotFoundError, 404, "model_not_found", "not_found_error"),
    "unknown model, streamed": Case(
        _chat(model="nope", stream=True), openai.NotFoundError, 404, "model_not_found", "not_found_error"
    ),
    "body too large": Case(
        _chat(messages=[{"role": "user", "content": HUGE}]),
        openai.APIStatusError,
        413,
        "body_too_large",
        "invalid_request_error",
    ),
    "a path that no engine serves": Case(
        lambda client: client.files.retrieve("file-1"), openai.NotFoundError, 404, "path_not_found", "not_found_error"
    ),
}
FROM_THE_ENGINE = {
    "a bad parameter": Case(_chat(temperature="hot"), openai.BadRequestError, 400, "400", "invalid_request_error"),
    "a bad parameter, streamed": Case(
        _chat(temperature="hot", stream=True), openai.BadRequestError, 400, "400", "invalid_request_error"
    ),
    "a bad response format": Case(
        _chat(response_format={"type": "nonsense"}), openai.BadRequestError, 400, "400", "invalid_request_error"
    ),
    "a prompt too long": Case(
        _chat(messages=[{"role": "user", "content": LONG}]),
        openai.BadRequestError,
        400,
        "400",
        "exceed_context_size_error",
    ),
    "embeddings of a model that has none": Case(
        lambda client: client.embeddings.create(model="tiny", input="word"),
        openai.InternalServerError,
        501,
        "501",
        "not_supported_error",
    ),
    "a response that is not stored": Case(
        lambda client: client.responses.retrieve("resp_1"), openai.NotFoundError, 404, "404", "not_found_error"
    ),
}
CASES = FROM_THE_PROXY | FROM_THE_ENGINE


def _check(error: openai.APIStatusError, case: Case) -> None:
    assert type(error) is case.error
    assert (error.status_code, str(error.code), error.type) == (case.status, case.code, case.type)
    assert error.request_id
    assert error.request_id == error.response.headers["x-request-id"]
    assert error.body["message"] in error.message


@pytest.mark.parametrize("case", CASES)
def test_an_error_is_of_the_clients_own_class(client: openai.OpenAI, case: str) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        CASES[case].ask(client)
    _check(caught.value, CASES[case])


@pytest.mark.parametrize("case", ["unknown model", "body too large", "a bad parameter, streamed"])
async def test_an_error_is_of_the_clients_own_class_async(stack: Stack, case: str) -> None:
    async with async_openai_client(stack.url) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await CASES[case].ask(client)
    _check(caught.value, CASES[case])


@pytest.mark.parametrize("case", FROM_THE_ENGINE)
def test_an_engines_error_is_its_own_word_for_word(
    client: openai.OpenAI, direct: Callable[[str], openai.OpenAI], case: str
) -> None:
    told = []
    for asked in (client, direct("plain-only")):
        with pytest.raises(openai.APIStatusError) as caught:
            FROM_THE_ENGINE[case].ask(asked)
        told.append((caught.value.status_code, caught.value.body))
    assert told[0] == told[1]


def test_an_error_names_the_replica_that_made_it(stack: Stack, client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        _chat(temperature="hot", extra_headers={"x-request-id": "mine-400"})(client)
    assert caught.value.request_id == "mine-400"
    row = stack.decision("mine-400")
    assert caught.value.response.headers["x-adaptive-gamma-replica"] == row["sent_to"]
    assert (row["outcome"], row["status"]) == ("client_error", 400)


def test_the_client_goes_on_after_an_error(client: openai.OpenAI) -> None:
    for _ in range(3):
        with pytest.raises(openai.NotFoundError):
            _chat(model="nope")(client)
        assert _chat()(client).usage.completion_tokens == 4
