"""The blocks of a page, in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "RUN", "Block", "Page", "pages", "read_page", "unmarked_commands"]

ROOT = Path(__file__).resolve().parents[2]
RUN = {"sh": "sh", "bash": "sh", "shell": "sh", "console": "sh", "python": "python"}
"""Languages of blocks that are run, and by what."""

_FENCE = re.compile(r"^(?P<indent> {0,3})(?P<ticks>`{3,}|~{3,})(?P<info>.*)$")
_TITLE = re.compile(r'title="([^"]+)"')
_NOT_RUN = re.compile(r"^<!-- not run: (.+\S) -->$")
_COMMAND = re.compile(
    r"^\s*(?:\$ |(?:adaptive-gamma|make|curl|helm|kubectl|pip|docker|python3?|vllm|envoy|export)(?= [a-z./<'\"$-]))"
)


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    line: int
    """Of its opening fence, from 1."""
    language: str
    text: str
    title: str | None
    """Name of the file that it is, or None."""
    not_run: str | None
    """Why it is left out, or None."""

    @property
    def runs_by(self) -> str | None:
        """``sh``, ``python``, or None for a block that is not run by its nature."""
        return RUN.get(self.language)


@dataclass(frozen=True)
class Page:
    """A page and its blocks."""

    path: Path
    blocks: tuple[Block, ...]

    @property
    def name(self) -> str:
        return (self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path).as_posix()

    @property
    def commands(self) -> tuple[Block, ...]:
        return tuple(block for block in self.blocks if block.runs_by is not None)


def pages() -> list[Page]:
    """README, CONTRIBUTING where there is one, and every page of the documentation that people wrote."""
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [read_page(path) for path in paths if path.is_file() and "reference" not in path.parts]


def read_page(path: Path) -> Page:
    """The page. Raises ValueError for a fence that does not end, or a mark with nothing to leave out."""
    blocks: list[Block] = []
    mark: str | None = None
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            said = _NOT_RUN.match(line)
            if mark is not None and line.strip():
                raise ValueError(f"{path}:{number}: 'not run' stands right before the block it is about")
            mark = said[1] if said else mark
            continue
        text: list[str] = []
        for _, inner in lines:
            if inner.strip().startswith(fence["ticks"]) and not inner.strip().strip(fence["ticks"][0]):
                break
            text.append(inner[len(fence["indent"]) :])
        else:
            raise ValueError(f"{path}:{number}: the block does not end")
        info = fence["info"].strip()
        title = _TITLE.search(info)
        block = Block(number, info.split(" ")[0], "\n".join(text) + "\n", title[1] if title else None, mark)
        if mark is not None and block.runs_by is None:
            raise ValueError(f"{path}:{number}: 'not run' before a block that is never run")
        mark = None
        blocks.append(block)
    return Page(path, tuple(blocks))


def unmarked_commands(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that look like commands and stand in a block that would not be run: indented, or fenced without a language
    that is run."""
    inside: str | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        if fence is not None:
            inside = fence["info"].strip().split(" ")[0] if inside is None else None
            continue
        # Settings and programs hold words that look like commands; text and nothing do not.
        suspect = inside in ("", "text") if inside is not None else line.startswith("    ")
        if suspect and _COMMAND.match(line):
            yield number, line.strip()
