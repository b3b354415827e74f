"""What an engine is asked to do with one request, and the bytes it must write for it.

A plan travels in a request header, so that the engine which gets the request carries out exactly what the client
expects. The body of an answer is a function of the plan and the request id alone: the client computes it for itself and
compares every byte. Each event of a stream also carries its number and the CRC-32 of all body bytes before it, so that
a capture of a stream can be checked without this module.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["DONE", "ENGINE_HEADER", "PLAN_HEADER", "RECEIVED_HEADER", "Ending", "Plan", "body_pieces", "received_mark"]

PLAN_HEADER = "x-soak-plan"
ENGINE_HEADER = "x-soak-engine"
"""In answers: ``engine.boot.exchange``, the exchange in the engine's journal that wrote it."""
RECEIVED_HEADER = "x-soak-received"
"""In answers: what the engine received as the body of the request, as ``received_mark`` writes it."""
DONE = b"data: [DONE]\n\n"

Ending = Literal[
    "whole",  # as it should
    "error_event",  # an error event in the stream, then [DONE], as vLLM does
    "reset",  # the connection is reset after ``at`` pieces
    "closed",  # the same with a FIN
    "short",  # Content-Length says more than comes before the FIN; JSON only, ``at`` is not used
    "silent",  # nothing more after ``at`` pieces, for good
    "no_head",  # the connection is closed in place of an answer
    "silent_head",  # nothing at all, for good
]

_WORDS = (
    "tokens", "naïve", "Ωmega", "日本語", "👩‍💻 pair", "tab\tbed", "two\u2028lines", "free", "Größe", "a\\b",
    '"quoted"', "ﬁn", "data: not an event", "\u0085next", "x" * 90, "",
)  # fmt: skip
_LINE_ENDS = (b"\n\n", b"\n\n", b"\n\n", b"\r\n\r\n")


@dataclass(frozen=True)
class Plan:
    """One answer. ``stream`` gives server-sent events, else one JSON body of about ``size`` bytes."""

    stream: bool = True
    events: int = 0
    """Events of a stream before its end marker."""
    pace_s: float = 0.0
    """Mean time between events, in seconds; 0 writes as fast as the reader takes it."""
    size: int = 200
    """Bytes of JSON, or of filler in each event beyond the words."""
    gzip: bool = False
    chunked: bool = True
    """Framing of a JSON answer; a stream is always chunked."""
    status: int = 200
    ending: Ending = "whole"
    at: int = 0
    head_delay_s: float = 0.0
    reject_on: tuple[int, ...] = ()
    """Engines (by index) that answer ``reject_status`` before they look at the request."""
    reject_status: int = 503
    early: bool = False
    """Answer when the head of the request is there, and read its body only afterwards."""

    def encode(self) -> str:
        """The header's value; defaults are left out."""
        default = Plan()
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return json.dumps({k: v for k, v in fields.items() if v != getattr(default, k)}, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Plan:
        """The plan in a header's value."""
        fields = json.loads(text)
        fields["reject_on"] = tuple(fields.get("reject_on", ()))
        return cls(**fields)

    @property
    def ends_cleanly(self) -> bool:
        """Whether an engine that lives through it writes a complete answer."""
        return self.ending in ("whole", "error_event")

    @property
    def rejection(self) -> Plan:
        """The answer of the engines in ``reject_on``."""
        return Plan(stream=False, status=self.reject_status, chunked=False)


def _event(request_id: str, number: int, crc: int, size: int) -> bytes:
    pick = zlib.crc32(b"%b %d" % (request_id.encode(), number))
    content = " ".join((_WORDS[pick & 15], _WORDS[pick >> 4 & 15], str(number)))
    if size:
        content += " " + f"{pick:08x}" * (size // 8)
    delta = {"index": 0, "delta": {"content": content}}
    body = {"id": request_id, "n": number, "crc": f"{crc:08x}", "choices": [delta]}
    text = json.dumps(body, ensure_ascii=bool(pick >> 8 & 1), separators=(",", ":"))
    comment = b": ping\n\n" if pick >> 9 & 31 == 0 else b""
    return comment + b"data: " + text.encode() + _LINE_ENDS[pick >> 14 & 3]


def _stream_pieces(plan: Plan, request_id: str) -> Iterator[bytes]:
    crc = 0
    for number in range(plan.events):
        piece = _event(request_id, number, crc, plan.size)
        crc = zlib.crc32(piece, crc)
        yield piece
    if plan.ending == "error_event":
        error = {"message": "the engine met a fault", "type": "InternalServerError", "param": None, "code": 500}
        yield b"data: " + json.dumps({"error": error}).encode() + b"\n\n"
    yield DONE


def _json_body(plan: Plan, request_id: str) -> bytes:
    mark = f"{zlib.crc32(request_id.encode()):08x}"
    if plan.status >= 400:
        kind = "server_error" if plan.status >= 500 else "invalid_request_error"
        error = {"message": f"as planned for {request_id}", "type": kind, "code": plan.status, "mark": mark}
        return json.dumps({"error": error}).encode()
    text = mark * max(plan.size // 8, 1)
    return json.dumps({"id": request_id, "object": "chat.completion", "choices": [{"index": 0, "text": text}]}).encode()


def body_pieces(plan: Plan, request_id: str) -> Iterator[bytes]:
    """The body, in the pieces an engine writes that carries the plan out to its end."""
    if plan.stream:
        yield from _stream_pieces(plan, request_id)
        return
    body = _json_body(plan, request_id)
    if plan.gzip:
        body = gzip.compress(body, 1, mtime=0)
    for start in range(0, len(body), 65536):
        yield body[start : start + 65536]


def received_mark(length: int, crc: int) -> str:
    """Length and CRC-32 of a request's body."""
    return f"{length}-{crc:08x}"
