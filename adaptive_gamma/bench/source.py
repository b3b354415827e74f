"""Where a row comes from."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Source", "printable"]


@dataclass(frozen=True, slots=True)
class Source:
    """A place in a file: its path as given, and the line (from 1) where the format has lines."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return printable(self.file) if self.line is None else f"{printable(self.file)}:{self.line}"


def printable(text: str, most: int = 4096) -> str:
    """The text as any terminal takes it, in one line: what cannot be shown is escaped, what is too long is cut."""
    text = text[:most]
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
