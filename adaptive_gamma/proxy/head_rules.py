"""Which request heads are refused because two parsers could read them differently, and why."""

from __future__ import annotations

import urllib.parse
from typing import TypeAlias

import httptools

from adaptive_gamma.proxy.headers import Pairs

__all__ = ["HEAD_LIMIT", "OVERSIZED_HEAD", "Refusal", "judge_head", "split_target", "without_offer"]

HEAD_LIMIT = 64 * 1024

Refusal: TypeAlias = tuple[int, str, str]
"""Status, message, code."""

OVERSIZED_HEAD: Refusal = (431, "the request head is over 64 KiB", "head_too_large")

_OFFER = frozenset({b"upgrade", b"http2-settings"})


def judge_head(method: bytes, version: str, fields: Pairs, size: int) -> Refusal | None:
    """Why a head is not accepted, or None. Names are in lower case; ``size`` is the head's in bytes."""
    if size > HEAD_LIMIT:
        return OVERSIZED_HEAD
    if method == b"CONNECT":
        return 400, "CONNECT is not supported", "invalid_http"
    if version not in ("1.1", "1.0"):
        return 505, f"HTTP/{version} is not supported", "invalid_http"
    hosts = codings = 0
    for name, value in fields:
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            codings += 1
            if value.strip().lower() != b"chunked" or codings > 1 or version == "1.0":
                return 400, "the only Transfer-Encoding accepted is a single 'chunked'", "invalid_framing"
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        return 400, "exactly one Host header is required", "invalid_http"
    return None


def split_target(url: bytes) -> tuple[bytes, str]:
    """A request's target as it goes to an engine (path and query) and its path, decoded.

    Raises ValueError or an error of httptools for what is not a target.
    """
    target = path = url
    if not url.startswith(b"/") or b"?" in url or b"#" in url:
        parsed = httptools.parse_url(url)
        target = path = parsed.path
        if parsed.query:
            target = path + b"?" + parsed.query
    text = path.decode("ascii")
    return target, urllib.parse.unquote(text) if "%" in text else text


def without_offer(method: bytes, url: bytes, fields: Pairs) -> bytes:
    """A head again, as bytes, without its offer to change to another protocol."""
    lines = [b"%b %b HTTP/1.1\r\n" % (method, url)]
    for name, value in fields:
        if name == b"connection":
            tokens = [token.strip() for token in value.split(b",")]
            value = b", ".join(token for token in tokens if token.lower() not in _OFFER)
        if name not in _OFFER:
            lines.append(b"%b: %b\r\n" % (name, value))
    lines.append(b"\r\n")
    return b"".join(lines)
