"""The event that was asked for in the client's place is taken out, and nothing else moves, wherever a stream is cut."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adaptive_gamma.engines import StreamAsk, dialect_for
from adaptive_gamma.proxy.added_events import EventRemover


def ask_of(engine: str) -> StreamAsk:
    ask = dialect_for(engine).stream_ask
    assert ask is not None
    return ask


ASK = ask_of("vllm")
USAGE = b'{"id":"c","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2},"metrics":{"a":[1,2]}}'
CONTENT = b'{"id":"c","choices":[{"delta":{"content":"a \\"usage\\" \\"choices\\":[] \xc3\xa9"}}]}'
ODD = [
    b'{"choices":[],"note":"\\"usage\\":{}"}',
    b'{"choices":[],"usage":null}',
    b'{"choices":[{}],"usage":{"n":1}}',
    b'{"usage":{"n":1}}',
    b'{"choices":[],"usage":{"n":1}',
    b'"usage"',
    b"[DONE]",
    b"",
    b"\xff\xfe",
]

ends = st.sampled_from([b"\n", b"\r\n", b"\r"])


@st.composite
def events(draw: st.DrawFn) -> tuple[bytes, bool]:
    """The bytes of an event, or of lines between events, and whether it is one that was added."""
    end = draw(ends)
    kind = draw(st.sampled_from(["content", "usage", "usage", "split", "comment", "done", "odd", "empty"]))
    if kind == "comment":
        return b": " + draw(st.sampled_from([b"ping", b'{"choices":[],"usage":{}}', b""])) + end, False
    if kind == "empty":
        return end, False
    space = draw(st.sampled_from([b" ", b""]))
    if kind == "usage":
        lines = [*draw(st.sampled_from([[], [b"event: message"], [b"id: 7"]])), b"data:" + space + USAGE]
    elif kind == "split":
        lines = [b'data: {"choices":[],', b'data:  "usage":{"n":1}}']
    else:
        data = {"content": CONTENT, "done": b"[DONE]"}.get(kind) or draw(st.sampled_from(ODD))
        lines = [b"data:" + space + data]
    return end.join(lines) + end + end, kind in ("usage", "split")


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[bytes], bytes]:
    """A stream in pieces, and what of it the client should see."""
    made: list[tuple[bytes, bool]] = []
    for event in draw(st.lists(events(), max_size=7)):
        if made and made[-1][0].endswith(b"\r") and event[0].startswith(b"\n"):
            continue  # the two would be one end of a line
        made.append(event)
    raw = b"".join(event for event, _ in made)
    cuts = sorted(draw(st.sets(st.integers(0, len(raw)), max_size=12))) if not draw(st.booleans()) else range(len(raw))
    edges = [0, *cuts, len(raw)]
    return [raw[a:b] for a, b in pairwise(edges)], b"".join(event for event, added in made if not added)


@given(streams(), st.integers(1, 4))
@example(([b"data: " + USAGE + b"\r\n\r", b"\ndata: [DONE]\r\n\r\n"], b"data: [DONE]\r\n\r\n"), 1)
@example(([b": ping\r", b"\ndata: " + USAGE + b"\n\n"], b": ping\r\n"), 1)
def test_only_the_added_events_are_missing(stream: tuple[list[bytes], bytes], together: int) -> None:
    pieces, wanted = stream
    remover = EventRemover(ASK)
    out: list[bytes] = []
    for first in range(0, len(pieces), together):
        out += remover.feed(pieces[first : first + together])
    assert b"".join(out) + remover.finish() == wanted
    assert all(out)


@given(streams())
def test_nothing_waits_but_an_event_that_may_be_the_one(stream: tuple[list[bytes], bytes]) -> None:
    pieces, _ = stream
    remover = EventRemover(ASK)
    given_out = taken_in = b""
    for piece in pieces:
        taken_in += piece
        given_out += b"".join(remover.feed([piece]))
        behind = bytes(remover._held)
        assert taken_in.endswith(behind)
        # What waits has not ended, unless in a CR that may be half of a CR LF, and holds no content.
        assert b"\n\n" not in behind
        assert b'"choices":[{' not in behind


def test_pieces_keep_their_edges() -> None:
    remover = EventRemover(ASK)
    event = b"data: " + CONTENT + b"\n\n"
    assert remover.feed([event]) == [event]
    assert remover.feed([event[:10]]) == []
    assert remover.feed([event[10:40]]) == [event[:10], event[10:40]], "known by now not to be the one"
    assert remover.feed([event[40:] + event, event + event[:5]]) == [event[40:] + event, event]
    assert remover.feed([event[5:] + b"data: " + USAGE + b"\n\ndata: [DONE]\n\n"]) == [
        event[:5],
        event[5:],
        b"data: [DONE]\n\n",
    ]
    assert (remover.removed, remover.finish()) == (1, b"")


def test_a_piece_of_whole_events_is_passed_on_as_it_is() -> None:
    remover = EventRemover(ASK)
    pieces = [b"data: " + CONTENT + b"\n\n"]
    assert remover.feed(pieces) is pieces


def test_a_keep_alive_does_not_wait_for_the_next_event() -> None:
    remover = EventRemover(ASK)
    assert remover.feed([b": keep-alive\n"]) == [b": keep-alive\n"]
    assert remover.feed([b"\n"]) == [b"\n"]
    assert remover.feed([b":\r\n"]) == [b":\r\n"]


@pytest.mark.parametrize(
    ("rest", "passed_on"),
    [
        (b"data: " + USAGE, b""),
        (b"data: " + USAGE + b"\n", b""),
        (b"data: " + USAGE[:60], b""),
        (b"data: [DONE]", b"data: [DONE]"),
        (b"data: [DO", b"data: [DO"),
        (b'data: {"id":"c","cho', b'data: {"id":"c","cho'),
    ],
)
def test_a_stream_that_ends_inside_an_event(rest: bytes, passed_on: bytes) -> None:
    remover = EventRemover(ASK)
    out = remover.feed([b"data: " + CONTENT + b"\n\n" + rest])
    assert b"".join(out) + remover.finish() == b"data: " + CONTENT + b"\n\n" + passed_on


def test_an_event_without_end_is_not_kept_for_ever() -> None:
    remover = EventRemover(ASK)
    out, fed = [], 0
    for _ in range(100):
        out += remover.feed([b"data: " + b"x" * 8186])
        fed += 8192
        assert len(remover._held) <= 256 * 1024
    assert sum(map(len, out)) == fed
    assert b"".join(remover.feed([b"\n\ndata: " + USAGE + b"\n\nok"])) == b"\n\n"
    assert remover.finish() == b"ok"


def test_a_long_report_is_found_and_removed() -> None:
    steps = list(range(16_000))
    event = b'data: {"choices":[],"usage":{"n":1},"metrics":' + json.dumps(steps).encode() + b"}\n\n"
    remover = EventRemover(ASK)
    out = []
    for first in range(0, len(event), 1000):
        out += remover.feed([event[first : first + 1000]])
    assert out == []
    assert (remover.removed, remover.finish()) == (1, b"")


def test_what_is_added_for_another_engine() -> None:
    remover = EventRemover(ask_of("sglang"))
    details = b'data: {"choices":[],"sglext":{"spec_tokens_details":{"spec_verify_ct":2}},"usage":null}\n\n'
    asked_for = b'data: {"choices":[],"sglext":{"routed_experts":"AA=="}}\n\n'
    usage = b"data: " + USAGE + b"\n\n"
    assert b"".join(remover.feed([asked_for + details + usage])) == asked_for + usage
