"""Switching on an option of a client's JSON body, in place: no other byte of its text changes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from adaptive_gamma.proxy.body_fields import insert_members

__all__ = ["with_option"]

_FLAT = re.compile(rb'\{(?:[^{}\[\]"\\]|"[^"\\]*")*\}')
"""An object without objects, lists or escapes in it."""


def with_option(body: bytes, member: str, option: str, known: Mapping[str, object]) -> bytes | None:
    """The body with an option set to true in a member of its object; the member is an object of its own, or null.

    A name with its quotes and a colon behind it cannot stand inside of a JSON string, where the last quote would have
    a backslash in front of it. So where the text has it once, that is the member.

    Args:
        body: a JSON object, in UTF-8, that is known to have the member.
        member: the member's name.
        option: the option's name; it is not true now.
        known: the member's value as it was parsed, {} for null.

    Returns:
        None where the place cannot be told for certain: the name occurs twice or written otherwise, or the member
        holds more than plain values.
    """
    places = list(re.finditer(rb'"%b"[ \t\r\n]*:[ \t\r\n]*' % re.escape(member.encode("ascii")), body))
    if len(places) != 1:
        return None
    start = places[0].end()
    if body.startswith(b"null", start):
        return b'%b{"%b":true}%b' % (body[:start], option.encode("ascii"), body[start + 4 :])
    found = _FLAT.match(body, start)
    if found is None:
        return None
    switched: bytes | None
    if option in known:
        off = rb'("%b"[ \t\r\n]*:[ \t\r\n]*)(?:false|null)' % re.escape(option.encode("ascii"))
        switched, times = re.subn(off, rb"\1true", found[0])
        if times != 1:
            return None
    else:
        switched = insert_members(found[0], b'"%b":true' % option.encode("ascii"))
        if switched is None:
            return None
    return body[:start] + switched + body[found.end() :]
