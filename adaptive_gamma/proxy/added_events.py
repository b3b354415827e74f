"""Taking an event out of a server-sent stream that the client did not ask for, wherever the stream is cut in pieces."""

from __future__ import annotations

import re

from pydantic_core import from_json

from adaptive_gamma.engines import StreamAsk

__all__ = ["EventRemover"]

_HELD_LIMIT = 256 * 1024
"""An event longer than this is passed on unread. The report step by step of an answer of 16,000 steps is 64 KiB."""
_WHOLE_ENDS = (b"\n\n", b"\r\n\r\n")
_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
"""The end of a line and an empty line. Line ends may be mixed; a lone CR is one too."""
_BETWEEN = re.compile(rb"(?:(?::[^\r\n]*)?(?:\r\n|\n|\r(?!\n)))+")
"""Whole lines in front of an event that are no part of it: comments, which keep connections alive, and empty lines."""
_HAS_CHOICES = re.compile(rb'"choices"[ ]?:[ ]?\[[ ]?\{')
"""In no JSON string: there a quote would have a backslash in front of it."""
_LONGEST = 16
"""Bytes of the longest of these that can lie across two pieces."""
_LINE = re.compile(rb"\r\n|\n|\r")


class EventRemover:
    """Passes a stream on but for the events that ``ask`` added.

    A piece that comes out is one that came in, or what is left of it, or it ends where an event does whose successor
    has to wait: what is held back is only an event that has begun and may still turn out to be the one, which is known
    by its first hundred bytes or so.
    """

    __slots__ = ("_after_cr", "_ask", "_held", "_inside", "_lengths", "_tail", "removed")

    def __init__(self, ask: StreamAsk) -> None:
        self._ask = ask
        self._held = bytearray()
        """An event that has begun and may be one to remove."""
        self._lengths: list[int] = []
        """Of the pieces it came in."""
        self._inside = False
        """An event that is passed on has begun, and has not ended."""
        self._tail = b""
        """Its last bytes, which may be the beginning of its end."""
        self._after_cr = False
        """What was removed last ended in CR: a LF that follows belongs to it."""
        self.removed = 0

    def feed(self, pieces: list[bytes]) -> list[bytes]:
        """What to pass on of the next pieces of the stream."""
        if len(pieces) == 1 and not (self._held or self._inside or self._after_cr):
            # Nearly always: whole events of which none is the one.
            piece = pieces[0]
            if piece.endswith(_WHOLE_ENDS) and self._ask.mark not in piece:
                return pieces
        out: list[bytes] = []
        for piece in pieces:
            if piece:
                self._take(piece, out)
        return out

    def finish(self) -> bytes:
        """The stream is over, by its end or not: what is held of an event without an end, unless it is the one."""
        held = bytes(self._held)
        self._held.clear()
        return b"" if self._ask.mark in _data(held) and _HAS_CHOICES.search(held) is None else held

    def _take(self, piece: bytes, out: list[bytes]) -> None:
        start = position = 0  # what lies between them is to be passed on
        if self._after_cr:
            self._after_cr = False
            start = position = int(piece[0] == 10)
        while position < len(piece):
            if self._inside:
                joined = self._tail + piece[position:]
                end = _END.search(joined)
                if end is None:
                    self._tail = joined[-3:]
                    break
                position += end.end() - len(self._tail)
                self._inside, self._tail = False, b""
                continue
            before = len(self._held)
            self._held += piece[position:]
            event = self._held
            between = _BETWEEN.match(event)
            if between is not None:
                position += between.end() - before
                self._release(before, out)
                continue
            end = _END.search(event, max(before - _LONGEST, 0))
            if end is None:
                if len(event) <= _HELD_LIMIT and _HAS_CHOICES.search(event, max(before - _LONGEST, 0)) is None:
                    self._lengths.append(len(event) - before)
                    if start < position:
                        out.append(piece[start:position])
                    return
                self._inside, self._tail = True, bytes(event[-3:])
                self._release(before, out)
                break
            begin, position = position, position + end.end() - before
            if not self._is_added(bytes(event[: end.end()])):
                self._release(before, out)
                continue
            self.removed += 1
            self._held.clear()
            self._lengths.clear()
            if start < begin:
                out.append(piece[start:begin])
            if piece[position - 1] == 13:
                self._after_cr = position == len(piece)
                position += int(piece[position : position + 1] == b"\n")
            start = position
        if start < len(piece):
            out.append(piece[start:] if start else piece)

    def _release(self, before: int, out: list[bytes]) -> None:
        """Pass on what was held of earlier pieces, as it came: ``before`` bytes."""
        position = 0
        for length in self._lengths:
            out.append(bytes(self._held[position : position + length]))
            position += length
        assert position == before
        self._held.clear()
        self._lengths.clear()

    def _is_added(self, event: bytes) -> bool:
        if self._ask.mark not in event:
            return False
        try:
            data = from_json(_data(event))
        except ValueError:
            return False
        return isinstance(data, dict) and self._ask.is_added(data)


def _data(event: bytes) -> bytes:
    return b"\n".join(line[5:].removeprefix(b" ") for line in _LINE.split(event) if line.startswith(b"data:"))
