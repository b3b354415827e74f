"""An engine's list of models."""

from __future__ import annotations

import json

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
        if isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME:
            found[name] = root if isinstance(root, str) and 0 < len(root) <= _LONGEST_NAME else name
    return found
