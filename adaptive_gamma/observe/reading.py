"""Reading observations back: of a log with what was put aside of it, or of any lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.observe.observation import Observation

__all__ = ["Found", "Since", "parse_since", "read_lines", "read_log"]

Since = float
"""Unix seconds."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_LENGTH = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhdw])")
_LONGEST_LINE = 1 << 20


@dataclass
class Found:
    """What a log holds."""

    observations: list[Observation] = field(default_factory=list)
    unreadable: int = 0
    """Lines that are no observation; the last line of a process that was killed is one."""
    dropped: int = 0
    """Observations that the log says it has lost."""
    earlier: int = 0
    """Observations left out because they are older than asked for."""


def parse_since(text: str, now: float) -> Since:
    """A length of time before ``now`` (``90s``, ``15m``, ``1h``, ``2d``, ``1w``), an ISO 8601 time, or Unix seconds.

    A time without an offset is in UTC. Raises ValueError.
    """
    text = text.strip()
    if (length := _LENGTH.fullmatch(text)) is not None:
        return now - float(length[1]) * _UNITS[length[2]]
    if re.fullmatch(r"\d{9,11}(\.\d+)?", text):
        return float(text)
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"expected a length of time (30s, 15m, 1h, 2d), a time such as 2026-05-01T12:00:00Z, or Unix seconds, not "
            f"{text[:60]!r}"
        ) from None


def read_lines(lines: Iterable[bytes], since: Since) -> Found:
    """The observations among ``lines`` that were decided at ``since`` or later."""
    found = Found()
    for line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("not an object")
            if "dropped" in row and "v" not in row:
                found.dropped += int(row["dropped"])
                continue
            observation = Observation.from_mapping(row)
        except (ValueError, TypeError, OverflowError, RecursionError):
            found.unreadable += 1
            continue
        if observation.time_s >= since:
            found.observations.append(observation)
        else:
            found.earlier += 1
    found.observations.sort(key=lambda each: each.time_s)
    return found


def read_log(path: Path, since: Since) -> Found:
    """The observations in a log file and in ``path.1``, ``path.2`` and so on beside it.

    Raises ConfigurationError when there is no such file or it cannot be read.
    """
    parts = [path]
    while (older := path.with_name(f"{path.name}.{len(parts)}")).is_file():
        parts.append(older)
    return read_lines(_lines(reversed(parts)), since)


def _lines(paths: Iterable[Path]) -> Iterator[bytes]:
    for path in paths:
        try:
            with path.open("rb") as file:
                while line := file.readline(_LONGEST_LINE):
                    yield line
        except OSError as error:
            raise ConfigurationError(str(path), "", f"cannot be read: {error.strerror or error}") from error
