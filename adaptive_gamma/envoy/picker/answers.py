"""What the picker says to a gateway, as bytes. Most answers repeat, so that they are made once and kept."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from adaptive_gamma.envoy.picker.wire import ProcessingResponse
from adaptive_gamma.routing import Pool
from adaptive_gamma.routing.error_answer import ErrorAnswer, error_body

__all__ = [
    "CONTINUE_HEADERS",
    "DESTINATION",
    "DESTINATION_NAMESPACE",
    "OWN_NAMESPACE",
    "PASS",
    "Pick",
    "echoed_body",
    "picked_at_body",
    "picked_at_headers",
    "refusal",
    "told_client",
]

DESTINATION = "x-gateway-destination-endpoint"
"""The header, and the key in the metadata, that name the endpoint a request goes to."""
DESTINATION_NAMESPACE = "envoy.lb"
OWN_NAMESPACE = "adaptive_gamma"
"""Metadata that says what was decided, for routes and access logs."""
OWN_PREFIX = "x-adaptive-gamma-"

_OVERWRITE = 2
"""``OVERWRITE_IF_EXISTS_OR_ADD``: what a client sent under the name is gone."""
_CHUNK = 62_000
"""Bytes of body in one message; gateways refuse chunks from 64 KiB on."""


class Pick(NamedTuple):
    """Where a request goes and why."""

    destination: str
    """``ip:port``, and after commas those to try next."""
    replica: str
    request_class: str
    reason: str
    pool: Pool
    gamma: int | None


def _put(mutation: Any, name: str, value: bytes) -> None:
    option = mutation.set_headers.add()
    option.header.key, option.header.raw_value, option.append_action = name, value, _OVERWRITE


def _shown(pick: Pick) -> dict[str, str]:
    shown = {"replica": pick.replica, "class": pick.request_class, "reason": pick.reason, "pool": pick.pool}
    if pick.gamma is not None:
        shown["gamma"] = str(pick.gamma)
    return shown


def _choose(common: Any, response: Any, pick: Pick, removed: Iterable[str], authorization: bytes | None) -> None:
    common.clear_route_cache = True
    mutation = common.header_mutation
    _put(mutation, DESTINATION, pick.destination.encode("ascii"))
    if authorization is not None:
        _put(mutation, "authorization", authorization)
    mutation.remove_headers.extend(removed)
    metadata = response.dynamic_metadata.fields
    metadata[DESTINATION_NAMESPACE].struct_value.fields[DESTINATION].string_value = pick.destination
    own = metadata[OWN_NAMESPACE].struct_value.fields
    for name, value in _shown(pick).items():
        own[name].string_value = value


@lru_cache(maxsize=4096)
def picked_at_headers(pick: Pick, removed: tuple[str, ...], authorization: bytes | None) -> bytes:
    """The answer to a request's headers that says where it goes.

    Args:
        pick: where.
        removed: headers of the client's that the engine must not see.
        authorization: sent to the engine in place of the client's.
    """
    response = ProcessingResponse()
    _choose(response.request_headers.response, response, pick, removed, authorization)
    made: bytes = response.SerializeToString()
    return made


@lru_cache(maxsize=4096)
def picked_at_body(pick: Pick, removed: tuple[str, ...], authorization: bytes | None) -> bytes:
    """The same as the answer to a whole body, where the gateway had to be answered on the headers before."""
    response = ProcessingResponse()
    _choose(response.request_body.response, response, pick, removed, authorization)
    made: bytes = response.SerializeToString()
    return made


@lru_cache(maxsize=1024)
def told_client(pick: Pick | None) -> bytes:
    """The answer to a response's headers: what was decided goes to the client."""
    response = ProcessingResponse()
    common = response.response_headers.response
    if pick is None:
        common.SetInParent()
    else:
        for name, value in _shown(pick).items():
            _put(common.header_mutation, OWN_PREFIX + name, value.encode("latin-1", "replace"))
    made: bytes = response.SerializeToString()
    return made


def echoed_body(kind: str, body: bytes, *, end_of_stream: bool) -> list[bytes]:
    """A part of a body handed back as it came, in messages of a size that gateways take.

    ``kind`` is ``request_body`` or ``response_body``.
    """
    pieces = [body[start : start + _CHUNK] for start in range(0, len(body), _CHUNK)] or [b""]
    made = []
    for index, piece in enumerate(pieces):
        response = ProcessingResponse()
        streamed = getattr(response, kind).response.body_mutation.streamed_response
        streamed.body = piece
        streamed.end_of_stream = end_of_stream and index == len(pieces) - 1
        made.append(response.SerializeToString())
    return made


def _empty(kind: str) -> bytes:
    response = ProcessingResponse()
    part = getattr(response, kind)
    if kind.endswith("trailers"):
        part.SetInParent()
    else:
        part.response.SetInParent()
    made: bytes = response.SerializeToString()
    return made


PASS = {
    kind: _empty(kind)
    for kind in (
        "request_headers",
        "request_body",
        "request_trailers",
        "response_headers",
        "response_body",
        "response_trailers",
    )
}
"""The answers that change nothing."""
CONTINUE_HEADERS = PASS["request_headers"]


def refusal(error: ErrorAnswer, path: str) -> bytes:
    """An answer of ours that the gateway gives in place of an engine's."""
    response = ProcessingResponse()
    immediate = response.immediate_response
    immediate.status.code = error.status
    immediate.body = error_body(error.status, error.message, error.code, path)
    immediate.details = f"adaptive_gamma_{error.code}"
    _put(immediate.headers, "content-type", b"application/json")
    for name, value in error.headers:
        _put(immediate.headers, name.decode("ascii"), value)
    made: bytes = response.SerializeToString()
    return made
