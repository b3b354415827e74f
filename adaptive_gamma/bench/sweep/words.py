"""Text that came from an engine, made fit to be shown and kept."""

from __future__ import annotations

__all__ = ["fit_to_show"]


def fit_to_show(text: str, most: int = 300) -> str:
    """At most so many characters, none of them a control character or half of a surrogate pair."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:most]).strip()
