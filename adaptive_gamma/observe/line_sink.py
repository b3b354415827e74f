"""Where lines go: a file that is put aside at its size, or a stream that somebody reads."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
from pathlib import Path
from typing import Protocol

__all__ = ["FileSink", "LineSink", "StreamSink"]

_MODE = 0o640
_WAIT_MS = 1000


class LineSink(Protocol):
    """Takes whole lines. Used by one thread; any call may raise OSError."""

    def look(self) -> bool:
        """Before anything is written: see that it is still the right place. Whether another one was begun."""

    @property
    def size(self) -> int:
        """Bytes in it now."""

    @property
    def max_bytes(self) -> float:
        """Size at which a new one is begun."""

    def begin_anew(self) -> None:
        """Put aside what is there. Where that raises OSError, what is there can still be written to."""

    def write(self, data: bytes) -> int:
        """Write as much as goes; the number of bytes."""

    def close(self) -> None:
        """Nothing more comes."""


class FileSink:
    """A file; at ``max_bytes`` it is put aside as ``path.1``, what was that as ``path.2``.

    A file that something else has moved or removed is begun anew. Whatever is in the file at the start stays.

    Raises:
        OSError: the file cannot be opened for writing now.
    """

    def __init__(self, path: Path, *, max_bytes: int, files: int) -> None:
        self.path = path
        self.max_bytes: float = max_bytes
        self.files = files
        self._descriptor = self._open()

    def look(self) -> bool:
        mine = os.fstat(self._descriptor)
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            self._open_anew()
            return True
        return False

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def begin_anew(self) -> None:
        aside = [self.path, *(self._aside(n) for n in range(1, self.files))]
        for path in (*aside, self._aside(self.files)):
            if path.is_dir():  # which would be moved along as if it were ours, until it stands in the way
                raise IsADirectoryError(errno.EISDIR, f"{path.name} is a directory", str(path))
        beyond = self.files
        while beyond > 1 and self._aside(beyond).exists():
            self._aside(beyond).unlink()
            beyond += 1
        for older, newer in zip(aside[:0:-1], aside[-2::-1], strict=True):
            with contextlib.suppress(FileNotFoundError):
                os.replace(newer, older)
        if self.files == 1:
            os.unlink(self.path)
        self._open_anew()

    def write(self, data: bytes) -> int:
        return os.write(self._descriptor, data)

    def close(self) -> None:
        os.close(self._descriptor)

    def _aside(self, n: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{n}")

    def _open_anew(self) -> None:
        fresh = self._open()
        os.close(self._descriptor)
        self._descriptor = fresh

    def _open(self) -> int:
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":  # a process died in the middle of a line
                os.write(descriptor, b"\n")
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


class StreamSink:
    """A stream that is open already, such as standard output. Its reader may be slow: then the thread waits."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)

    def look(self) -> bool:
        """There is no other place."""
        return False

    @property
    def size(self) -> int:
        return 0

    @property
    def max_bytes(self) -> float:
        return math.inf

    def begin_anew(self) -> None:
        """It never gets too large."""

    def write(self, data: bytes) -> int:
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:  # somebody who shares it has made it so
            poll = select.poll()
            poll.register(self._descriptor, select.POLLOUT)
            poll.poll(_WAIT_MS)
            return 0

    def close(self) -> None:
        os.close(self._descriptor)
