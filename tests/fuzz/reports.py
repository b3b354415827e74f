"""What engines answer: reports on drafts of any JSON, and streams whose end is read alike wherever they are cut."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from adaptive_gamma.engines import DIALECTS, LARGEST_GAMMA, Dialect, RequestAcceptance, StreamAsk
from adaptive_gamma.engines.llamacpp import drafting_of
from adaptive_gamma.proxy.added_events import EventRemover
from adaptive_gamma.proxy.asking import ReportLog
from adaptive_gamma.proxy.learning import ResponseTap
from tests.fuzz.shapes import altered, cut
from tests.fuzz.target import Target

__all__ = ["TARGETS"]

_asked = DIALECTS["vllm"].stream_ask
assert _asked is not None
ASK: StreamAsk = _asked
REPORT = {
    "num_spec_steps": 3,
    "num_draft_tokens": 9,
    "num_accepted_draft_tokens": 4,
    "num_speculative_tokens": 3,
    "acceptance_histogram": [1, 1, 0, 1],
    "per_step_drafted": [3, 3, 3],
    "per_step_accepted": [0, 1, 3],
}
ANSWERS: list[dict[str, Any]] = [
    {"id": "a", "choices": [{"index": 0, "text": "x"}], "metrics": {"speculative_decoding": REPORT}},
    {"id": "a", "choices": [], "usage": {"completion_tokens": 7}, "metrics": {"speculative_decoding": REPORT}},
    {"choices": [{"text": "x"}], "timings": {"predicted_n": 40, "draft_n": 30, "draft_n_accepted": 20}},
    {
        "choices": [{"meta_info": {"spec_accept_token_num": 8, "spec_draft_token_num": 12, "spec_verify_ct": 4}}],
        "meta_info": {
            "spec_accept_token_num": 8,
            "spec_draft_token_num": 12,
            "spec_verify_ct": 4,
            "completion_tokens": 12,
            "spec_accept_histogram": [1, 1, 0, 2],
            "spec_accept_rate": 0.66,
            "spec_accept_length": 3.0,
        },
    },
]


def check_answer(body: Any) -> None:
    """No answer raises, and what is believed of one adds up."""
    if not isinstance(body, dict):
        return
    for dialect in DIALECTS.values():
        gamma = dialect.gamma_from_response(body)
        assert gamma is None or 0 < gamma <= LARGEST_GAMMA
        if (seen := dialect.acceptance_from_response(body)) is not None:
            _adds_up(seen)
    drafting = drafting_of(body)
    assert drafting is None or (drafting.steps > 0 and drafting.draft_tokens >= 0)


def _adds_up(seen: RequestAcceptance) -> None:
    assert 0 <= seen.accepted_tokens <= seen.draft_tokens
    assert seen.draft_tokens > 0
    assert seen.drafts is None or 0 < seen.drafts <= seen.draft_tokens
    assert seen.gamma is None or 0 < seen.gamma <= LARGEST_GAMMA
    if seen.histogram is not None:
        assert sum(seen.histogram) == seen.drafts
        assert all(count >= 0 for count in seen.histogram)
    counts = seen.position_counts()
    if counts is not None:
        assert all(0 <= accepted <= tried for accepted, tried in counts)
        assert all(later <= earlier for (earlier, _), (_, later) in pairwise(counts))
    assert all(math.isfinite(value) for pair in counts or () for value in pair)


class _Replica:
    name = "r0"

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect


class _Listener:
    """In the place of the fleet: notes what it is told."""

    def __init__(self, dialect: Dialect) -> None:
        self.told: list[Any] = []
        self._replica = _Replica(dialect)

    def by_name(self, name: str) -> _Replica:
        return self._replica

    def note_response(self, name: str, body: Mapping[str, object]) -> None:
        self.told.append(("response", json.dumps(body, sort_keys=True)))

    def note_acceptance(self, name: str, request_class: str, seen: RequestAcceptance) -> None:
        self.told.append((request_class, seen))


def _through(dialect: Dialect, pieces: Sequence[bytes], added: StreamAsk | None) -> tuple[bytes, list[Any]]:
    fleet = _Listener(dialect)
    tap = ResponseTap(fleet, "r0", stream=True, request_class="chat", log=ReportLog(), added=added)  # type: ignore[arg-type]  # of the fleet it uses these three
    passed = b"".join(b"".join(tap.feed([piece])) for piece in pieces)
    return passed + tap.finish(), fleet.told


def check_cuts(example: tuple[str, bytes, list[bytes]]) -> None:
    """Cut in any way, a stream passes with the same bytes and tells the same."""
    name, stream, pieces = example
    dialect = DIALECTS[name]
    assert b"".join(pieces) == stream
    for added in (None, ASK) if name == "vllm" else (None,):
        passed, told = _through(dialect, [stream] if stream else [], added)
        assert _through(dialect, pieces, added) == (passed, told)
        if added is None:
            assert passed == stream


_LINE_ENDS = re.compile(rb"\r\n|\r|\n")


def _without_added(events: Sequence[bytes]) -> list[bytes]:
    kept = []
    for event in events:
        data = b"\n".join(line[5:].removeprefix(b" ") for line in _LINE_ENDS.split(event) if line.startswith(b"data:"))
        try:
            value = json.loads(data)
        except ValueError:
            value = None
        if not (ASK.mark in event and isinstance(value, dict) and ASK.is_added(value)):
            kept.append(event)
    return kept


def check_removal(example: tuple[list[bytes], list[bytes]]) -> None:
    """Of a stream of whole events exactly those that were asked for are gone."""
    events, pieces = example
    remover = EventRemover(ASK)
    passed = b"".join(b"".join(remover.feed([piece])) for piece in pieces) + remover.finish()
    assert passed == b"".join(_without_added(events))


def _event(answer: Any, end: bytes) -> bytes:
    return b"data: " + json.dumps(answer).encode() + end + end


_ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
_odd_events = st.sampled_from(
    [
        b": ping\n\n",
        b"\n",
        b"\r\n",
        b"\r",
        b"data: [DONE]\n\n",
        b"data:{}\n\n",
        b"event: x\ndata: 1\n\n",
        b"id: 1\n",
        b"data: {",
    ]
)


@st.composite
def _streams(draw: st.DrawFn) -> tuple[str, bytes, list[bytes]]:
    parts = []
    for _ in range(draw(st.integers(0, 6))):
        how = draw(st.integers(0, 3))
        if how == 0:
            parts.append(draw(_odd_events))
        elif how == 1:
            parts.append(draw(st.binary(max_size=12)))
        else:
            parts.append(_event(draw(altered(ANSWERS, 2)), draw(_ends)))
    stream = b"".join(parts)[:8000]
    return draw(st.sampled_from(sorted(DIALECTS))), stream, draw(cut(stream))


@st.composite
def _whole_events(draw: st.DrawFn) -> tuple[list[bytes], list[bytes]]:
    end = draw(st.sampled_from([b"\n", b"\r\n"]))
    usage = {"id": "a", "choices": [], "usage": {"completion_tokens": 7}}
    odd = st.builds(
        lambda text: b"data: " + text.encode() + end + end, st.sampled_from(["[DONE]", "{}", "1", '"choices"'])
    )
    events = draw(
        st.lists(
            st.sampled_from([*ANSWERS, usage]).map(lambda answer: _event(answer, end))
            | odd
            | st.sampled_from([b": ping" + end + end, b"event: x" + end + b"data: {}" + end + end]),
            max_size=7,
        )
    )
    return events, draw(cut(b"".join(events)))


TARGETS = [
    Target("reports", altered(ANSWERS, 5), check_answer),
    Target("stream-cuts", _streams(), check_cuts),
    Target("stream-removal", _whole_events(), check_removal),
]
