"""The engines' journals: what each did with every request, written before it does it, so that a kill loses nothing.

One file an engine, appended to by each of its boots, one JSON array a line with the monotonic time of this machine
last. ``read_journals`` makes exchanges of them.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["Boot", "End", "Exchange", "Journal", "read_journals"]

End = Literal[
    "complete",  # the last byte is about to be written
    "left",  # the other side closed the connection first
    "died",  # the plan said so
    "raced",  # closed on purpose at the moment a reused connection brought the request
    "terminated",  # cut at the end of a SIGTERM's grace
    "killed",  # no end in the journal: the process was killed
]


@dataclass
class Exchange:
    """One request at one engine."""

    engine: int
    boot: int
    number: int
    request_id: str
    nth: int
    """Which request of its connection, from 1."""
    at: float
    """When its head had been read, monotonic seconds."""
    body_at: float | None = None
    body_mark: str = ""
    head_at: float | None = None
    status: int | None = None
    wrote: int = 0
    crc: int = 0
    done: bool = False
    """Whether [DONE] was written."""
    end: End = "killed"
    end_at: float | None = None
    rejected: bool = False


@dataclass
class Boot:
    """One life of an engine process."""

    engine: int
    number: int
    at: float
    idle_closes: int = 0


@dataclass
class _Read:
    boots: list[Boot] = field(default_factory=list)
    exchanges: dict[str, list[Exchange]] = field(default_factory=lambda: defaultdict(list))


class Journal:
    """The writing side, in the engine's process."""

    def __init__(self, path: Path, boot: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._boot = boot

    def write(self, kind: str, *values: Any) -> None:
        """One line, in the kernel's hands when this returns."""
        line = json.dumps([kind, self._boot, *values, time.monotonic()], separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read_journals(paths: Iterable[Path]) -> tuple[list[Boot], dict[str, list[Exchange]]]:
    """The boots, and the exchanges of each request id in order of time. The n-th path is that of engine n."""
    read = _Read()
    for engine, path in enumerate(paths):
        _read_one(engine, path, read)
    for exchanges in read.exchanges.values():
        exchanges.sort(key=lambda exchange: exchange.at)
    return read.boots, dict(read.exchanges)


def _read_one(engine: int, path: Path, read: _Read) -> None:
    by_number: dict[tuple[int, int], Exchange] = {}
    boots: dict[int, Boot] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            kind, boot, *values, at = json.loads(line)
            if kind == "boot":
                boots[boot] = Boot(engine, boot, at)
                read.boots.append(boots[boot])
                continue
            if kind == "idle":
                boots[boot].idle_closes += 1
                continue
            number = values[0]
            if kind == "request":
                _, request_id, nth = values
                exchange = Exchange(engine, boot, number, request_id, nth, at)
                by_number[boot, number] = exchange
                read.exchanges[request_id].append(exchange)
                continue
            exchange = by_number[boot, number]
            if kind == "body":
                exchange.body_at, exchange.body_mark = at, values[1]
            elif kind == "head":
                exchange.head_at, exchange.status, exchange.rejected = at, values[1], values[2]
            else:
                _, exchange.end, exchange.wrote, exchange.crc, exchange.done = values
                exchange.end_at = at
