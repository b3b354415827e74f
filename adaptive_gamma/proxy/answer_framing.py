"""The bytes of an answer as one client can read it: its head, and how its body is told from what follows."""

from __future__ import annotations

from adaptive_gamma.proxy.answers import status_line
from adaptive_gamma.proxy.headers import Pairs

__all__ = ["AnswerFraming"]

_WITHOUT_BODY = (204, 304)


class AnswerFraming:
    """Framing of the answer to one request.

    Args:
        head_only: the request's method is HEAD.
        knows_chunks: the client speaks HTTP/1.1.
    """

    __slots__ = ("_chunked", "_knows_chunks", "head_only", "until_close")

    def __init__(self, *, head_only: bool, knows_chunks: bool) -> None:
        self.head_only = head_only
        self.until_close = False
        """The body ends with the connection: it has no length and the client knows no chunks."""
        self._knows_chunks = knows_chunks
        self._chunked = False

    def head(self, status: int, fields: Pairs, own: bytes, *, keep_alive: bool) -> bytes:
        """The head. ``own`` are further fields, as whole lines; none of either is a hop-by-hop one."""
        has_length = False
        lines = [status_line(status)]
        for name, value in fields:
            if name == b"content-length":
                if status == 204:
                    # RFC 9110, 8.6: none here. Some engines' frameworks say 0, or that of a body they dropped.
                    continue
                has_length = True
            lines.append(b"%b: %b\r\n" % (name, value))
        lines.append(own)
        if not has_length and not self.head_only and status not in _WITHOUT_BODY:
            if self._knows_chunks:
                self._chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                self.until_close = True
        lines.append(b"\r\n" if keep_alive and not self.until_close else b"connection: close\r\n\r\n")
        return b"".join(lines)

    def body(self, pieces: list[bytes]) -> bytes:
        """Parts of the body; of a chunked one each piece is a chunk."""
        if self._chunked:
            pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def end(self) -> bytes:
        """What ends the body."""
        return b"0\r\n\r\n" if self._chunked else b""
