from __future__ import annotations

import json

import pytest

from adaptive_gamma.proxy.answers import ErrorAnswer
from adaptive_gamma.proxy.request import JsonRequest, parse_json


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
