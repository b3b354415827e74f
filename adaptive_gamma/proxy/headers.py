"""Which header fields pass, in both directions. Names are lower-case bytes, repeated fields stay in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from random import getrandbits

from adaptive_gamma.proxy.answers import http_date

__all__ = [
    "OWN_PREFIX",
    "ClientHeaders",
    "Pairs",
    "UnacceptableHead",
    "choice_lines",
    "content_of",
    "passed_to_client",
    "usual_name",
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
_REWRITTEN = _HOP_BY_HOP | {b"content-length", b"expect", b"http2-settings", b"x-request-id"}
_CREDENTIALS = (b"authorization", b"x-api-key")
_NOT_PASSED_BACK = _HOP_BY_HOP | {b"x-request-id"}
_FORWARDED_FOR = b"x-forwarded-for"
# Most fields of most messages; they pass as they are, in either direction.
_ORDINARY = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"accept-language",
        b"cache-control",
        b"content-type",
        b"server",
        b"user-agent",
    }
)
usual_name: Callable[[bytes], bytes | None] = {
    cased: name
    for name in (*_ORDINARY, *_CREDENTIALS, b"host", b"connection", b"content-length", b"date", b"transfer-encoding")
    for cased in (name, name.title())
}.get
"""The lower case of a name that most messages have, as they write it, else None: found faster than made anew."""
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_LINE = b"%b: %b\r\n"

Pairs = list[tuple[bytes, bytes]]


class UnacceptableHead(Exception):
    """Fields that two parsers could read differently; raised inside the data path only."""

    def __init__(self, message: str, code: str) -> None:
        self.message = message
        self.code = code
        super().__init__(message)


class ClientHeaders:
    """What a client's header section said.

    Args:
        fields: as received, names in lower case.
        class_header: the field a client may name its class in, lower case; None trusts none.
        client: the peer's address, appended to X-Forwarded-For; None where there is none.
        is_1_1: the request is HTTP/1.1, not 1.0.

    Raises:
        UnacceptableHead: not exactly one Host, or a Transfer-Encoding other than one ``chunked``.
    """

    __slots__ = (
        "content_encoding", "content_length", "credentials", "expects_continue", "passed", "request_class",
        "request_id", "session",
    )  # fmt: skip

    def __init__(self, fields: Pairs, class_header: bytes | None, client: bytes | None, is_1_1: bool) -> None:
        self.passed: list[bytes] = []
        """Fields for the engine as whole lines, without Host, framing, credentials and X-Request-Id."""
        self.credentials: list[bytes] = []
        self.request_class: str | None = None
        """Value of the class header, where one is trusted and present."""
        self.session: str | None = None
        """``x-session-id``."""
        self.content_length: int | None = None
        self.content_encoding: bytes | None = None
        self.expects_continue = False
        """The client waits for ``100 Continue`` before it sends the body."""
        passed = self.passed
        forwarded: list[bytes] = []
        request_id: bytes | None = None
        named: frozenset[bytes] | None = None
        hosts = codings = 0
        for pair in fields:
            name, value = pair
            if name == class_header:
                self.request_class = value.decode("latin-1")
            elif name in _ORDINARY:
                passed.append(_LINE % pair)
            elif name == b"host":
                hosts += 1
            elif name == b"content-length":
                self.content_length = int(value)
            elif name in _CREDENTIALS:
                self.credentials.append(_LINE % pair)
            elif name == b"connection":
                if named is None and value.lower() not in (b"keep-alive", b"close"):
                    named = _named_by_connection(fields)
            elif name in _REWRITTEN:
                if name == b"transfer-encoding":
                    codings += 1
                    if value.strip().lower() != b"chunked" or codings > 1 or not is_1_1:
                        message = "the only Transfer-Encoding accepted is a single 'chunked'"
                        raise UnacceptableHead(message, "invalid_framing")
                elif name == b"x-request-id" and request_id is None and _REQUEST_ID.fullmatch(value):
                    request_id = value
                elif name == b"expect":
                    self.expects_continue = value.strip().lower() == b"100-continue"
            elif name == _FORWARDED_FOR:
                forwarded.append(value)
            elif not name.startswith(OWN_PREFIX):
                if name == b"x-session-id":
                    self.session = value.decode("latin-1")
                elif name == b"content-encoding":
                    coding = value.strip().lower()
                    self.content_encoding = (
                        coding if not self.content_encoding else self.content_encoding + b", " + coding
                    )
                passed.append(_LINE % pair)
        if hosts != 1 and (hosts or is_1_1):
            raise UnacceptableHead("exactly one Host header is required", "invalid_http")
        if named:
            self.passed = passed = _without(named, passed)
            self.credentials = _without(named, self.credentials)
        if client is not None:
            forwarded.append(client)
        if forwarded:
            passed.append(b"x-forwarded-for: %b\r\n" % b", ".join(forwarded))
        # A new one is unlikely to be met twice, which is all it is for.
        self.request_id: bytes = b"%032x" % getrandbits(128) if request_id is None else request_id  # nosec B311  # an id, no secret
        """The client's own when it is harmless, else a new one."""


def content_of(fields: Pairs) -> tuple[bytes, bytes]:
    """Content-Type and Content-Encoding, in lower case, empty where there is none; of repeated ones the last."""
    kind = coding = b""
    for name, value in fields:
        if name == b"content-type":
            kind = value
        elif name == b"content-encoding":
            coding = value
    return kind.lower(), coding.lower()


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    return frozenset(
        token.strip().lower() for name, value in headers if name == b"connection" for token in value.split(b",")
    )


def _without(named: frozenset[bytes], lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if line[: line.index(b":")] not in named]


def passed_to_client(engine: Pairs, status: int) -> tuple[list[bytes], bool]:
    """The fields of an engine's answer that a client gets, as whole lines, and whether they tell the body's length.

    End to end ones only, and a Date where the engine sent none.
    """
    lines: list[bytes] = []
    has_length = dated = False
    named: frozenset[bytes] = frozenset()
    for pair in engine:
        name = pair[0]
        if name in _ORDINARY:
            lines.append(_LINE % pair)
        elif name == b"date":
            lines.append(_LINE % pair)
            dated = True
        elif name == b"content-length":
            # RFC 9110, 8.6: not with a 204. Some engines' frameworks say 0, or that of a body they dropped.
            if status != 204:
                lines.append(_LINE % pair)
                has_length = True
        elif name == b"connection":
            named = _named_by_connection(engine)
        elif name not in _NOT_PASSED_BACK and not name.startswith(OWN_PREFIX):
            lines.append(_LINE % pair)
    if named:
        lines = _without(named, lines)
        has_length = has_length and b"content-length" not in named
        dated = dated and b"date" not in named
    if not dated:
        # RFC 9110, 6.6.1: who has a clock dates what it passes on without a date.
        lines.append(b"date: %b\r\n" % http_date())
    return lines, has_length


@lru_cache(maxsize=1024)
def choice_lines(replica: str, request_class: str, reason: str, pool: str, gamma: int | None) -> bytes:
    """Our fields that tell a client where its request went and why, as whole lines; there are few different ones."""
    lines = (
        f"x-adaptive-gamma-replica: {replica}\r\nx-adaptive-gamma-class: {request_class}\r\n"
        f"x-adaptive-gamma-reason: {reason}\r\nx-adaptive-gamma-pool: {pool}\r\n"
    )
    if gamma is not None:
        lines += f"x-adaptive-gamma-gamma: {gamma}\r\n"
    return lines.encode("ascii", "replace")
