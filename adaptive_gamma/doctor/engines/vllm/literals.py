"""Values out of the settings that vLLM prints: Python, JSON, or a mixture with objects' own words in it."""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import Any

from adaptive_gamma.doctor.engines.vllm.texts import MODES_BY_NUMBER

__all__ = ["graph_mode", "literal_after", "number_after", "text_after", "truth_after"]

_LONGEST = 16_384
_PAIRS = {"{": "}", "[": "]", "(": ")"}


def _start(text: str, key: str) -> int | None:
    """Where the value of ``key`` begins: after ``key=``, ``'key': `` or ``"key":``."""
    found = re.search(rf"""(?<![\w-])['"]?{re.escape(key)}['"]?\s?[=:]\s?""", text)
    return None if found is None else found.end()


def literal_after(text: str, key: str) -> Any:
    """The value of ``key`` where it is a list, a dictionary or a string of JSON; None where it is none of these."""
    start = _start(text, key)
    if start is None:
        return None
    piece = _balanced(text, start)
    value = _parsed(piece) if piece is not None else None
    if isinstance(value, str) and value[:1] in ("{", "["):
        value = _parsed(value)
    return value


def text_after(text: str, key: str) -> str | None:
    """The quoted string or the bare word after ``key``; None for the word None."""
    start = _start(text, key)
    if start is None:
        return None
    found = re.match(r"""'([^']{0,500})'|"([^"]{0,500})"|([^\s,)}\]'"]{1,500})""", text[start:])
    if found is None:
        return None
    if found[3] is not None:
        return None if found[3] in ("None", "null") else found[3]
    return found[1] if found[1] is not None else found[2]


def number_after(text: str, key: str) -> int | None:
    """The whole number after ``key``."""
    start = _start(text, key)
    found = re.match(r"\d{1,12}(?![\d.\w])", text[start:]) if start is not None else None
    return int(found[0]) if found is not None else None


def truth_after(text: str, key: str) -> bool | None:
    """True or False after ``key``."""
    start = _start(text, key)
    found = re.match(r"(true|false)\b", text[start:], re.IGNORECASE) if start is not None else None
    return None if found is None else found[1].lower() == "true"


def graph_mode(text: str, key: str = "cudagraph_mode") -> str | None:
    """The graph mode after ``key``: ``<CUDAGraphMode.FULL: 2>``, ``"FULL"``, ``2`` or ``[2,1]``."""
    start = _start(text, key)
    if start is None:
        return None
    rest = text[start : start + 60]
    if (named := re.match(r"""<?['"]?(?:CUDAGraphMode\.)?([A-Za-z_]{4,30})\b""", rest)) is not None:
        name = named[1].upper()
        return name if name in MODES_BY_NUMBER.values() else None
    numbers = re.match(r"\[\s?(\d)\s?,\s?(\d)\s?\]|(\d)\b", rest)
    if numbers is None:
        return None
    return MODES_BY_NUMBER.get(numbers[3] or f"{numbers[1]},{numbers[2]}")


def _balanced(text: str, start: int) -> str | None:
    """The bracketed or quoted piece that begins at ``start``; None where it does not end in time."""
    if start >= len(text):
        return None
    first = text[start]
    if first in "'\"":
        end = start + 1
        while end < len(text) and end - start < _LONGEST and text[end] != first:
            end += 2 if text[end] == "\\" else 1
        return text[start : end + 1] if end < len(text) and text[end] == first else None
    if first not in _PAIRS:
        return None
    open_brackets: list[str] = []
    quote = ""
    position = start
    while position < min(len(text), start + _LONGEST):
        character = text[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in _PAIRS:
            open_brackets.append(_PAIRS[character])
        elif open_brackets and character == open_brackets[-1]:
            open_brackets.pop()
            if not open_brackets:
                return text[start : position + 1]
        position += 1
    return None


def _parsed(piece: str) -> Any:
    try:
        return json.loads(piece)
    except (ValueError, RecursionError):
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that Python does not know
            return ast.literal_eval(piece)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
