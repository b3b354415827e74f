"""Learning from an engine's answers: its gamma, where its pages do not tell it, and how a request's drafts fared."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic_core import from_json

from adaptive_gamma.proxy.added_events import EventRemover
from adaptive_gamma.proxy.asking import Kind, ReportLog
from adaptive_gamma.proxy.headers import Pairs, content_of

if TYPE_CHECKING:
    from adaptive_gamma.engines import RequestAcceptance, StreamAsk
    from adaptive_gamma.fleet import AnswerWatch, Fleet

__all__ = ["ResponseTap"]

_log = logging.getLogger("adaptive_gamma.proxy")

_JSON_LIMIT = 1 << 20
_STREAM_TAIL = 16 * 1024
_LONG_EVENT = 256 * 1024
"""A report step by step grows with the answer: this much of a stream is kept for a single line of it."""
_DATA = b"data:"
_FAULTS = (ArithmeticError, ValueError, TypeError, LookupError)
"""What an answer that nobody foresaw can raise in the code that learns from it."""


class ResponseTap:
    """Looks at one answer as it passes: a JSON body, or the end of an event stream. Delays nothing, and changes
    nothing but that an event which was asked for in the client's place is taken out.

    Keeps at most 1 MiB of a body, of which a longer one is not read, and about 32 KiB of a stream, or the line that
    these end in where it is longer, up to 256 KiB.
    """

    __slots__ = ("_class", "_fleet", "_kept", "_log", "_remover", "_replica", "_stream", "_watch", "acceptance")

    def __init__(
        self,
        fleet: Fleet,
        replica: str,
        *,
        stream: bool,
        request_class: str | None = None,
        log: ReportLog | None = None,
        added: StreamAsk | None = None,
        watch: AnswerWatch | None = None,
    ) -> None:
        self._fleet = fleet
        self._replica = fleet.by_name(replica)
        self._stream = stream
        self._class = request_class
        self._log = log
        self._watch = watch
        self._remover = None if added is None else EventRemover(added)
        self._kept: bytearray | None = bytearray()
        self.acceptance: RequestAcceptance | None = None
        """How the drafts of the request fared, once the answer has said so."""

    @classmethod
    def wanted(
        cls,
        fleet: Fleet,
        replica: str,
        status: int,
        headers: Pairs,
        *,
        request_class: str | None,
        log: ReportLog,
        added: StreamAsk | None = None,
        watch: AnswerWatch | None = None,
    ) -> ResponseTap | None:
        """A tap where the answer may tell something that is wanted, else None.

        Args:
            fleet: is told.
            replica: the name of the replica that answers.
            status: of the answer.
            headers: of the answer.
            request_class: the class that the acceptance is of; None where it is not to be learned.
            log: which replicas report.
            added: how the request was made to ask for a report.
            watch: is told what the answer says, where that is wanted.
        """
        state = fleet.by_name(replica).state
        if fleet.learning is None or state.speculative is False:
            request_class = None
        if status != 200 or (request_class is None and state.gamma is not None and added is None and watch is None):
            return None
        kind, coding = content_of(headers)
        stream = kind.startswith(b"text/event-stream")
        if not (stream or kind.startswith(b"application/json")) or coding not in (b"", b"identity"):
            return None
        if stream and added is not None:
            return cls(fleet, replica, stream=True, request_class=request_class, log=log, added=added, watch=watch)
        if request_class is None and state.gamma is not None and watch is None:
            return None
        return cls(fleet, replica, stream=stream, request_class=request_class, log=log, watch=watch)

    @property
    def removes(self) -> bool:
        """Whether the body that comes out may be shorter than the one that came in."""
        return self._remover is not None

    def feed(self, pieces: list[bytes]) -> list[bytes]:
        """Bytes of the body, in order. Returns what to pass on of them, and of what was held back before."""
        kept = self._kept
        if kept is not None:
            for piece in pieces:
                kept += piece
            if len(kept) > (2 * _STREAM_TAIL if self._stream else _JSON_LIMIT):
                self._trim(kept)
        return pieces if self._remover is None else self._remover.feed(pieces)

    def finish(self, *, whole: bool = True) -> bytes:
        """The body is over, ``whole`` or not: tell the fleet what it says. Returns what is still to be passed on."""
        kept, self._kept = self._kept, None
        rest = b"" if self._remover is None else self._remover.finish()
        if kept is not None:
            self._read(kept, whole)
        return rest

    def _trim(self, kept: bytearray) -> None:
        if not self._stream:
            self._kept = None
            return
        start = len(kept) - _STREAM_TAIL
        line = kept.rfind(b"\n", 0, start) + 1
        del kept[: line if len(kept) - line <= _LONG_EVENT else start]

    def _read(self, kept: bytearray, whole: bool) -> None:
        watch, body = self._watch, None
        mark = self._replica.dialect.acceptance_mark if watch is None else watch.mark
        text = _last_line(kept, mark) if self._stream else bytes(kept)
        reported = False
        if text is not None and text.find(mark) >= 0:
            try:
                body = from_json(text)
            except ValueError:
                body = None
            if isinstance(body, dict):
                reported = self._tell(body)
        if watch is not None and whole and not isinstance(body, dict):
            watch.answered({})
        if self._class is not None and self._log is not None and (whole or reported):
            kind: Kind = "asked" if self._remover is not None else "stream" if self._stream else "body"
            self._log.looked(self._replica.name, kind, reported=reported)

    def _tell(self, body: dict[str, object]) -> bool:
        """Tell the fleet what the body says; whether that was how its drafts fared."""
        name, acceptance = self._replica.name, None
        try:
            self._fleet.note_response(name, body)
            if self._watch is not None:
                self._watch.answered(body)
            choices = body.get("choices")
            if self._class is not None and not (isinstance(choices, list) and len(choices) > 1):
                acceptance = self._replica.dialect.acceptance_from_response(body)
                self.acceptance = acceptance
                if acceptance is not None:
                    if self._watch is not None and acceptance.gamma is None:
                        acceptance = replace(acceptance, gamma=self._watch.sent)
                    self._fleet.note_acceptance(name, self._class, acceptance)
        except _FAULTS:
            _log.exception("replica %s: learning from an answer met a fault; the answer is not harmed", name)
        return acceptance is not None


def _last_line(kept: bytearray, mark: bytes) -> bytes | None:
    """The JSON text of the last whole data line with the mark in it. A mark is in no JSON string: a quote would have a
    backslash in front of it there."""
    at = kept.rfind(mark)
    if at < 0:
        return None
    start = max(kept.rfind(b"\n", 0, at), kept.rfind(b"\r", 0, at)) + 1
    ends = [end for end in (kept.find(b"\n", at), kept.find(b"\r", at)) if end >= 0]
    if not ends or not kept.startswith(_DATA, start):
        return None
    return bytes(kept[start + len(_DATA) : min(ends)]).strip()
