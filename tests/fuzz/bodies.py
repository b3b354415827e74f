"""JSON requests: what routing reads of them, and what is put into their bytes."""

from __future__ import annotations

import json
from typing import Any

from adaptive_gamma.errors import AdaptiveGammaError
from adaptive_gamma.proxy.body_fields import encoded_members, insert_members
from adaptive_gamma.proxy.body_options import with_option
from adaptive_gamma.routing import AffinityIndex, RequestClassifier, RequestNeeds
from adaptive_gamma.routing.error_answer import ErrorAnswer, error_body, shortened
from adaptive_gamma.routing.json_request import JsonRequest, parse_json
from tests.fuzz.shapes import altered, edited_bytes
from tests.fuzz.target import Target

__all__ = ["TARGETS"]

REQUESTS: list[dict[str, Any]] = [
    {"model": "m", "messages": [{"role": "user", "content": "Write a function.\n```python\n1\n```"}], "stream": True},
    {
        "model": "m",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url"}]}],
        "stream_options": {"include_usage": False},
        "n": 1,
        "max_tokens": 7,
        "tools": [],
        "response_format": {"type": "json_schema"},
    },
    {"prompt": ["a", "b"], "min_p": 0.1, "logit_bias": {"1": 2}, "user": "u", "stream": False, "stream_options": None},
    {"prompt": [1, 2, 3], "best_of": 2, "max_completion_tokens": 0, "guided_json": {}, "cache_salt": "s"},
    {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}],
        "instructions": "be brief",
        "previous_response_id": "resp_1",
        "store": False,
        "text": {"format": {"type": "json_object"}},
    },
    {"system": [{"type": "text", "text": "s"}], "messages": [{"role": "user", "content": "x" * 5000}], "max_tokens": 1},
    {"conversations": [], "text_1": "a", "text_2": ["b"], "documents": ["c"], "query": "q", "content": "x"},
]
RAW = [json.dumps(request).encode() for request in REQUESTS]
TOKENS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b",",
    b":",
    b"null",
    b"true",
    b"NaN",
    b"Infinity",
    b"1e999",
    b"9" * 5000,
    b"[" * 3000,
    b'{"a":' * 2000,
    b'"\\ud800"',
    b'"stream_options":',
    b'"stream_options": {"include_usage": false}',
    b'"model":',
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    "é\u2028".encode(),
    b'"prompt"',
    b" " * 70,
    b"\n",
]


def read_all(request: JsonRequest) -> None:
    """Everything that routing asks of a request."""
    text = request.prompt_text()
    assert len(text) <= 2 * 4096 + 1
    assert request.prompt_tokens >= 0
    assert request.max_output_tokens is None or request.max_output_tokens > 0
    assert request.model != ""
    assert request.one_choice() in (True, False)
    assert request.streams in (True, False)
    prefix, index = request.prefix_text(), AffinityIndex(16, 60.0)
    place = index.look_up(request.user, prefix, 1.0)
    index.record(place, "r0", request.prompt_tokens, 1.0)
    if request.user is not None or prefix:
        assert index.look_up(request.user, prefix, 2.0).cached.get("r0", 0) >= 0
    named = RequestClassifier().classify(path="/v1/completions", model=request.model, text=lambda: text)
    assert named in ("structured", "chat", "unsure")
    RequestNeeds(named, request.prompt_tokens, request.model, request.parameters, request.max_output_tokens)
    # It goes onto pages and into logs.
    shortened(request.model or "").encode()


def check_body(body: bytes) -> None:
    """Any bytes are a request that can be asked everything, or an error that a client can be told."""
    try:
        request = parse_json(body, None)
    except ErrorAnswer as error:
        assert error.status in (400, 415)
        assert len(error_body(error.status, error.message, error.code)) < 2000
        return
    except AdaptiveGammaError as error:
        raise AssertionError("a body raises ErrorAnswer alone") from error
    read_all(request)
    _check_insertion(body, request)


def _loads(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one) == json.dumps(other)  # NaN and all


def _check_insertion(body: bytes, request: JsonRequest) -> None:
    before = _loads(body)
    if not isinstance(before, dict):
        return
    put = insert_members(body, encoded_members({"speculative.n_max": 3}))
    if put is not None:
        after = json.loads(put)
        assert after.get("speculative.n_max") == before.get("speculative.n_max", 3)
        after.pop("speculative.n_max")
        assert _same(after, {key: value for key, value in before.items() if key != "speculative.n_max"})
    value = request.member("stream_options")
    if request.has_member("stream_options") and (value is None or isinstance(value, dict)):
        known = value or {}
        if known.get("include_usage") is True:
            return
        asked = with_option(body, "stream_options", "include_usage", known)
        if asked is not None:
            after = json.loads(asked)
            assert after["stream_options"] == {**known, "include_usage": True}
            assert _same(
                {key: each for key, each in after.items() if key != "stream_options"},
                {key: each for key, each in before.items() if key != "stream_options"},
            )


def _dumped(value: Any) -> bytes:
    try:
        return json.dumps(value).encode()
    except ValueError:  # a number of more digits than Python writes
        return b"[" + b"9" * 5000 + b"]"


TARGETS = [
    Target("json-request", edited_bytes(RAW, TOKENS) | altered(REQUESTS, 5).map(_dumped), check_body),
]
