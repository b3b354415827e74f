"""Fields of ours in a client's JSON body, put in as bytes.

The client's own bytes stay what they are, in their order and spelling: nothing is parsed and written again. A field
goes right behind the opening brace, so that one of the same name which the client set comes later and holds: where a
name occurs twice, the parsers of the engines (Python's, pydantic's, nlohmann's) keep the last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

__all__ = ["encoded_members", "insert_members"]

_SPACE = b" \t\n\r"


def encoded_members(fields: Mapping[str, object]) -> bytes:
    """``fields`` as they stand inside a JSON object, without its braces: made once, inserted often.

    Raises ValueError when there is none or a number is not finite, TypeError for what JSON has no word for.
    """
    if not fields:
        raise ValueError("no fields to add")
    return json.dumps(dict(fields), separators=(",", ":"), allow_nan=False).encode("ascii")[1:-1]


def insert_members(body: bytes, members: bytes) -> bytes | None:
    """The body with the members of :func:`encoded_members` at the head of its object; its length is in bytes.

    None for what is no JSON object in UTF-8: such a body (another encoding of Unicode, a mark of byte order) passes as
    it came. What stands behind the brace is not looked at; ``body`` has been found valid before.
    """
    head = body[:64].lstrip(_SPACE)
    if not head:
        head = body.lstrip(_SPACE)
    if not head.startswith(b"{"):
        return None
    behind = body.index(b"{") + 1
    if body[behind : behind + 1] in (b"", b"\0"):  # the second: UTF-16 or UTF-32, whose brace is wider
        return None
    rest = body[behind : behind + 64].lstrip(_SPACE) or body[behind:].lstrip(_SPACE)
    separator = b"" if rest.startswith(b"}") else b","
    return b"".join((body[:behind], members, separator, body[behind:]))
