"""Pieces of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["MADE_BY", "cell", "code", "page", "prose", "table"]

MADE_BY = "<!-- Made from the code by `make reference`; changes here are lost. -->"

_ROLE = re.compile(r":\w+:`~?([^`]+)`")
_LITERAL = re.compile(r"``(.+?)``", re.S)


def prose(text: str) -> str:
    """A docstring's words as Markdown, on one line a paragraph: double backquotes become single ones."""
    text = _LITERAL.sub(lambda found: f"`{found[1]}`", _ROLE.sub(r"`\1`", text))
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text.strip()))


def code(text: str) -> str:
    """Text in backquotes, be there backquotes in it."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def cell(text: str) -> str:
    """Text that keeps within its column."""
    return " ".join(text.split()).replace("|", "\\|")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells' own bars are escaped."""
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return "\n".join(lines)


def page(title: str, *parts: str) -> str:
    """A whole page."""
    return "\n\n".join([f"# {title}", MADE_BY, *parts]) + "\n"
