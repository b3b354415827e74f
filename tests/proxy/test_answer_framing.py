"""How an answer is told from what follows it, for every kind of client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.proxy.answer_framing import AnswerFraming
from adaptive_gamma.proxy.headers import passed_to_client

LENGTH = [(b"content-length", b"5")]
DATE = (b"date", b"today")


def _head(
    framing: AnswerFraming, status: int, fields: list[tuple[bytes, bytes]], keep_alive: bool = True
) -> list[bytes]:
    lines, has_length = passed_to_client([*fields, DATE], status)
    head = framing.head(status, [*lines, b"x-own: 1\r\n"], has_length=has_length, keep_alive=keep_alive)
    assert head.endswith(b"\r\n\r\n")
    return [line for line in head[:-4].split(b"\r\n") if line != b"date: today"]


def test_with_a_length() -> None:
    framing = AnswerFraming(head_only=False, knows_chunks=True)
    assert _head(framing, 200, LENGTH) == [b"HTTP/1.1 200 OK", b"content-length: 5", b"x-own: 1"]
    assert framing.body([b"he", b"llo"]) == b"hello"
    assert framing.end == b""


def test_chunked() -> None:
    framing = AnswerFraming(head_only=False, knows_chunks=True)
    assert _head(framing, 200, [])[-1] == b"transfer-encoding: chunked"
    assert framing.body([b"a" * 16]) == b"10\r\n" + b"a" * 16 + b"\r\n"
    assert framing.body([b"a", b"bc"]) == b"1\r\na\r\n2\r\nbc\r\n"
    assert framing.end == b"0\r\n\r\n"


def test_client_that_knows_no_chunks() -> None:
    framing = AnswerFraming(head_only=False, knows_chunks=False)
    assert _head(framing, 200, [])[-1] == b"connection: close"
    assert framing.until_close
    assert framing.body([b"a", b"bc"]) == b"abc"
    assert framing.end == b""


@pytest.mark.parametrize("knows_chunks", [True, False])
@pytest.mark.parametrize(("status", "head_only"), [(204, False), (304, False), (200, True)])
def test_without_a_body(status: int, head_only: bool, knows_chunks: bool) -> None:
    framing = AnswerFraming(head_only=head_only, knows_chunks=knows_chunks)
    lines = _head(framing, status, LENGTH)
    assert (b"content-length: 5" in lines) == (status != 204)
    assert not any(line.startswith((b"transfer-encoding", b"connection")) for line in lines)
    assert framing.end == b""


def test_the_last_answer_says_so() -> None:
    framing = AnswerFraming(head_only=False, knows_chunks=True)
    assert _head(framing, 200, LENGTH, keep_alive=False)[-1] == b"connection: close"


def test_status_without_a_name() -> None:
    framing = AnswerFraming(head_only=False, knows_chunks=True)
    assert _head(framing, 599, LENGTH)[0] == b"HTTP/1.1 599 "


@given(st.lists(st.lists(st.binary(min_size=1), min_size=1), max_size=20))
def test_chunks_can_be_read_back(reads: list[list[bytes]]) -> None:
    framing = AnswerFraming(head_only=False, knows_chunks=True)
    framing.head(200, [], has_length=False, keep_alive=True)
    wire = b"".join(framing.body(pieces) for pieces in reads) + framing.end
    chunks = []
    while True:
        size, _, wire = wire.partition(b"\r\n")
        if not int(size, 16):
            break
        chunks.append(wire[: int(size, 16)])
        assert wire[len(chunks[-1]) :].startswith(b"\r\n")
        wire = wire[len(chunks[-1]) + 2 :]
    assert wire == b"\r\n"
    assert chunks == [piece for pieces in reads for piece in pieces]
