"""The blocks of a page, in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["ROOT", "RUN", "Block", "Page", "pages", "read_page", "unmarked_commands"]

ROOT = Path(__file__).resolve().parents[2]
RUN = {"sh": "sh", "bash": "sh", "shell": "sh", "console": "sh", "python": "python"}
"""Languages of blocks that are run, and by what."""

_FENCE = re.compile(r"^(?P<indent> {0,3})(?P<ticks>`{3,}|~{3,})(?P<info>.*)$")
_TITLE = re.compile(r'title="([^"]+)"')
_NOT_RUN = re.compile(r"^<!-- not run: (.+\S) -->$")
_NEEDS = re.compile(r"^<!-- needs ([\w.-]+): (.+\S) -->$")
_UNTIL = re.compile(r"^<!-- goes on until: (.+\S) -->$")
_HAS = "<!-- the reader has:"
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
    needs: tuple[tuple[str, str], ...] = ()
    """Programs without which it is left out, each with what brings it."""
    until: str | None = None
    """Of a block that does not end by itself: the command that succeeds once it does what the page says of it."""
    reader_has: str = ""
    """Shell lines that make what the page supposes its reader to have: engines, files, values of variables."""

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
    """README, CONTRIBUTING, the examples' page, and every page of the documentation that people wrote."""
    alone = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md"]
    paths = [*alone, *sorted((ROOT / "docs").rglob("*.md"))]
    return [read_page(path) for path in paths if path.is_file() and "reference" not in path.parts]


def read_page(path: Path) -> Page:
    """The page. Raises ValueError for a fence that does not end, or a mark with nothing to stand before."""
    blocks: list[Block] = []
    marks = _Marks()
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            if line == _HAS:
                for _, inner in lines:
                    if inner == "-->":
                        break
                    marks.reader_has += f"{inner}\n"
                else:
                    raise ValueError(f"{path}:{number}: the comment does not end")
            elif not marks.take(line) and line.strip() and marks.any:
                raise ValueError(f"{path}:{number}: a mark stands right before the block it is about")
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
        block = Block(
            number,
            info.split(" ")[0],
            "\n".join(text) + "\n",
            title[1] if title else None,
            marks.not_run,
            tuple(marks.needs),
            marks.until,
            marks.reader_has,
        )
        if marks.any and block.runs_by is None:
            raise ValueError(f"{path}:{number}: a mark before a block that is never run")
        marks = _Marks()
        blocks.append(block)
    return Page(path, tuple(blocks))


@dataclass
class _Marks:
    """What comments have said of the block that comes."""

    not_run: str | None = None
    needs: list[tuple[str, str]] = field(default_factory=list)
    until: str | None = None
    reader_has: str = ""

    @property
    def any(self) -> bool:
        return bool(self.not_run or self.needs or self.until or self.reader_has)

    def take(self, line: str) -> bool:
        """Whether the line is a mark; it is then kept."""
        if said := _NOT_RUN.match(line):
            self.not_run = said[1]
        elif said := _NEEDS.match(line):
            self.needs.append((said[1], said[2]))
        elif said := _UNTIL.match(line):
            self.until = said[1]
        return said is not None


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
