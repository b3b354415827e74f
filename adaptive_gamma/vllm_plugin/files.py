"""The schedule file, which says what is wanted, and the state file beside it, which says what became of it.

Both are JSON objects with ``"format": 1``, replaced as a whole by a rename, so that a reader never sees half of one.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

__all__ = [
    "FORMAT",
    "FileError",
    "Fingerprint",
    "fingerprint",
    "read_object",
    "refuse",
    "state_file_of",
    "write_object",
]

FORMAT = 1
_LARGEST = 1 << 20

Fingerprint = tuple[int, int, int]


class FileError(ValueError):
    """A file that holds no object of ours. The text says why, without its content."""


def state_file_of(schedule_file: Path) -> Path:
    """Where what became of a schedule is told: ``gamma.json`` has ``gamma.state.json``."""
    return schedule_file.with_name(f"{schedule_file.stem}.state.json")


def fingerprint(path: Path) -> Fingerprint | None:
    """Changes whenever the file is replaced; None while there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_object(path: Path) -> dict[str, Any]:
    """The object in one of the two files.

    Raises:
        FileError: it cannot be read, is too large, or holds something else.
    """
    try:
        with open(path, "rb", opener=_at_once) as stream:
            content = stream.read(_LARGEST + 1) or b""
    except OSError as error:
        raise FileError(f"it cannot be read: {error.strerror}") from None
    if len(content) > _LARGEST:
        raise FileError(f"it has more than {_LARGEST} bytes")
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise FileError("it is not JSON") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise FileError(f'it is no object with "format": {FORMAT}')
    return value


def _at_once(path: str, flags: int) -> int:
    """Opens a pipe in a file's place without waiting for one who writes, so that the watch goes on."""
    return os.open(path, flags | os.O_NONBLOCK)


def write_object(path: Path, value: dict[str, Any]) -> None:
    """Replace one of the two files as a whole. Raises OSError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    content = json.dumps(value, separators=(",", ":")).encode()
    # Without fsync: a machine that crashes takes the engine with it, and what these files say of it.
    beside.write_bytes(content)
    os.replace(beside, path)


def refuse(schedule_file: Path, problem: str) -> None:
    """Tell those who wait for a state that there will be none. A directory that takes no file is not an error here:
    the log has said the same."""
    now = time.time()
    try:
        write_object(
            state_file_of(schedule_file),
            {"format": FORMAT, "status": "refused", "problem": problem, "started_at": now, "written_at": now},
        )
    except OSError:
        return
