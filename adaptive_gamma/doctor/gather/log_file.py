"""A log file of any size, read once from its beginning to its end in memory that does not grow with it."""

from __future__ import annotations

import gzip
import re
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from adaptive_gamma.doctor.engines import ENGINES
from adaptive_gamma.doctor.engines.vllm.log import VllmLog
from adaptive_gamma.doctor.evidence import ServerStart
from adaptive_gamma.doctor.gather.unreadable import Unreadable

__all__ = ["LogEvidence", "cut_short", "read_log"]

_LONGEST_LINE = 256 * 1024
"""The rest of a longer line is not looked at. vLLM's longest line, its configuration, has some 10,000 letters."""
_HEAD = 1 << 20
"""Where a foreign log is searched for a sign of whose it is."""
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")
_REQUEST_LINE = b"INFO:     "
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class LogEvidence:
    """What a log told."""

    file: str
    engine: str
    starts: tuple[ServerStart, ...]
    starts_seen: int
    """How often a server started; ``starts`` holds the first and the last ones of very many."""
    has_start: bool
    """Whether the log holds a start's configuration: what precedes it may have been cut off."""


def cut_short(log: LogEvidence) -> Unreadable | None:
    """Why a log that was read does not tell of a whole start, or None where it does."""
    if not log.has_start:
        return Unreadable(log.file, "the log begins after the start, so what was said there is not known")
    last = log.starts[-1]
    if last.ready is None and last.died is None and last.shut_down is None:
        return Unreadable(log.file, "the log ends before the server is up, so what would have come is not known")
    return None


def read_log(path: Path) -> LogEvidence | Unreadable:
    """Read a log, gzipped or not; of several starts in one file each is kept apart."""
    given = str(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return Unreadable(given, "is no file")
        with path.open("rb") as plain:
            head = plain.read(2)
            plain.seek(0)
            if head != _GZIP:
                return _read(given, plain)
            with gzip.open(plain) as unpacked:
                return _read(given, cast(BinaryIO, unpacked))
    except (OSError, EOFError, zlib.error) as error:
        return Unreadable(given, f"cannot be read: {getattr(error, 'strerror', None) or error or 'it ends too soon'}")


def _read(given: str, stream: BinaryIO) -> LogEvidence | Unreadable:
    log = VllmLog(given)
    head: list[bytes] = []
    size, recognised = 0, False
    for number, line in _lines(stream):
        if size < _HEAD:
            head.append(line[:4096])
        size += len(line)
        if line.startswith(_REQUEST_LINE) and b"startup" not in line and b"Shutting" not in line:
            continue
        if not recognised and log.own.search(line):
            recognised = True
        if log.wanted.search(line):
            log.take(number, _COLOUR.sub("", line.decode("utf-8", "replace")))
    if not size:
        return Unreadable(given, "is empty")
    if not recognised:
        return Unreadable(given, _whose(b"\n".join(head)))
    return LogEvidence(given, "vllm", log.starts(), log.starts_seen, log.has_start)


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Lines as an editor numbers them; progress bars, which overwrite themselves, are one line."""
    number = 0
    while line := stream.readline(_LONGEST_LINE):
        number += 1
        whole = line.endswith(b"\n")
        yield number, line.rstrip(b"\r\n")
        while not whole:
            rest = stream.readline(_LONGEST_LINE)
            whole = not rest or rest.endswith(b"\n")


def _whose(head: bytes) -> str:
    for engine in ENGINES.values():
        if engine.log_mark.search(head):
            return f"is a log of {engine.title}; only logs of vLLM can be read"
    if b"\0" in head:
        return "is no text"
    if head.lstrip()[:1] == b"<":
        return "is HTML or XML, and no log of an engine"
    return "holds no line that vLLM writes"
