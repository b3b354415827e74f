"""Which replica stores which response of the Responses API, so that what goes on from one finds it.

Engines keep responses in their own memory and know nothing of each other's. The id is read from the answer that
creates the response, as it passes.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any

from pydantic_core import from_json

__all__ = ["ResponseIdListener", "StoredResponses", "response_id_of"]

_JSON_LIMIT = 1 << 20
_STREAM_LIMIT = 64 * 1024
_LONGEST_ID = 256
_FIRST_MEMBER = re.compile(rb'\s*\{\s*"id"\s*:\s*"([\x20\x21\x23-\x5b\x5d-\x7e]{1,256})"')
_ONE_RESPONSE = re.compile(r"/v1/responses/([^/]+)(?:/cancel)?")


def response_id_of(path: str) -> str | None:
    """The id in the path of a stored response."""
    found = _ONE_RESPONSE.fullmatch(path)
    return None if found is None else found[1]


class StoredResponses:
    """Remembers the replicas of at most ``entries`` responses, the longest unused forgotten first.

    Only hashes of ids are kept, under the process's own random key: about 200 bytes each. A replica that restarts
    loses what it stored; the request then goes there and is told so by the engine, as it would be anywhere.
    """

    __slots__ = ("_entries", "_holders")

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._holders: OrderedDict[int, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def resize(self, entries: int) -> None:
        """Remember another number of responses from here on; 0 remembers none."""
        self._entries = entries
        self._shrink()

    def put(self, response_id: str, replica: str) -> None:
        """The replica has the response."""
        key = hash(response_id)
        self._holders[key] = replica
        self._holders.move_to_end(key)
        self._shrink()

    def holder(self, response_id: object) -> str | None:
        """The replica that has the response; None where that is not known, or it is no id at all."""
        if not self._holders or not isinstance(response_id, str):
            return None
        key = hash(response_id)
        replica = self._holders.get(key)
        if replica is not None:
            self._holders.move_to_end(key)
        return replica

    def _shrink(self) -> None:
        while len(self._holders) > self._entries:
            self._holders.popitem(last=False)


class ResponseIdListener:
    """Reads the id of a response from the answer that creates it: a JSON body, or the first events of a stream.

    Keeps at most 64 KiB of a stream. Of a body as vLLM and SGLang write it, which begins with the id, nothing is kept;
    of another at most 1 MiB, and a longer one is not read.
    """

    __slots__ = ("_kept", "_replica", "_stored", "_stream")

    def __init__(self, stored: StoredResponses, replica: str, *, stream: bool) -> None:
        self._stored = stored
        self._replica = replica
        self._stream = stream
        self._kept: bytearray | None = bytearray()

    def feed(self, pieces: list[bytes]) -> None:
        """Bytes of the body, in order."""
        kept = self._kept
        if kept is None:
            return
        began = not kept
        for piece in pieces:
            kept += piece
        if self._stream:
            self._read_events(kept)
            limit = _STREAM_LIMIT
        else:
            if began and (found := _FIRST_MEMBER.match(kept)) is not None:
                self._take(found[1].decode("ascii"))
            limit = _JSON_LIMIT
        if self._kept is not None and len(kept) > limit:
            self._kept = None

    def finish(self, *, whole: bool) -> None:
        """The body is over."""
        kept, self._kept = self._kept, None
        if kept and whole and not self._stream:
            self._take(_parsed(bytes(kept)).get("id"))

    def _read_events(self, kept: bytearray) -> None:
        """Look at the lines that have come whole, and drop them."""
        end = kept.rfind(b"\n") + 1
        if not end:
            return
        lines = bytes(kept[:end]).splitlines()
        del kept[:end]
        for line in lines:
            if line.startswith(b"data:"):
                response = _parsed(line[len(b"data:") :]).get("response")
                if isinstance(response, dict):
                    self._take(response.get("id"))
                    if self._kept is None:
                        return

    def _take(self, response_id: object) -> None:
        if isinstance(response_id, str) and 0 < len(response_id) <= _LONGEST_ID:
            self._stored.put(response_id, self._replica)
            self._kept = None


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        body = from_json(text)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
