"""Reading requests from a client's bytes: httptools, made strict about what two parsers could read differently."""

from __future__ import annotations

import logging
import urllib.parse
from typing import NoReturn, Protocol, TypeAlias

import httptools

from adaptive_gamma.proxy.headers import Pairs, UnacceptableHead, usual_name

__all__ = ["Refusal", "RequestEvents", "RequestReader", "Unreadable"]

_log = logging.getLogger("adaptive_gamma.proxy")

_HEAD_LIMIT = 64 * 1024

Refusal: TypeAlias = tuple[int, str, str]
"""Status, message, code."""

_OVERSIZED_HEAD: Refusal = (431, "the request head is over 64 KiB", "head_too_large")

_OFFER = frozenset({b"upgrade", b"http2-settings"})
# Numbers: whether bytes hold one is a tenth of the work of whether they hold other bytes.
_QUERY, _FRAGMENT = b"?#"


_BROKEN: Refusal = (400, "the request is not valid HTTP/1.1", "invalid_http")
_OVERSIZED_TRAILERS: Refusal = (431, "the trailers are over 64 KiB", "trailers_too_large")
_NO_PROGRESS: Refusal = (400, "64 KiB came without a part of the body", "invalid_http")


class Unreadable(Exception):
    """The bytes make no request from here on; raised inside the data path only."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal[1])


class RequestEvents(Protocol):
    """Who is told of what was read."""

    def on_request_begin(self) -> bool:
        """A request's first bytes came; False when it is not wanted, which ends the reading."""

    def on_request_head(
        self, method: bytes, target: bytes, path: str, fields: Pairs, *, is_1_1: bool, keep_alive: bool
    ) -> None:
        """A head is whole.

        Args:
            method: in capitals.
            target: path and query, as they go to an engine.
            path: decoded.
            fields: names in lower case, in the client's order.
            is_1_1: the request is HTTP/1.1, not 1.0.
            keep_alive: whether the client expects to go on after the answer.

        Raises:
            UnacceptableHead: the request is not read on.
        """

    def on_request_body(self, data: bytes) -> None: ...

    def on_request_end(self) -> None: ...


class _Stop(Exception):
    """Ends the parsing from inside a callback; why is noted on the reader."""


class RequestReader:
    """Finds the requests in a connection's bytes."""

    __slots__ = (
        "_dry", "_events", "_fed", "_fields", "_offered", "_parser", "_progress", "_refusal", "_trailer_bytes",
        "_url", "in_head",
    )  # fmt: skip

    def __init__(self, events: RequestEvents) -> None:
        self._events = events
        self._new_parser()
        self._dry = 0
        """Bytes read in a row that brought neither a whole head nor a part of a body."""
        self._offered = self._progress = False
        self._refusal: Refusal = _BROKEN
        self.in_head = False
        """A head has begun and is not whole."""

    def close(self) -> None:
        """Let go of the parser, which holds on to this: what is gone is freed at once, not when the collector runs."""
        del self._parser, self._events

    def _new_parser(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        # Else what follows a request that closes the connection would be an error of that request.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed(self, data: bytes) -> None:
        """Read on.

        Raises:
            Unreadable: also for a request that is not wanted; what was whole before it has been told.
        """
        self._progress = False
        self._fed = fed = self._dry + len(data)
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                self._decline(offer, data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            if cause is not None and not isinstance(cause, _Stop | ValueError | httptools.HttpParserError):
                _log.error("reading a request met a fault", exc_info=cause)
            raise Unreadable(self._refusal) from error
        self._dry = 0 if self._progress else fed
        if self._dry > _HEAD_LIMIT:
            raise Unreadable(_OVERSIZED_HEAD if self.in_head else _NO_PROGRESS)

    def _decline(self, offer: httptools.HttpParserUpgrade, data: bytes) -> None:
        """Read on behind an offer we do not take (some clients make it with every first request).

        The parser stops behind such a head and would lose the body, so it is given the head again, without the offer.
        """
        while True:
            data = _without_offer(self._parser, self._url, self._fields) + data[offer.args[0] :]
            self._new_parser()
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as another:
                offer = another

    # -- parser callbacks ---------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if not self._events.on_request_begin():
            raise _Stop
        self.in_head = True
        self._url = b""
        self._fields: Pairs = []
        self._trailer_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:
            self._fields.append((usual_name(name) or name.lower(), value))
        else:
            self._trailer_bytes += len(name) + len(value) + 4
            if self._trailer_bytes > _HEAD_LIMIT:
                self._stop(_OVERSIZED_TRAILERS)

    def on_headers_complete(self) -> None:
        self.in_head = False
        self._progress = True
        parser = self._parser
        method, version = parser.get_method(), parser.get_http_version()
        size = self._fed  # of the head and perhaps of what was read with it
        if size > _HEAD_LIMIT:
            size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._fields)
        if size > _HEAD_LIMIT:
            self._stop(_OVERSIZED_HEAD)
        if method == b"CONNECT":
            self._stop((400, "CONNECT is not supported", "invalid_http"))
        is_1_1 = version == "1.1"
        if not is_1_1 and version != "1.0":
            self._stop((505, f"HTTP/{version} is not supported", "invalid_http"))
        self._offered = parser.should_upgrade()
        if self._offered:
            return
        target, path = _split_target(self._url)
        try:
            self._events.on_request_head(
                method, target, path, self._fields, is_1_1=is_1_1, keep_alive=is_1_1 and parser.should_keep_alive()
            )
        except UnacceptableHead as why:
            self._stop((400, why.message, why.code))

    def _stop(self, refusal: Refusal) -> NoReturn:
        self._refusal = refusal
        raise _Stop

    def on_body(self, body: bytes) -> None:
        self._progress = True
        self._events.on_request_body(body)

    def on_message_complete(self) -> None:
        if not self._offered:
            self._progress = True
            self._events.on_request_end()


def _split_target(url: bytes) -> tuple[bytes, str]:
    """A request's target as it goes to an engine (path and query) and its path, decoded.

    Raises ValueError or an error of httptools for what is not a target.
    """
    if url.startswith(b"/") and _QUERY not in url and _FRAGMENT not in url:
        target, text = url, url.decode("ascii")
    else:
        parsed = httptools.parse_url(url)
        target = path = parsed.path or b"/"
        if parsed.query:
            target = path + b"?" + parsed.query
        text = path.decode("ascii")
    return target, urllib.parse.unquote(text) if "%" in text else text


def _without_offer(parser: httptools.HttpRequestParser, url: bytes, fields: Pairs) -> bytes:
    """A head again, as bytes, without its offer to change to another protocol."""
    lines = [b"%b %b HTTP/%b\r\n" % (parser.get_method(), url, parser.get_http_version().encode("ascii"))]
    for name, value in fields:
        if name == b"connection":
            tokens = [token.strip() for token in value.split(b",")]
            value = b", ".join(token for token in tokens if token.lower() not in _OFFER)
        if name not in _OFFER:
            lines.append(b"%b: %b\r\n" % (name, value))
    lines.append(b"\r\n")
    return b"".join(lines)
