"""Learning an engine's gamma from its answers, where its pages do not tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import from_json

from adaptive_gamma.proxy.headers import Pairs

if TYPE_CHECKING:
    from adaptive_gamma.fleet import Fleet

__all__ = ["ResponseTap"]

_JSON_LIMIT = 1 << 20
_STREAM_TAIL = 16 * 1024
_EVENT = b"data: {"


class ResponseTap:
    """Looks at one answer as it passes: a JSON body, or the end of an event stream. Never changes or delays it."""

    __slots__ = ("_fleet", "_kept", "_limit", "_replica", "_stream")

    def __init__(self, fleet: Fleet, replica: str, stream: bool) -> None:
        self._fleet = fleet
        self._replica = replica
        self._stream = stream
        self._limit = _STREAM_TAIL if stream else _JSON_LIMIT
        self._kept: bytearray | None = bytearray()

    @classmethod
    def wanted(cls, fleet: Fleet, replica: str, status: int, headers: Pairs) -> ResponseTap | None:
        """A tap where the replica's gamma is not known and the answer could tell it, else None."""
        if fleet.by_name(replica).state.gamma is not None or status != 200:
            return None
        kind = next((value for name, value in headers if name == b"content-type"), b"").lower()
        if kind.startswith(b"application/json"):
            return cls(fleet, replica, stream=False)
        return cls(fleet, replica, stream=True) if kind.startswith(b"text/event-stream") else None

    def feed(self, pieces: list[bytes]) -> None:
        """Bytes of the body, in order."""
        kept = self._kept
        if kept is None:
            return
        for piece in pieces:
            kept += piece
        if len(kept) > self._limit:
            if self._stream:
                del kept[: -self._limit]
            else:
                self._kept = None

    def finish(self) -> None:
        """The body is whole: tell the fleet what it says."""
        if not self._kept:
            return
        for text in self._candidates(bytes(self._kept)):
            try:
                body = from_json(text)
            except ValueError:
                continue
            if isinstance(body, dict):
                self._fleet.note_response(self._replica, body)
                return

    def _candidates(self, kept: bytes) -> list[bytes]:
        if not self._stream:
            return [kept]
        start = kept.rfind(_EVENT)
        return [] if start < 0 else [kept[start + len(_EVENT) - 1 :].split(b"\n", 1)[0].rstrip()]
