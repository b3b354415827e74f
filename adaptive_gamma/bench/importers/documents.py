"""The JSON documents in a file, or its text where it holds none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.source import Source, printable

__all__ = ["MOST_BYTES", "Content", "Document", "read_content"]

MOST_BYTES = 1 << 30
"""A larger file is skipped: reading it would take the memory of the machine that builds the policy."""


TWICE = "stands twice in one object, and which of the two is meant is not known"


@dataclass(frozen=True, slots=True)
class Document:
    """One JSON value and where it stands."""

    source: Source
    value: Any


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds: JSON documents, or text that is no JSON."""

    documents: tuple[Document, ...] = ()
    text: str | None = None


def read_content(path: Path, findings: Findings) -> Content:
    """Read one file. Whatever cannot be read is a finding; nothing is raised."""
    source = Source(str(path))
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            findings.skipped(source, f"has {size} bytes, more than the {MOST_BYTES} a result file may have")
            return Content()
        raw = path.read_bytes()
    except OSError as error:
        findings.skipped(source, f"cannot be read: {error.strerror or type(error).__name__}")
        return Content()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        findings.skipped(source, f"is not UTF-8 text (byte {error.start})")
        return Content()
    if not text.strip():
        findings.skipped(source, "is empty")
        return Content()
    whole = _parse(text)
    if not isinstance(whole, _Broken):
        return Content((Document(source, whole),))
    if "\n" in text.strip() and (_is_object(text.lstrip().split("\n", 1)[0]) or _are_mostly_objects(text)):
        return Content(_lines(text, source, findings))
    if whole.twice is not None:
        findings.refused(source, TWICE, whole.twice)
        return Content()
    if text.lstrip()[0] in "{[" and not _looks_like_log(text):
        line = whole.line or 1
        findings.skipped(Source(source.file, line), f"is half-written or broken JSON: {whole.problem}")
        return Content()
    return Content(text=text)


@dataclass(frozen=True, slots=True)
class _Broken:
    problem: str
    line: int | None = None
    twice: str | None = None
    """The key that one object has twice."""


class _KeyTwice(Exception):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _KeyTwice(key)
            seen.add(key)
    return values


def _parse(text: str) -> Any:
    """The value, or what is wrong. Bare Infinity and NaN are read as Python writes them; fields judge them later."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except _KeyTwice as error:
        return _Broken(TWICE, twice=printable(str(error), 200))
    except json.JSONDecodeError as error:
        return _Broken(f"{error.msg} in column {error.colno}", error.lineno)
    except RecursionError:
        return _Broken("nested too deep")
    except ValueError as error:
        return _Broken(str(error))


def _is_object(line: str) -> bool:
    value = _parse(line)
    return value.twice is not None if isinstance(value, _Broken) else isinstance(value, dict)


def _are_mostly_objects(text: str) -> bool:
    """Whether at least half of the lines are JSON objects: a line of garbage does not make such a file another."""
    lines = [line for line in text.split("\n") if line.strip()]
    candidates = [line for line in lines if line.startswith("{")]
    return 2 * len(candidates) >= len(lines) and 2 * sum(map(_is_object, candidates)) >= len(lines)


def _lines(text: str, source: Source, findings: Findings) -> tuple[Document, ...]:
    documents = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        here = Source(source.file, number)
        value = _parse(line)
        if isinstance(value, _Broken) and value.twice is not None:
            findings.refused(here, TWICE, value.twice)
        elif isinstance(value, _Broken):
            findings.skipped(here, f"is half-written or broken JSON: {value.problem}")
        else:
            documents.append(Document(here, value))
    return tuple(documents)


def _looks_like_log(text: str) -> bool:
    """Whether the first line is bracketed words, as many loggers begin one, and not a JSON list or object."""
    first = text.lstrip().split("\n", 1)[0]
    return first.startswith("[") and "]" in first and not first.rstrip().endswith((",", "[", "{"))
