"""Bytes that no gateway sends, on a socket of their own: the picker stays up, and answers the next gateway."""

from __future__ import annotations

import asyncio
import contextlib
import struct

import pytest

from adaptive_gamma.envoy.picker.wire import EXT_PROC_SERVICE
from tests.support.gated_engine import DEADLINE_S, until
from tests.support.gateway import CODE, RunningPicker, busy_engine, picked, running_picker

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """An HTTP/2 frame (RFC 9113, section 4.1)."""
    return struct.pack("!I", len(payload))[1:] + bytes((kind, flags)) + struct.pack("!I", stream) + payload


def field(name: bytes, value: bytes) -> bytes:
    """A header field, literal and without an index (RFC 7541, section 6.2.2)."""
    return b"\x00" + _text(name) + _text(value)


def _text(text: bytes) -> bytes:
    length = len(text)
    if length < 127:
        return bytes((length,)) + text
    rest, coded = length - 127, b"\x7f"
    while rest >= 128:
        coded += bytes((rest % 128 + 128,))
        rest //= 128
    return coded + bytes((rest,)) + text


CALL = b"".join(
    field(name, value)
    for name, value in (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", f"/{EXT_PROC_SERVICE}/Process".encode()),
        (b":authority", b"a"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    )
)
BEGIN = PREFACE + frame(SETTINGS, 0, 0, b"")
OPEN = BEGIN + frame(HEADERS, END_HEADERS, 1, CALL)


def message(body: bytes, *, length: int | None = None) -> bytes:
    """A gRPC message, with its own or another length before it."""
    return b"\x00" + struct.pack("!I", len(body) if length is None else length) + body


def data(body: bytes, *, end: bool = False) -> bytes:
    return frame(DATA, END_STREAM if end else 0, 1, body)


A_BODY_FIRST = b"\x1a\x05\x0a\x01x\x10\x01"
"""ProcessingRequest.request_body {body: "x", end_of_stream: true}, without request_headers before it."""

ODD = {
    "no HTTP at all": b"\x00\xff" * 20_000,
    "HTTP/1.1": b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "half a preface": PREFACE[:10],
    "garbage after the preface": PREFACE + b"\xa5" * 20_000,
    "data without a call": BEGIN + data(message(b"x")),
    "a call that is none": BEGIN + frame(HEADERS, END_HEADERS, 1, b"\xff" * 200),
    "a call without a path": BEGIN + frame(HEADERS, END_HEADERS, 1, field(b":method", b"POST")),
    "another method": BEGIN + frame(HEADERS, END_HEADERS, 1, CALL.replace(b"/Process", b"/Prosecc")),
    "garbage for a message": OPEN + data(message(b"\xff" * 500), end=True),
    "a message cut short": OPEN + data(message(b"\x0a\x05ab", length=4000), end=True),
    "a message said to be of 4 GiB": OPEN + data(message(b"x", length=2**32 - 1)),
    "a compressed message without a coding": OPEN + data(b"\x01" + message(b"x")[1:], end=True),
    "an empty message": OPEN + data(message(b""), end=True),
    "no message": OPEN + data(b"", end=True),
    "a body without headers": OPEN + data(message(A_BODY_FIRST), end=True),
    "a body without headers, and no end": OPEN + data(message(A_BODY_FIRST)),
    "headers of 1 MB": BEGIN
    + frame(HEADERS, 0, 1, CALL + field(b"x-large", b"x" * 10_000))
    + b"".join(frame(CONTINUATION, 0, 1, field(b"x-large", b"x" * 10_000)) for _ in range(100))
    + frame(CONTINUATION, END_HEADERS, 1, field(b"x-last", b"x")),
    "a header block that never ends": BEGIN
    + frame(HEADERS, 0, 1, CALL)
    + b"".join(frame(CONTINUATION, 0, 1, b"") for _ in range(20_000)),
    "a frame larger than allowed": BEGIN + frame(DATA, 0, 1, b"x" * 100_000),
    "a window that overflows": OPEN + frame(WINDOW_UPDATE, 0, 0, struct.pack("!I", 2**31 - 1)) * 3,
}


async def _send(run: RunningPicker, sent: bytes, *, leave: bool) -> None:
    """Send what is taken of it, and wait for the picker's last word, or leave."""
    reader, writer = await asyncio.open_connection("127.0.0.1", run.server.port)
    with contextlib.suppress(OSError):  # refused in the middle of it
        writer.write(sent)
        await writer.drain()
        if not leave:
            writer.write_eof()
            async with asyncio.timeout(DEADLINE_S):
                while await reader.read(65_536):
                    continue
    writer.transport.abort()


async def _answers_as_ever(run: RunningPicker) -> None:
    assert picked(await run.gateway.ask(CODE)).endpoint.startswith(run.endpoints[0])
    await until(lambda: run.picker.open_streams == 0, "nothing is left open")


@pytest.mark.parametrize("leave", [False, True], ids=["ends", "leaves"])
@pytest.mark.parametrize("name", ODD)
async def test_odd_bytes_harm_nobody_else(name: str, leave: bool) -> None:
    async with busy_engine() as spec, busy_engine() as plain, running_picker([spec, plain], [2, 0]) as run:
        await _send(run, ODD[name], leave=leave)
        await _answers_as_ever(run)


@pytest.mark.parametrize(
    "small",
    [data(b""), data(message(b"")), frame(PING, 0, 0, b"12345678"), frame(SETTINGS, 0, 0, b"")],
    ids=["empty data", "empty messages", "pings", "settings"],
)
async def test_endless_small_frames_hold_up_nobody_else(small: bytes) -> None:
    async with busy_engine() as spec, busy_engine() as plain, running_picker([spec, plain], [2, 0]) as run:
        _, writer = await asyncio.open_connection("127.0.0.1", run.server.port)
        writer.write(OPEN)

        async def flood() -> None:
            with contextlib.suppress(OSError):
                while True:
                    writer.write(small * 500)
                    await writer.drain()
                    await asyncio.sleep(0)

        flooding = asyncio.create_task(flood())
        for _ in range(5):
            assert set(picked(await run.gateway.ask(CODE)).endpoint.split(",")) == set(run.endpoints)
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
        writer.transport.abort()
        await until(lambda: run.picker.open_streams == 0, "nothing is left open")
