"""Answers that Envoy gives itself, as OpenAI error objects."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["direct_reply", "error_text", "local_replies"]


def error_text(status: int, message: str, code: str) -> str:
    """An OpenAI error object."""
    kind = "not_found_error" if status == 404 else "server_error" if status >= 500 else "invalid_request_error"
    return json.dumps({"error": {"message": message, "type": kind, "code": code}})


def direct_reply(status: int, text: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """The part of a route that answers with JSON at once."""
    fields = {"content-type": "application/json", **(headers or {})}
    return {
        "direct_response": {"status": status, "body": {"inline_string": text}},
        "response_headers_to_add": [
            {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
            for key, value in fields.items()
        ],
    }


_BY_FLAG = (
    ("UC", 502, "the engine broke the connection off", "protocol_error"),
    ("UPE", 502, "the engine's answer is not HTTP", "protocol_error"),
    ("UT", 504, "the engine did not answer in time", "upstream_timeout"),
    ("SI", 504, "nothing was sent for too long", "upstream_timeout"),
    ("UF", 503, "no replica could be reached", "no_replica"),
    ("UH", 503, "no replica is healthy", "no_replica"),
    ("NC", 503, "no replica has been found yet", "no_replica"),
    ("DO", 503, "every replica is at its cap of open requests", "at_capacity"),
    ("UDO", 503, "every replica is at its cap of open requests", "at_capacity"),
)
_BY_STATUS = (
    (400, "the request is not acceptable HTTP", "invalid_http"),
    (408, "the request was not finished in time", "request_timeout"),
    (413, "the request body is over the limit", "body_too_large"),
    (431, "the request's head is over the limit", "head_too_large"),
    (503, "no replica could serve the request", "no_replica"),
)


def local_replies() -> dict[str, Any]:
    """What becomes of Envoy's own one-line texts. Answers made by routes or the class filter are not touched."""
    mappers = [
        _mapper({"response_flag_filter": {"flags": [flag]}}, status, message, code)
        for flag, status, message, code in _BY_FLAG
    ]
    for status, message, code in _BY_STATUS:
        by_status = {
            "status_code_filter": {
                "comparison": {"op": "EQ", "value": {"default_value": status, "runtime_key": "adaptive_gamma.none"}}
            }
        }
        mappers.append(_mapper(by_status, status, message, code))
    return {"mappers": mappers}


def _mapper(chosen: dict[str, Any], status: int, message: str, code: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "filter": chosen,
        "status_code": status,
        "body_format_override": {"json_format": json.loads(error_text(status, message, code))},
    }
    if status == 503:
        found["headers_to_add"] = [{"header": {"key": "retry-after", "value": "1"}}]
    return found
