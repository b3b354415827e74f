"""Requests as bytes on the data port: cut anywhere they read alike, and no framing is taken that can be read twice."""

from __future__ import annotations

from dataclasses import dataclass, field

import h11
from hypothesis import strategies as st

from adaptive_gamma.proxy.headers import OWN_PREFIX, ClientHeaders, Pairs
from adaptive_gamma.proxy.intake import Intake
from adaptive_gamma.proxy.request_reader import RequestReader, Unreadable
from tests.fuzz.shapes import cut, edited_bytes
from tests.fuzz.target import Target
from tests.proxy.test_smuggling import EITHER, HEAD, REFUSED

__all__ = ["TARGETS"]

CLASS_HEADER = b"x-adaptive-gamma-class"
ONE_READ = 64 * 1024
"""The most that one read of a connection brings."""
HOP_BY_HOP = {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection"}
SEEDS = [
    *(HEAD + rest for rest in (*REFUSED.values(), *EITHER.values())),
    b"GET /v1/models?a=b HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}GET /v1/models HTTP/1.1\r\n"
    b"host: b\r\n\r\n",
    b"POST http://a/v1/x%2fy HTTP/1.0\r\ncontent-length: 0\r\nx-request-id: 1\r\n\r\n",
    b"POST /x HTTP/1.1\r\nhost: a\r\nconnection: upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n"
    b"content-length: 2\r\n\r\n{}",
    b"POST /x HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n"
    b"1;a=b\r\nx\r\n0\r\nt: u\r\n\r\n",
]
TOKENS = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b":",
    b" ",
    b"\t",
    b"\x00",
    b"\x0b",
    b"\xa0",
    b"\xe9",
    b"host: b\r\n",
    b"content-length: 2\r\n",
    b"Content-Length: 50\r\n",
    b"transfer-encoding: chunked\r\n",
    b"Transfer-Encoding: x\r\n",
    b"transfer-encoding:",
    b"content-length:",
    b"chunked",
    b", ",
    b"0\r\n\r\n",
    b"2\r\n{}\r\n",
    b"ffffffffffffffff\r\n",
    b"-1",
    b"+2",
    b"connection: content-length, transfer-encoding, host, x-y\r\n",
    b"connection: close\r\n",
    b"upgrade: h2c\r\n",
    b"x-adaptive-gamma-replica: r9\r\n",
    b"X-Adaptive-Gamma-Class: code\r\n",
    b"x-request-id: a\r\n",
    b"te: trailers\r\n",
    b"x_y: z\r\n",
    b"HTTP/1.0",
    b"HTTP/1.1",
    b"HTTP/0.9",
    b"GET ",
    b"CONNECT ",
    b"HEAD ",
    b"OPTIONS * ",
    b"http://h@h/",
    b"//h/",
    b"%0d%0a",
    b"?",
    b"#",
    b"a" * 70_000,
    b"x: y\r\n" * 300,
    b";ext=" + b"e" * 200,
]


@dataclass
class _Request:
    intake: Intake
    fields: Pairs
    body: bytearray = field(default_factory=bytearray)


class _Recorder:
    """Takes what is read as the data port's connections do."""

    def __init__(self) -> None:
        self.whole: list[_Request] = []
        self.open: _Request | None = None

    def on_request_begin(self) -> bool:
        return True

    def on_request_head(
        self, method: bytes, target: bytes, path: str, fields: Pairs, *, is_1_1: bool, keep_alive: bool
    ) -> None:
        client = ClientHeaders(fields, CLASS_HEADER, b"127.0.0.1", is_1_1)
        self.open = _Request(Intake(method, target, path, client, None), list(fields))

    def on_request_body(self, data: bytes) -> None:
        assert self.open is not None
        self.open.body += data

    def on_request_end(self) -> None:
        assert self.open is not None
        self.whole.append(self.open)
        self.open = None


def _read(pieces: list[bytes]) -> tuple[list[_Request], tuple[int, str, str] | None]:
    events = _Recorder()
    reader = RequestReader(events)
    refusal = None
    for piece in pieces:
        try:
            reader.feed(piece)
        except Unreadable as error:
            refusal = error.refusal
            break
    reader.close()
    return events.whole, refusal


def _told(requests: list[_Request]) -> list[tuple[bytes, bytes, Pairs, bytes]]:
    return [(each.intake.method, each.intake.target, each.fields, bytes(each.body)) for each in requests]


def check_request(example: tuple[bytes, list[bytes]]) -> None:
    raw, pieces = example
    requests, refusal = _read([raw[at : at + ONE_READ] for at in range(0, len(raw), ONE_READ)])
    again, refusal_again = _read(pieces)
    if len(raw) <= ONE_READ:
        # Of more, what the limit on bytes without progress sees depends on where the reads end: between one and two.
        assert _told(again) == _told(requests)
        assert (refusal is None) == (refusal_again is None)
    assert refusal is None or refusal[0] in (400, 431, 505)
    for request in requests:
        _one_framing(request)
        _one_request_for_the_engine(request)
    if requests:
        _as_h11_reads(raw, requests[0])


def _one_framing(request: _Request) -> None:
    lengths = [value for name, value in request.fields if name == b"content-length"]
    codings = [value for name, value in request.fields if name == b"transfer-encoding"]
    assert len(lengths) + len(codings) <= 1, request.fields
    if codings:
        assert codings[0].strip().lower() == b"chunked"
    elif lengths:
        assert len(request.body) == int(lengths[0]) == request.intake.client.content_length
    else:
        assert not request.body


def _parse(raw: bytes) -> tuple[h11.Request, bytes, bytes] | None:
    """The first request as another parser reads it: head, body, and what is left behind. None where it refuses."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(raw)
    head, body = None, b""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                return head, body, connection.trailing_data[0]
            else:
                return None
    except h11.RemoteProtocolError:
        return None


def _as_h11_reads(raw: bytes, request: _Request) -> None:
    """Where another parser takes the same bytes for a request, it is the same request."""
    other = _parse(raw)
    if other is None:
        return
    head, body, _ = other
    assert (head.method, body) == (request.intake.method, bytes(request.body))
    assert head.target.partition(b"#")[0].endswith(request.intake.target.removeprefix(b"/") or b"")


def _one_request_for_the_engine(request: _Request) -> None:
    """What goes to an engine is one request with the client's body, and nothing of ours comes from the client."""
    intake, body = request.intake, bytes(request.body)
    sent = intake.engine_head(b"engine:1", b"key", len(body)) + body
    other = _parse(sent)
    if other is None:
        # h11 knows fewer methods' bodies and no bytes beyond ASCII in names: then httptools must read it the same.
        events, refusal = _read([sent])
        assert refusal is None
        assert len(events) == 1
        assert bytes(events[0].body) == body
        names = [name for name, _ in events[0].fields]
    else:
        head, read, behind = other
        assert (head.method, head.target, read, behind) == (intake.method, intake.target, body, b"")
        names = [name for name, _ in head.headers]
        assert [value for name, value in head.headers if name == b"authorization"] == [b"Bearer key"]
    assert names.count(b"host") == names.count(b"x-request-id") == 1
    assert names.count(b"content-length") <= 1
    assert not HOP_BY_HOP.intersection(names)
    assert not any(name.startswith(OWN_PREFIX) for name in names)


@st.composite
def _cut_requests(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    raw = draw(edited_bytes(SEEDS, TOKENS, 4))
    return raw, draw(cut(raw)) if len(raw) < 5000 else [raw[at : at + 4096] for at in range(0, len(raw), 4096)]


TARGETS = [Target("http-request", _cut_requests(), check_request)]
