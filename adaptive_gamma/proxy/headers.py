"""Which header fields pass, in both directions. Names are lower-case bytes, repeated fields stay in order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from random import getrandbits
from typing import NamedTuple

__all__ = [
    "OWN_PREFIX",
    "ClientHeaders",
    "Pairs",
    "engine_headers",
    "own_lines",
    "passed_to_client",
    "read_client_headers",
]

OWN_PREFIX = b"x-adaptive-gamma-"

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# Set anew for the engine, or read here.
_REWRITTEN = _HOP_BY_HOP | {b"host", b"content-length", b"expect", b"http2-settings", b"x-request-id"}
_CREDENTIALS = (b"authorization", b"x-api-key")
_NOT_PASSED_BACK = _HOP_BY_HOP | {b"x-request-id"}
_FORWARDED_FOR = b"x-forwarded-for"
# The others pass as they are, but for what begins with "x-".
_LOOKED_AT = _REWRITTEN | {b"authorization", b"content-encoding"}
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")

Pairs = list[tuple[bytes, bytes]]


class ClientHeaders(NamedTuple):
    """What a client's header section said."""

    passed: Pairs
    """Fields for the engine, without Host, framing, credentials and X-Request-Id."""
    credentials: Pairs
    request_id: bytes
    """The client's own when it is harmless, else a new one."""
    request_class: str | None
    """Value of the class header, where one is trusted and present."""
    session: str | None
    """``x-session-id``."""
    content_length: int | None
    content_encoding: bytes | None
    expects_continue: bool
    """The client waits for ``100 Continue`` before it sends the body."""


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    return frozenset(
        token.strip().lower() for name, value in headers if name == b"connection" for token in value.split(b",")
    )


def read_client_headers(headers: Pairs, class_header: bytes | None, client: str | None) -> ClientHeaders:
    """Sort a request's fields.

    Args:
        headers: as received, names in lower case.
        class_header: the field a client may name its class in, lower case; None trusts none.
        client: the peer's address, appended to X-Forwarded-For.
    """
    passed: Pairs = []
    credentials: Pairs = []
    forwarded: list[bytes] = []
    request_id = request_class = session = length = encoding = None
    expects_continue = False
    named: frozenset[bytes] | None = None
    for pair in headers:
        name, value = pair
        if name not in _LOOKED_AT and name[:2] != b"x-" and name != class_header:
            passed.append(pair)
        elif name == class_header:
            request_class = value.decode("latin-1")
        elif name == b"content-length":
            length = int(value)
        elif name == b"connection":
            if named is None and value.lower() not in (b"keep-alive", b"close"):
                named = _named_by_connection(headers)
        elif name in _REWRITTEN:
            if name == b"x-request-id" and request_id is None and _REQUEST_ID.fullmatch(value):
                request_id = value
            elif name == b"expect":
                expects_continue = value.strip().lower() == b"100-continue"
        elif name in _CREDENTIALS:
            credentials.append(pair)
        elif name == _FORWARDED_FOR:
            forwarded.append(value)
        elif not name.startswith(OWN_PREFIX):
            if name == b"x-session-id":
                session = value.decode("latin-1")
            elif name == b"content-encoding":
                encoding = value.strip().lower()
            passed.append(pair)
    if named:
        passed = [pair for pair in passed if pair[0] not in named]
        credentials = [pair for pair in credentials if pair[0] not in named]
    if client is not None:
        forwarded.append(client.encode("ascii", "replace"))
    if forwarded:
        passed.append((_FORWARDED_FOR, b", ".join(forwarded)))
    if request_id is None:
        # Unlikely to be met twice, which is all it is for.
        request_id = b"%032x" % getrandbits(128)
    return ClientHeaders(passed, credentials, request_id, request_class, session, length, encoding, expects_continue)


def engine_headers(
    client: ClientHeaders, host: bytes, engine_key: bytes | None, body_length: int | None, *, readable: bool = False
) -> Pairs:
    """The fields sent to an engine.

    Args:
        client: what the client sent.
        host: the engine's.
        engine_key: sent in place of the client's credentials.
        body_length: None sends no Content-Length.
        readable: the answer will be read here, so the engine must not compress it.
    """
    headers = [(b"host", host), *client.passed]
    if readable:
        headers = [pair for pair in headers if pair[0] != b"accept-encoding"]
    if engine_key is None:
        headers += client.credentials
    else:
        headers.append((b"authorization", b"Bearer " + engine_key))
    headers.append((b"x-request-id", client.request_id))
    if body_length is not None:
        headers.append((b"content-length", b"%d" % body_length))
    return headers


def passed_to_client(engine: Pairs, date: bytes) -> Pairs:
    """The fields of an engine's answer that a client gets: end to end ones only, and ``date`` where it has none."""
    passed = []
    dated = False
    named: frozenset[bytes] = frozenset()
    for pair in engine:
        name = pair[0]
        if name == b"connection":
            named = _named_by_connection(engine)
        elif name not in _NOT_PASSED_BACK and not name.startswith(OWN_PREFIX):
            passed.append(pair)
            if name == b"date":
                dated = True
    if named:
        passed = [pair for pair in passed if pair[0] not in named]
    if not dated:
        # RFC 9110, 6.6.1: who has a clock dates what it passes on without a date.
        passed.append((b"date", date))
    return passed


def own_lines(request_id: bytes, replica: str, request_class: str, reason: str, pool: str, gamma: int | None) -> bytes:
    """Our fields of an engine's answer, as whole lines."""
    lines = (
        f"x-adaptive-gamma-replica: {replica}\r\nx-adaptive-gamma-class: {request_class}\r\n"
        f"x-adaptive-gamma-reason: {reason}\r\nx-adaptive-gamma-pool: {pool}\r\n"
    )
    if gamma is not None:
        lines += f"x-adaptive-gamma-gamma: {gamma}\r\n"
    return b"x-request-id: %b\r\n%b" % (request_id, lines.encode("ascii", "replace"))
