"""The room that the bodies of all requests share: without it, connections enough take all memory there is."""

from __future__ import annotations

from adaptive_gamma.routing.error_answer import ErrorAnswer

__all__ = ["BodyRoom", "HeldBody"]

_SMALL = 4096
"""Parts under this many bytes are put together: each by itself costs several times what it holds."""


class BodyRoom:
    """Bytes of bodies held now; ``most`` may be, over all connections."""

    __slots__ = ("held", "most")

    def __init__(self) -> None:
        self.most = 0
        self.held = 0

    def resize(self, most: int, largest: int) -> None:
        """Hold ``most`` bytes from here on, and one body of the ``largest`` size at least."""
        self.most = max(most, largest)


class HeldBody:
    """What one connection holds of it: the parts of a body, as they came."""

    __slots__ = ("_parts", "_room", "_size")

    def __init__(self, room: BodyRoom) -> None:
        self._room = room
        self._parts: list[bytes | bytearray] = []
        self._size = 0

    def add(self, data: bytes) -> ErrorAnswer | None:
        """Hold a part more; the answer where that is too much in all."""
        room, parts = self._room, self._parts
        self._size += len(data)
        room.held += len(data)
        if room.held > room.most:
            message = "the bodies of the requests that are open take all of the room there is for them"
            later = ((b"retry-after", b"1"),)
            return ErrorAnswer(503, message, "too_many_bodies", outcome="rejected", headers=later)
        if not parts:
            parts.append(data)
        elif isinstance(last := parts[-1], bytearray) and len(last) < _SMALL:
            last += data
        else:
            parts.append(bytearray(data) if len(data) < _SMALL else data)
        return None

    def whole(self) -> bytes:
        """The body; its room stays taken until it is let go."""
        body = b"".join(self._parts)  # of one part that is the part itself
        self._parts.clear()
        return body

    def let_go(self) -> None:
        """The body is not kept any more, nor for another try."""
        self._parts.clear()
        self._room.held -= self._size
        self._size = 0
