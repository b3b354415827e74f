"""The class filter in a real Envoy says what the in-process classifier says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adaptive_gamma.bench.sweep.code_prompts import CODE_PROMPTS as SWEEP_CODE
from adaptive_gamma.bench.sweep.prose_prompts import PROSE_PROMPTS as SWEEP_PROSE
from adaptive_gamma.cli.demo.prompts import CODE_PROMPTS, PROSE_PROMPTS
from adaptive_gamma.envoy.files import LOOKED_AT
from adaptive_gamma.proxy.answers import ErrorAnswer
from adaptive_gamma.routing import STRUCTURED_OUTPUT, RequestClassifier
from adaptive_gamma.routing.json_request import parse_json
from adaptive_gamma.routing.vocabulary import (
    CHAT_WORDS,
    CODE_NOUNS,
    CODE_VERBS,
    LANGUAGES,
    LINE_STARTS,
    MATH_WORDS,
)
from tests.envoy.filter_only import FilterOnly, filter_only


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilterOnly]:
    folder = tmp_path_factory.mktemp("filter")
    with filter_only(folder, capability={"structured_output": "plain"}) as running:
        yield running


def expected(body: bytes, path: str = "/v1/chat/completions") -> str | None:
    """The cluster by the rules of the in-process proxy; None for a body that it refuses."""
    try:
        request = parse_json(body, None)
    except ErrorAnswer:
        return None
    name = RequestClassifier().classify(path=path, model=request.model, text=request.prompt_text)
    parameters = request.parameters
    sampling = "-sampling" if parameters & {"min_p", "logit_bias"} else ""
    return f"any-{name}{sampling}" + ("-structure" if STRUCTURED_OUTPUT in parameters else "")


def chat(*contents: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content} for content in contents], **more}


def corpus() -> list[bytes]:
    """Real prompts in the forms in which clients send them."""
    prompts = [*CODE_PROMPTS, *PROSE_PROMPTS, *map(str, SWEEP_CODE), *map(str, SWEEP_PROSE)]
    forms: list[dict[str, Any]] = []
    for index, prompt in enumerate(prompts):
        other = prompts[(index * 7 + 3) % len(prompts)]
        forms += [
            chat(prompt),
            chat("You are a helpful assistant.", other, prompt),
            chat([{"type": "text", "text": prompt}, {"type": "image_url", "image_url": {"url": "data:,x"}}]),
            {"model": "m", "prompt": prompt, "max_tokens": 8},
            {"model": "m", "prompt": [prompt, other]},
            {"model": "m", "system": other, "messages": [{"role": "user", "content": prompt}]},
            {"model": "m", "instructions": "Answer shortly.", "input": [{"role": "user", "content": prompt}]},
            chat(prompt * 40 + other * 40),
            chat(prompt.replace("\n", "\r\n")),
        ]
    bodies = []
    for number, form in enumerate(forms):
        bodies.append(json.dumps(form, ensure_ascii=bool(number % 2), indent=2 if number % 5 == 0 else None).encode())
    return bodies


def test_agrees_on_the_corpus(asked: FilterOnly) -> None:
    bodies = corpus()
    different = [(body, wanted, got) for body in bodies if (got := asked.ask(body)[1]) != (wanted := expected(body))]
    print(f"class filter and classifier agree on {len(bodies) - len(different)} of {len(bodies)} requests")
    assert not different, different[0]


WORDS = sorted(word.decode() for word in LANGUAGES | CODE_NOUNS | CODE_VERBS | MATH_WORDS | CHAT_WORDS)
TOKENS = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from([start.decode() for start in LINE_STARTS]),
    st.sampled_from(["\n", "\n\n", "\r\n", "\r", " ", "\t", "```", "```python\n", ":", ";", "{}", "()", "Ünïcode"]),
    st.sampled_from(["日本語", "🙂", '"', "\\", "\\n", "the", "and", ". ", "x = 1", "\x0b", "a" * 60]),
    st.text(max_size=12),
)  # fmt: skip
TEXTS = st.lists(TOKENS, max_size=40).map("".join) | st.tuples(
    st.lists(TOKENS, min_size=1, max_size=12).map(" ".join), st.integers(1, 400)
).map(lambda pair: pair[0] * pair[1])
CONTENTS = TEXTS | st.lists(
    st.one_of(TEXTS.map(lambda text: {"type": "text", "text": text}), TEXTS, st.just({"type": "image"})), max_size=4
)
MORE = st.fixed_dictionaries(
    {},
    optional={
        "min_p": st.sampled_from([0, 0.0, 0.05, 1, None, 1e-3]),
        "logit_bias": st.sampled_from([{}, {"5": 1}, None, []]),
        "response_format": st.sampled_from([None, {}, {"type": "text"}, {"type": "json_object"}]),
        "guided_json": st.sampled_from([None, {}, {"type": "object"}, ""]),
        "text": st.sampled_from([None, {"format": {"type": "text"}}, {"format": {"type": "json_schema"}}]),
        "tool_choice": st.sampled_from(["auto", "none", "required", {"type": "function"}, {"type": "auto"}]),
        "user": st.text(max_size=5),
        "metadata": st.just({"model": "other", "prompt": "def x():", "deep": [[{"min_p": 1}], "]}"]}),
    },
)
REQUESTS = st.one_of(
    st.builds(lambda contents, more: chat(*contents, **more), st.lists(CONTENTS, max_size=6), MORE),
    st.builds(
        lambda prompt, more: {"model": "m", "prompt": prompt, **more}, TEXTS | st.lists(TEXTS, max_size=70), MORE
    ),
    st.builds(lambda tokens, more: {"prompt": tokens, **more}, st.lists(st.integers(0, 9), max_size=9), MORE),
    st.builds(
        lambda a, b, c, more: {"system": a, "instructions": b, "input": c, **more}, TEXTS, CONTENTS, CONTENTS, MORE
    ),
)  # fmt: skip


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(request=REQUESTS, ascii_only=st.booleans(), indent=st.sampled_from([None, None, 1]))
def test_agrees_on_whatever_is_asked(asked: FilterOnly, request: dict[str, Any], ascii_only: bool, indent: int) -> None:
    text = json.dumps(request, ensure_ascii=ascii_only, indent=indent)
    body = text.encode("utf-8", "replace")
    if len(body) <= LOOKED_AT and (wanted := expected(body)) is not None:
        assert asked.ask(body)[1] == wanted
