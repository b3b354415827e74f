"""Request traces in the columns of the Azure LLM inference traces: TIMESTAMP, ContextTokens, GeneratedTokens.

The public files (Azure public dataset, "Splitwise", ISCA 2024) are CSV with one request a line, ordered by arrival.
``TIMESTAMP`` is a date and time of day, with any number of digits after the second and an optional UTC offset, or a
plain number of seconds. Other columns are ignored, and the order of columns is free.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from adaptive_gamma.errors import ConfigurationError, TraceError, nearest

__all__ = ["COLUMNS", "Trace", "read_trace", "read_trace_lines"]

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

_MOST_TOKENS = 10_000_000
"""More tokens than this in one field are taken for a damaged line."""
_TICKS = 10_000_000
"""Ticks of 100 ns in a second: what the public traces resolve, and exact in an int."""
_SHOWN = 60
"""Characters of a refused value that an error shows."""

_DATE_TIME = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[ T](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,18}))?(Z|[+-]\d{2}:\d{2})?", re.ASCII
)
_SECONDS = re.compile(r"(\d{1,12})(?:\.(\d{1,18}))?", re.ASCII)
_COUNT = re.compile(r"[+-]?\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace; index i of each list is request i."""

    source: str
    """The file's path, or the name of the generator."""
    arrival_s: list[float]
    """Seconds since the first request, never falling."""
    prompt_tokens: list[int]
    output_tokens: list[int]

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return self.arrival_s[-1] if self.arrival_s else 0.0


def read_trace(path: str | Path) -> Trace:
    """Read a trace file (UTF-8, with or without a byte-order mark, any line ends).

    Raises:
        ConfigurationError: the file cannot be opened.
        TraceError: a line that cannot be read, with its number, its field and what was found.
    """
    source = str(path)
    try:
        # A byte that is not UTF-8 must reach the line's own check, so that the error can name the line.
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            return read_trace_lines(file, source)
    except OSError as error:
        raise ConfigurationError(source, "", f"the trace cannot be read: {error.strerror}") from error


def read_trace_lines(lines: Iterable[str], source: str) -> Trace:
    """Read a trace from its lines; ``source`` names it in errors.

    Raises:
        TraceError: as in ``read_trace``.
    """
    rows = _rows(lines, source)
    header = next(rows, None)
    if header is None:
        raise TraceError(source, 1, COLUMNS[0], "the file is empty; the first line must name the columns")
    time_at, prompt_at, output_at = _columns(header, source)
    width = max(time_at, prompt_at, output_at)

    arrival: list[float] = []
    prompts: list[int] = []
    outputs: list[int] = []
    first = last = 0
    dates: dict[tuple[str, str, str], int] = {}
    for line, row in rows:
        if len(row) <= width:
            missing = next(
                name for name, at in zip(COLUMNS, (time_at, prompt_at, output_at), strict=True) if at >= len(row)
            )
            raise TraceError(source, line, missing, f"the line has {len(row)} fields, this one is number {width + 1}")
        ticks = _ticks(row[time_at], dates, source, line)
        if not arrival:
            first = ticks
        elif ticks < last:
            raise TraceError(
                source,
                line,
                COLUMNS[0],
                f"{_show(row[time_at])} is {(last - ticks) / _TICKS:g} s before the line above; sort the file by time",
            )
        last = ticks
        arrival.append((ticks - first) / _TICKS)
        prompts.append(_count(row[prompt_at], COLUMNS[1], source, line))
        outputs.append(_count(row[output_at], COLUMNS[2], source, line))
    if not arrival:
        raise TraceError(source, header[0] + 1, COLUMNS[0], "the file names its columns but holds no request")
    return Trace(source, arrival, prompts, outputs)


def _rows(lines: Iterable[str], source: str) -> Iterator[tuple[int, list[str]]]:
    """(number of the line the row starts on, fields); empty lines are passed over."""
    reader = csv.reader(lines, strict=True)
    started = 1
    try:
        for row in reader:
            if row:
                yield started, row
            started = reader.line_num + 1
    except csv.Error as error:
        raise TraceError(source, started, "the line", f"is not CSV: {error}") from error


def _columns(header: tuple[int, list[str]], source: str) -> tuple[int, int, int]:
    line, found = header
    names = [name.strip() for name in found]
    for name in COLUMNS:
        if name not in names:
            close = nearest(name, names)
            hint = f" (is it {close!r}?)" if close else ""
            shown = ", ".join(_show(n) for n in names[:8])
            raise TraceError(source, line, name, f"no such column; found {shown}{hint}")
        if names.count(name) > 1:
            raise TraceError(source, line, name, "the column is there more than once")
    return names.index(COLUMNS[0]), names.index(COLUMNS[1]), names.index(COLUMNS[2])


def _ticks(text: str, dates: dict[tuple[str, str, str], int], source: str, line: int) -> int:
    stripped = text.strip()
    match = _DATE_TIME.fullmatch(stripped)
    if match is None:
        plain = _SECONDS.fullmatch(stripped)
        if plain is None:
            raise TraceError(source, line, COLUMNS[0], f"expected a date and time or seconds, found {_show(text)}")
        return int(plain[1]) * _TICKS + _fraction(plain[2])
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    days = dates.get((year, month, day))
    if days is None:
        try:
            days = dates[year, month, day] = date(int(year), int(month), int(day)).toordinal()
        except ValueError as error:
            raise TraceError(source, line, COLUMNS[0], f"{_show(text)} is no date: {error}") from error
    h, m, s = int(hour), int(minute), int(second)
    if h > 23 or m > 59 or s > 60:
        raise TraceError(source, line, COLUMNS[0], f"{_show(text)} is no time of day")
    seconds = days * 86400 + h * 3600 + m * 60 + s
    if offset and offset != "Z":
        shift = int(offset[1:3]) * 3600 + int(offset[4:6]) * 60
        seconds -= shift if offset[0] == "+" else -shift
    return seconds * _TICKS + _fraction(fraction)


def _fraction(digits: str | None) -> int:
    return int(digits[:7].ljust(7, "0")) if digits else 0


def _count(text: str, column: str, source: str, line: int) -> int:
    stripped = text.strip()
    if len(stripped) > 20 or _COUNT.fullmatch(stripped) is None:
        raise TraceError(source, line, column, f"expected a whole number of tokens, found {_show(text)}")
    value = int(stripped)
    if value < 0:
        raise TraceError(source, line, column, f"tokens cannot be negative, found {value}")
    if value > _MOST_TOKENS:
        raise TraceError(source, line, column, f"more than {_MOST_TOKENS} tokens in one request, found {value}")
    return value


def _show(text: str) -> str:
    cut = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    return repr(cut) if cut else "an empty field"
