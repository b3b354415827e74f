"""Answers this proxy gives itself: OpenAI error objects with one Date and one Server."""

from __future__ import annotations

import time
from email.utils import formatdate
from http import HTTPStatus

from adaptive_gamma.routing.error_answer import MOST_ECHOED, ErrorAnswer, error_body, shortened, speaks_messages

__all__ = [
    "MOST_ECHOED",
    "STATUS_LINES",
    "ErrorAnswer",
    "error_body",
    "http_date",
    "own_headers",
    "raw_answer",
    "request_id_fields",
    "shortened",
    "speaks_messages",
]

SERVER = b"adaptive-gamma"

_date: tuple[int, bytes] = (0, b"")


def http_date() -> bytes:
    """Now, as a Date header; formatted once a second."""
    global _date
    now = int(time.time())
    if _date[0] != now:
        _date = (now, formatdate(now, usegmt=True).encode("ascii"))
    return _date[1]


def own_headers(content_type: bytes, length: int) -> list[tuple[bytes, bytes]]:
    """The headers of an answer of our own."""
    return [
        (b"content-type", content_type),
        (b"content-length", b"%d" % length),
        (b"date", http_date()),
        (b"server", SERVER),
    ]


def request_id_fields(request_id: bytes, path: str) -> list[tuple[bytes, bytes]]:
    """The fields that tell a client the id of its request."""
    fields = [(b"x-request-id", request_id)]
    return [*fields, (b"request-id", request_id)] if speaks_messages(path) else fields


class _StatusLines(dict[int, bytes]):
    """The first line of an answer by its status, made when it is first asked for."""

    def __missing__(self, status: int) -> bytes:
        try:
            phrase = HTTPStatus(status).phrase
        except ValueError:  # it has no name of its own
            phrase = ""
        line = self[status] = b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode("ascii"))
        return line


STATUS_LINES = _StatusLines()


def raw_answer(status: int, message: str, code: str) -> bytes:
    """A whole response with ``Connection: close``, for requests no application ever sees."""
    body = error_body(status, message, code)
    lines = [STATUS_LINES[status]]
    lines += [b"%b: %b\r\n" % header for header in own_headers(b"application/json", len(body))]
    lines += [b"connection: close\r\n\r\n", body]
    return b"".join(lines)
