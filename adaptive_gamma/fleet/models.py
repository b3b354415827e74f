"""An engine's ``/v1/models``, read so that what is kept of it can be sent on as strict JSON in UTF-8. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

__all__ = ["ModelList", "read_model_list"]

_LONGEST_ID = 256


@dataclass(frozen=True, slots=True)
class ModelList:
    """What a page listed."""

    entries: list[dict[str, Any]] | None
    """The entries that could be read; None when the page lists something and nothing of it could be."""
    dropped: int
    """Number of entries that could not."""


def read_model_list(page: bytes) -> ModelList | None:
    """The models of a page; None when it is no model list, NaN and Infinity being no JSON.

    An entry is dropped when it is no object, when its ``id`` is no string of at most 256 characters, or when it
    cannot be written as JSON in UTF-8 (half of a surrogate pair, a number too large for a float).
    """
    try:
        body = json.loads(page, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    listed = body.get("data") if isinstance(body, dict) else None
    if not isinstance(listed, list):
        return None
    entries = [entry for entry in listed if _readable(entry)]
    return ModelList(entries if entries or not listed else None, len(listed) - len(entries))


def _readable(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    name = entry.get("id")
    if not isinstance(name, str) or len(name) > _LONGEST_ID:
        return False
    try:
        json.dumps(entry, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
