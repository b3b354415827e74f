from __future__ import annotations

import json

import pytest

from adaptive_gamma.proxy.answers import ErrorAnswer
from adaptive_gamma.routing import classify_prompt
from adaptive_gamma.routing.json_request import JsonRequest, parse_json


def parsed(**fields: object) -> JsonRequest:
    return parse_json(json.dumps(fields).encode(), None)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_tokens": 12}, 12),
        ({"max_completion_tokens": 7, "max_tokens": 12}, 7),
        ({"max_output_tokens": 5}, 5),
        ({"n_predict": 9}, 9),
        ({"n_predict": -1}, None),
        ({"max_tokens": True}, None),
        ({"max_tokens": "12"}, None),
        ({}, None),
    ],
)
def test_the_output_limit_by_any_name(fields: dict[str, object], expected: int | None) -> None:
    assert parsed(**fields).max_output_tokens == expected


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"\xff{}", b'{"a": }', b"[" * 100_000, b"{}{}"])
def test_what_is_not_a_json_object_is_the_clients_fault(body: bytes) -> None:
    with pytest.raises(ErrorAnswer) as caught:
        parse_json(body, None)
    assert caught.value.status == 400


def test_delicate_parameters_count_only_in_effect() -> None:
    assert parsed(min_p=0, logit_bias={}).parameters == frozenset()
    assert parsed(min_p=0.1, logit_bias={"5": 1}).parameters == {"min_p", "logit_bias"}


def test_prompt_text_takes_both_ends_of_any_api() -> None:
    parts = [{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}]
    assert parsed(messages=parts).prompt_text() == "a\nb"
    long = parsed(prompt="x" * 10_000 + "END").prompt_text()
    assert len(long) <= 2 * 4096 + 1
    assert long.endswith("END")
    assert parsed(prompt=[1, 2, 3]).prompt_text() == ""
    assert parsed(system="s", messages=[{"role": "user", "content": "m"}]).prompt_text() == "s\nm"
    assert parsed(input="i", instructions="n").prompt_text() == "n\ni"


def test_prompt_tokens_are_estimated_from_the_text_where_there_is_some() -> None:
    assert parsed(prompt="word " * 80, temperature=0.5, metadata={"k": "v" * 200}).prompt_tokens == 100
    assert parsed(prompt=list(range(100))).prompt_tokens > 50
    assert parsed(prompt="x" * 40_000).prompt_tokens == pytest.approx(10_000, rel=0.01)


def test_the_prefix_is_the_leading_text_of_a_prompt_that_fills_a_block() -> None:
    head = "m\n\n"
    assert parsed(model="m", prompt="x" * 1023).prefix_text() == ""
    assert parsed(model="m", prompt="x" * 1024).prefix_text() == head + "x" * 1024
    assert parsed(model="m", prompt="x" * 1023, metadata="y" * 9000).prefix_text() == ""
    assert parsed(model="m", prompt=list(range(5000))).prefix_text() == ""
    long = parsed(model="m", prompt="x" * 500_000).prefix_text()
    assert long == (head + "x" * 500_000)[:65_536]
    accents = parsed(prompt="\u00e9" * 1024).prefix_text()
    assert accents == "\n\n" + "\u00e9" * 1024


def test_turns_of_one_conversation_begin_alike() -> None:
    turns: list[dict[str, object]] = [{"role": role, "content": role[0] * 3000} for role in ("system", "user")]
    first = parsed(messages=turns, model="m").prefix_text()
    turns += [{"role": "assistant", "content": "a" * 9000}]
    turns += [{"role": "user", "content": [{"type": "text", "text": "b"}]}]
    later = parsed(messages=turns, model="m").prefix_text()
    assert later.startswith(first)
    assert len(later) > 15_000


def test_what_keeps_caches_apart_keeps_prefixes_apart() -> None:
    def prefix(**fields: object) -> str:
        return parsed(prompt="x" * 2000, **fields).prefix_text()[:1024]

    assert len({prefix(), prefix(model="m"), prefix(model="n"), prefix(cache_salt="s"), prefix(cache_salt="t")}) == 5
    assert prefix(cache_salt=7) == prefix()


def test_long_lists_of_messages_are_looked_at_up_to_a_bound() -> None:
    many = [{"role": "user", "content": "x" * 100}] * 5000
    assert 1024 < len(parsed(messages=many).prefix_text()) <= 65_536


def test_half_a_surrogate_pair_is_taken_as_engines_take_it() -> None:
    request = parse_json(b'{"model":"m\\ud83d","prompt":"\\ud83d cut"}', None)
    assert request.model == "m?"
    assert request.prompt_text() == "\ud83d cut"
    assert classify_prompt(request.prompt_text()).name == "unsure"


@pytest.mark.parametrize("body", [b'{"a":' * 100_000, b"[" * 1_000_000, b'{"prompt":"\xff"}'])
def test_what_no_parser_takes_is_refused(body: bytes) -> None:
    with pytest.raises(ErrorAnswer) as caught:
        parse_json(body, None)
    assert caught.value.status == 400
