"""What a client is told that gets an answer of our own: an OpenAI error object."""

from __future__ import annotations

import json

from adaptive_gamma import errors

__all__ = ["MOST_ECHOED", "ErrorAnswer", "error_body", "shortened", "speaks_messages"]

MOST_ECHOED = 256
"""Characters of a client's own words that are kept or said back."""


def shortened(text: str) -> str:
    """At most 256 characters of what a client sent."""
    return errors.shortened(text, MOST_ECHOED)


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
