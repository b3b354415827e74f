"""Gathering a request's body without ever holding it twice."""

from __future__ import annotations

__all__ = ["BodyBuffer"]

_LONG = 256 * 1024


class BodyBuffer:
    """The body of one request.

    A long body whose length is announced gets its room at once: the system gives the memory as it is filled, and
    nothing is copied as it grows.
    """

    __slots__ = ("_body", "_room", "size")

    def __init__(self, announced: int | None) -> None:
        self._room = announced if announced is not None and announced > _LONG else 0
        self._body: bytes | bytearray = b""
        self.size = 0
        """Bytes that have come."""

    def add(self, data: bytes) -> None:
        before = self.size
        self.size += len(data)
        if not before and not self._room:
            self._body = data
            return
        body = self._body
        if isinstance(body, bytes):
            self._body = bytearray(self._room) if self._room else bytearray(body)
            body = self._body
        body[before : self.size] = data

    def take(self) -> bytes | bytearray:
        """The body, which is whole; the buffer is empty afterwards."""
        body, self._body = self._body, b""
        self._room = self.size = 0
        return body
