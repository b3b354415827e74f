"""Versions of engines, as far as gates need them."""

from __future__ import annotations

import re
from typing import TypeAlias

__all__ = ["Version", "parse_version", "version_text"]

Version: TypeAlias = tuple[int, int, int]
"""(major, minor, patch); what follows (rc, post, a build) does not count."""

_FORM = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:[a-z][a-z0-9.+\-]*|[.+\-][a-z0-9.+\-]+)?", re.IGNORECASE)


def parse_version(text: str) -> Version:
    """``0.33``, ``v0.32.1``, ``1.3.0rc27``, ``0.24.0+cu128``. Raises ValueError for anything else."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"expected a version such as 0.33 or 0.32.1, not {text!r}")
    major, minor, patch = found.groups()
    return int(major), int(minor), int(patch or 0)


def version_text(version: Version) -> str:
    """``0.33`` for (0, 33, 0), ``0.32.1`` for (0, 32, 1)."""
    return f"{version[0]}.{version[1]}" + (f".{version[2]}" if version[2] else "")
