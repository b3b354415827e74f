"""The bytes of an answer as one client can read it: its head, and how its body is told from what follows."""

from __future__ import annotations

from adaptive_gamma.proxy.answers import STATUS_LINES

__all__ = ["AnswerFraming"]

_WITHOUT_BODY = (204, 304)


class AnswerFraming:
    """Framing of the answer to one request.

    Args:
        head_only: the request's method is HEAD.
        knows_chunks: the client speaks HTTP/1.1.
    """

    __slots__ = ("_chunked", "_knows_chunks", "end", "head_only", "until_close")

    def __init__(self, head_only: bool, knows_chunks: bool) -> None:
        self.head_only = head_only
        self.until_close = False
        """The body ends with the connection: it has no length and the client knows no chunks."""
        self._knows_chunks = knows_chunks
        self._chunked = False
        self.end = b""
        """What ends the body."""

    def head(self, status: int, lines: list[bytes], *, has_length: bool, keep_alive: bool) -> bytes:
        """The head. ``lines`` are its end to end fields, ``has_length`` is whether Content-Length is among them."""
        own = b""
        if not has_length and not self.head_only and status not in _WITHOUT_BODY:
            if self._knows_chunks:
                self._chunked = True
                self.end = b"0\r\n\r\n"
                own = b"transfer-encoding: chunked\r\n"
            else:
                self.until_close = True
        if not keep_alive or self.until_close:
            own += b"connection: close\r\n"
        return b"%b%b%b\r\n" % (STATUS_LINES[status], b"".join(lines), own)

    def body(self, pieces: list[bytes]) -> bytes:
        """Parts of the body; of a chunked one each piece is a chunk."""
        if self._chunked:
            pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
