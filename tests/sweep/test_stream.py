from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.bench.sweep.stream import EngineFault, EventLines, StreamTiming
from adaptive_gamma.errors import ProtocolError
from tests.sweep.talking_engine import chat_events, text_event, usage_event


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def test_the_opening_of_a_chat_is_no_token() -> None:
    timing = StreamTiming()
    opening, first, last, usage = chat_events(2)
    for at, event in ((1.0, opening), (2.0, first), (5.0, last), (6.0, usage)):
        timing.feed(sse(event), at)
    assert (timing.first_at, timing.last_at) == (2.0, 5.0)
    assert (timing.output_tokens, timing.prompt_tokens) == (2, 7)
    assert timing.arrivals == [2.0, 5.0]
    assert timing.finish_reason == "length"


def test_events_read_at_once_are_one_arrival() -> None:
    timing = StreamTiming()
    timing.feed(sse(text_event("a"), text_event("b"), text_event("c")), 1.0)
    timing.feed(sse(text_event("d"), text_event("e")), 1.5)
    assert timing.arrivals == [1.0, 1.5]


def test_a_token_without_text_ends_with_the_finish_reason() -> None:
    timing = StreamTiming()
    timing.feed(sse(text_event("a")), 1.0)
    timing.feed(sse(text_event("", "stop")), 3.0)
    assert timing.last_at == 3.0
    assert timing.arrivals == [1.0]


@pytest.mark.parametrize(
    "choice",
    [
        {"text": "x"},
        {"delta": {"content": "x"}},
        {"delta": {"reasoning_content": "x"}},
        {"delta": {"reasoning": "x"}},
    ],
)
def test_text_of_every_kind_is_a_token(choice: dict[str, Any]) -> None:
    timing = StreamTiming()
    timing.feed(sse({"choices": [{"index": 0, **choice}]}), 1.0)
    assert timing.first_at == 1.0


def test_figures_of_the_engine_ride_on_the_closing_events() -> None:
    timing = StreamTiming()
    timing.feed(sse(text_event("a", "length")), 1.0)
    timing.feed(sse(usage_event(1) | {"timings": {"predicted_n": 1}}) + b"data: [DONE]\n\n", 2.0)
    assert timing.done
    assert timing.closing[-1]["timings"] == {"predicted_n": 1}


def test_an_error_in_the_stream_is_the_engines() -> None:
    with pytest.raises(EngineFault, match="out of memory"):
        StreamTiming().feed(sse({"error": {"message": "out of memory", "code": 500}}), 1.0)


@pytest.mark.parametrize("payload", [b"nonsense", b"[1]", b'"text"', b"[" * 100_000, b"\xff"])
def test_an_event_that_is_no_object_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        StreamTiming().feed(b"data: " + payload + b"\n\n", 1.0)


@pytest.mark.parametrize(
    "event",
    [
        {"choices": None},
        {"choices": [None]},
        {"choices": [{"delta": None}]},
        {"choices": [{"delta": {"content": 3}}]},
        {"usage": {"completion_tokens": True, "prompt_tokens": -1}},
        {"usage": "none"},
        {},
    ],
)
def test_odd_events_carry_no_token(event: dict[str, Any]) -> None:
    timing = StreamTiming()
    timing.feed(sse(event), 1.0)
    assert timing.first_at is None
    assert timing.output_tokens is None
    assert timing.prompt_tokens is None


def test_comments_and_line_ends_of_both_kinds() -> None:
    assert EventLines().feed(b": keep-alive\r\n\r\ndata: 1\r\n\r\nevent: x\ndata:2\n\n") == [b"1", b"2"]


def test_an_event_without_end_is_bounded() -> None:
    lines = EventLines()
    lines.feed(b"x" * 8 * 1024 * 1024)
    with pytest.raises(ProtocolError, match="bytes"):
        lines.feed(b"x")


@given(st.lists(st.integers(1, 400), max_size=30), st.integers(1, 12))
def test_where_the_body_is_cut_changes_nothing(cuts: list[int], tokens: int) -> None:
    body = sse(*chat_events(tokens)) + b"data: [DONE]\n\n"
    timing, place = StreamTiming(), 0
    for cut in [*cuts, len(body)]:
        timing.feed(body[place : place + cut], 1.0)
        place += cut
    timing.feed(body[place:], 1.0)
    assert (timing.output_tokens, timing.finish_reason, timing.done) == (tokens, "length", True)
