"""Answers this proxy gives itself: OpenAI error objects with one Date and one Server."""

from __future__ import annotations

import json
import time
from email.utils import formatdate
from http import HTTPStatus

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
MOST_ECHOED = 256
"""Characters of a client's own words that are kept or said back."""

_date: tuple[int, bytes] = (0, b"")


def shortened(text: str) -> str:
    """At most 256 characters of what a client sent."""
    return text if len(text) <= MOST_ECHOED else text[: MOST_ECHOED - 3] + "..."


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


_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_MESSAGES_TYPES = {**_TYPES, 413: "request_too_large", 503: "overloaded_error", 504: "timeout_error"}


def speaks_messages(path: str) -> bool:
    """Whether a path is of Anthropic's Messages API, whose clients look for an error's kind and a request's id in
    other places than OpenAI's."""
    return path.startswith("/v1/messages")


def error_body(status: int, message: str, code: str, path: str = "") -> bytes:
    """An OpenAI error object; on the Messages API's paths it is one of that API as well."""
    if speaks_messages(path):
        kind = _MESSAGES_TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")
        return json.dumps({"type": "error", "error": {"type": kind, "message": message, "code": code}}).encode("utf-8")
    kind = _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
    return json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode("utf-8")


def request_id_fields(request_id: bytes, path: str) -> list[tuple[bytes, bytes]]:
    """The fields that tell a client the id of its request."""
    fields = [(b"x-request-id", request_id)]
    return [*fields, (b"request-id", request_id)] if speaks_messages(path) else fields


class ErrorAnswer(Exception):
    """An answer that ends a request before an engine's answer has begun; raised inside the data path only."""

    def __init__(
        self, status: int, message: str, code: str, *, outcome: str, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        self.status = status
        self.message = message
        self.code = code
        self.outcome = outcome
        """The ``outcome`` label of ``adaptive_gamma_requests_total``."""
        self.headers = headers
        super().__init__(message)


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
