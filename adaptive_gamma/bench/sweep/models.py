"""An engine's list of models."""

from __future__ import annotations

import json
from typing import TypeGuard

__all__ = ["listed_models"]

_LONGEST_NAME = 256


def listed_models(page: bytes) -> dict[str, str]:
    """The names on a ``/v1/models`` page, each with the model behind it (``root``), which else is the name itself."""
    try:
        body = json.loads(page)
    except (ValueError, RecursionError):
        return {}
    entries = body.get("data") if isinstance(body, dict) else None
    found: dict[str, str] = {}
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict):
            continue
        name, root = entry.get("id"), entry.get("root")
        if _is_name(name):
            found[name] = root if _is_name(root) else name
    return found


def _is_name(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and value.isprintable()
