from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.routing import ClassRule, RequestClassifier, classify_prompt
from adaptive_gamma.routing.vocabulary import CHAT_WORDS, CODE_NOUNS, CODE_VERBS, LANGUAGES, LINE_STARTS, MATH_WORDS

from .reference_classify import reference_class

CODE = [
    "Write a Python function that merges two sorted lists without using sorted().",
    '```rust\nfn main() { println!("{}", x); }\n```\nWhy does this not compile?',
    "Fix this:\n\ndef mean(xs):\n    return sum(xs) / len(xs)\n\nIt raises ZeroDivisionError on an empty list.",
    "Traceback (most recent call last):\n  File \"app.py\", line 3, in <module>\nKeyError: 'id'\nWhat is wrong?",
    "SELECT name, count(*) FROM users GROUP BY name; make this query faster in PostgreSQL",
    "Implement an LRU cache class in Java with get and put in O(1).",
    "Refactor this JavaScript callback code to async/await and add unit tests with jest.",
    "Prove that the sum of two odd integers is divisible by 2.",
    "Solve the equation 3x^2 + 4x - 7 = 0 and evaluate the integral of x^2 from 0 to 3.",
    "Write a bash script that rotates log files, and a Dockerfile to run it.",
    "#include <vector>\nint main() { std::vector<int> v; v.push_back(1); return 0; }",
]
PROSE = [
    "Write a polite letter to my neighbour about the fence between our gardens.",
    "Tell me a bedtime story about a dragon who is afraid of the dark.",
    "Summarize the following article about the history of the Hanseatic League in three paragraphs.",
    "My best friend forgot my birthday. How should I tell her how I feel?",
    "Give me a three day travel itinerary for Lisbon with my parents.",
    "Write a wedding speech for my brother, warm and a little funny.",
    "What is the meaning of the last chapter of this book, in your opinion?",
    "Draft an email declining a job interview politely.",
]
UNSURE = ["", "hi", "Continue.", "What is the capital of France?", "42", "\u3053\u3093\u306b\u3061\u306f"]


@pytest.mark.parametrize("text", CODE)
def test_code_and_maths_are_structured(text: str) -> None:
    assert classify_prompt(text).name == "structured"


@pytest.mark.parametrize("text", PROSE)
def test_prose_is_chat(text: str) -> None:
    assert classify_prompt(text).name == "chat"


@pytest.mark.parametrize("text", UNSURE)
def test_little_evidence_is_unsure(text: str) -> None:
    assert classify_prompt(text).name == "unsure"


@given(st.text(max_size=20_000))
def test_any_text_gets_one_of_three_answers(text: str) -> None:
    assert classify_prompt(text).name in {"structured", "chat", "unsure"}


def test_the_middle_of_a_long_prompt_is_not_looked_at() -> None:
    head = "Write a polite letter to my neighbour about the garden. " * 100
    hidden = head[:4096] + "```python\ndef f(): pass\n```" * 50 + head[-4096:]
    assert classify_prompt(hidden) == classify_prompt(head[:4096] + "\n" + head[-4096:])


def test_header_then_rule_then_prompt() -> None:
    classifier = RequestClassifier(
        [ClassRule("code", path="/v1/completions"), ClassRule("chat", model="story-teller")], default="unsure"
    )
    asked: list[str] = []

    def text() -> str:
        asked.append("looked")
        return CODE[0]

    def classify(header: str | None = None, path: str = "/v1/chat/completions", model: str | None = None) -> str:
        return classifier.classify(path=path, model=model, header=header, text=text)

    assert classify(header=" Prose ") == "chat"
    assert classify(path="/v1/completions") == "structured"
    assert classify(model="story-teller") == "chat"
    assert asked == []
    assert classify(header="made-up-class") == "structured"
    assert asked == ["looked"]
    assert classifier.classify(path="/v1/embeddings") == "unsure"


def test_a_policys_own_class_names_may_be_named_in_the_header() -> None:
    classifier = RequestClassifier(known=("decaying",))
    assert classifier.classify(path="/", header="decaying") == "decaying"


def test_the_default_stands_in_for_unsure() -> None:
    assert RequestClassifier(default="prose").classify(path="/", text=lambda: "hi") == "chat"


_PIECES = [
    *(word.decode() for word in sorted(LANGUAGES | CODE_NOUNS | CODE_VERBS | MATH_WORDS | CHAT_WORDS)),
    *(start.decode() for start in LINE_STARTS),
    *("the", "walked", "over", "é", "ſ", "\u212a", "\ud800", "x_y", "e-mail", "fix.", "(code)", "test-", "C#", "c++,"),
    *(
        "```",
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        "\t",
        "\x0b",
        "    ",
        " ",
        " ",
        ". ",
        "{",
        "}",
        ";",
        "= [",
        "_",
        "\x00",
        "\x7f",
    ),
]
_TEXTS = st.lists(
    st.tuples(st.sampled_from(_PIECES), st.sampled_from(["", " ", " ", "\n"]), st.booleans()), max_size=120
).map(lambda parts: "".join((piece.upper() if loud else piece) + gap for piece, gap, loud in parts))


@given(_TEXTS | st.text(max_size=400))
@settings(max_examples=400, deadline=None)
def test_the_class_is_that_of_the_full_count(text: str) -> None:
    """Stopping early never changes the class, and never says more than was there."""
    name, structured, chat = reference_class(text)
    found = classify_prompt(text)
    assert found.name == name
    assert found.structured_score == structured or structured > found.structured_score > 3
    assert found.chat_score <= chat


@given(_TEXTS, st.integers(2, 40))
@settings(deadline=None)
def test_the_class_is_that_of_the_full_count_for_many_lines(text: str, times: int) -> None:
    for joined in ((text + "\n") * times, "\n".join([text] * times), "walked on\n" * times + text + "\nso\n" * times):
        assert classify_prompt(joined).name == reference_class(joined)[0]


@pytest.mark.parametrize("form", ["{}", "so {} it is", "so ({}),", "so{}", "{}é", "_{}", "{}+", "{}#", "{}2", "é {}"])
def test_a_word_counts_only_where_it_stands_alone(form: str) -> None:
    for word in sorted(LANGUAGES | CODE_NOUNS | MATH_WORDS | CHAT_WORDS):
        for text in (form.format(word.decode()), form.format(word.decode()).upper()):
            found = classify_prompt(text)
            name, structured, _ = reference_class(text)
            assert (found.name, found.structured_score) == (name, structured)
