"""Where two answers part, and what the reference itself thinks of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.bench.parity import Token, WholeAnswer, distance, divergence, read_answer
from adaptive_gamma.errors import ProtocolError
from tests.parity.saying import answer_body, words


def answer(*tokens: tuple[str, float | None], others: dict[int, dict[str, float]] | None = None) -> WholeAnswer:
    listed = tuple(
        Token(
            text.encode(),
            logprob,
            tuple((name.encode(), value) for name, value in (others or {}).get(place, {}).items()),
        )
        for place, (text, logprob) in enumerate(tokens)
    )
    return WholeAnswer("".join(text for text, _ in tokens), listed, "length")


REFERENCE = answer(
    ("the ", -0.1), ("cat", -0.5), (" sat", -0.2),
    others={1: {"cat": -0.5, "dog": -1.5, "d": -3.0, "cow": -4.0}, 2: {" sat": -0.2, " ran": -2.0}},
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "character", "token", "margin", "at_least"),
    [
        ("the dog ran", 4, 1, 1.0, False),  # of "dog" and "d" the likelier
        ("the deer", 4, 1, 2.5, False),
        ("the cow sat", 5, 1, 3.5, False),  # the texts part inside of the token
        ("the ape sat", 4, 1, 3.5, True),
        ("the cat ran", 8, 2, 1.8, False),
        ("the cat", 7, 2, 1.8, True),  # it ended
        ("a", 0, 0, None, False),
        ("the cat sat down", 11, None, None, False),  # the reference ended
    ],
)
def test_the_margin_is_the_references(
    text: str, character: int, token: int | None, margin: float | None, at_least: bool
) -> None:
    found = divergence(REFERENCE, WholeAnswer(text, None, "stop"))
    assert found is not None
    assert (found.character, found.token, found.margin_at_least) == (character, token, at_least)
    assert found.margin == (None if margin is None else pytest.approx(margin))


@given(st.text(max_size=30), st.text(max_size=30))
def test_texts_part_where_they_part(a: str, b: str) -> None:
    found = divergence(WholeAnswer(a, None, None), WholeAnswer(b, None, None))
    if a == b:
        assert found is None
        return
    assert found is not None
    assert a[: found.character] == b[: found.character]
    assert a[found.character : found.character + 1] != b[found.character : found.character + 1]


@given(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=8), st.text(max_size=20))
def test_tokens_that_cut_characters_apart_are_no_trouble(parts: list[str], other: str) -> None:
    data = "".join(parts).encode(errors="replace")
    tokens = tuple(
        Token(data[at : at + 2], -0.5, ((data[at : at + 2], -0.5), (b"x", -1.0))) for at in range(0, len(data), 2)
    )
    reference = WholeAnswer(data.decode(), tokens, None)
    found = divergence(reference, WholeAnswer(other, None, None))
    if found is not None and found.token is not None:
        start = 2 * found.token
        assert start <= len(reference.text[: found.character].encode())


def test_tokens_of_another_text_give_no_margin() -> None:
    found = divergence(
        WholeAnswer("thought and said", (Token(b"said", -0.1, ((b"said", -0.1),)),), None), WholeAnswer("x", None, None)
    )
    assert found is not None
    assert (found.token, found.margin) == (None, None)


def test_log_probabilities_are_compared_up_to_where_the_tokens_part() -> None:
    a = answer(("a", -0.1), ("b", -0.2), ("c", -0.3))
    b = answer(("a", -0.2), ("b", -0.5), ("d", -9.0))
    found = distance(a, b)
    assert found.logprob == pytest.approx(0.2)
    assert found.parted
    assert distance(a, a).logprob == 0.0
    assert distance(a, a).margin == 0.0


def test_blanks_are_not_read_as_certainty() -> None:
    """llama.cpp lists the tokens it took over from a draft with a log-probability of 0 and nothing beside them."""
    body = answer_body(words("abc", 3))
    content = body["choices"][0]["logprobs"]["content"]
    content[1] |= {"logprob": 0.0, "top_logprobs": []}
    content[2]["logprob"] = -9999999.0
    found = read_answer(json.dumps(body).encode(), asked_for_others=True)
    assert found.tokens is not None
    assert [token.logprob for token in found.tokens] == [-0.25, None, None]
    sure = read_answer(json.dumps(body).encode(), asked_for_others=False)
    assert sure.tokens is not None
    assert sure.tokens[1].logprob == 0.0


@pytest.mark.parametrize("chat", [True, False])
def test_both_forms_read_alike(chat: bool) -> None:
    found = read_answer(json.dumps(answer_body(words("abc", 3), chat=chat)).encode(), asked_for_others=True)
    assert found.text == "abc0 abc1 abc2 "
    assert found.tokens is not None
    assert [token.logprob for token in found.tokens] == [-0.25, -0.26, -0.27]
    assert dict(found.tokens[0].others) == {b"abc0 ": -0.25, b"other": -1.25}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html><h1>hi</h1>", "an HTML page"),
        (b"{", "no JSON"),
        (b"[]", "without a choice"),
        (b'{"choices": []}', "without a choice"),
        (b'{"error": {"message": "no \\u001b[2J"}}', "with an error"),
        (b'{"choices": [{"message": {"content": null}}]}', "without text"),
        (b'{"choices": [{"text": 5}]}', "without text"),
        (b'{"choices": [{"text": "a", "logprobs": {"content": [5]}}]}', "something else"),
    ],
)
def test_what_is_no_answer_is_refused_in_words(body: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words) as caught:
        read_answer(body, asked_for_others=True)
    assert str(caught.value).isprintable()


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "text",
                        "message",
                        "content",
                        "logprobs",
                        "tokens",
                        "token_logprobs",
                        "top_logprobs",
                        "token",
                        "logprob",
                        "bytes",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_whatever_json_comes_it_is_read_or_refused(value: object) -> None:
    for body in (value, {"choices": [{"text": "a", "logprobs": value}]}, {"choices": [value]}):
        try:
            read_answer(json.dumps(body).encode(), asked_for_others=True)
        except ProtocolError:
            continue


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("place", ["token", "others"])
@pytest.mark.parametrize("wrong", ["NaN", "0.5", "Infinity", "1" + "0" * 400])
def test_what_no_log_probability_can_be_is_refused(chat: bool, place: str, wrong: str) -> None:
    figure, other = (wrong, "-0.1") if place == "token" else ("-0.1", wrong)
    if chat:
        entry = f'{{"token": "a", "logprob": {figure}, "top_logprobs": [{{"token": "b", "logprob": {other}}}]}}'
        choice = f'{{"message": {{"content": "a"}}, "logprobs": {{"content": [{entry}]}}}}'
    else:
        listed = f'"tokens": ["a"], "token_logprobs": [{figure}], "top_logprobs": [{{"b": {other}}}]'
        choice = f'{{"text": "a", "logprobs": {{{listed}}}}}'
    with pytest.raises(ProtocolError, match=r"answered with a log-probability of .*they are at most 0"):
        read_answer(f'{{"choices": [{choice}]}}'.encode(), asked_for_others=True)


@pytest.mark.parametrize("none", ["null", "-9999.0e3", "-Infinity"])
def test_what_stands_for_no_figure_is_none(none: str) -> None:
    body = f'{{"choices": [{{"text": "a", "logprobs": {{"tokens": ["a"], "token_logprobs": [{none}]}}}}]}}'
    answer = read_answer(body.encode(), asked_for_others=True)
    assert answer.tokens is not None
    assert answer.tokens[0].logprob is None
