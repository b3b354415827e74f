"""Lines written to a file by a thread of its own, within a bounded space, and none lost without a word.

The caller never waits for the disk: it hands over a line and goes on. Where the disk cannot keep up or cannot be
written to, lines are kept up to a limit; what is over it is dropped, counted, and told in the file itself by a line
``{"dropped": n}`` once it can be written to again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections import deque
from pathlib import Path

__all__ = ["LineLog"]

_log = logging.getLogger("adaptive_gamma.observe")

MOST_WAITING = 50_000
_BATCH = 1000
_RETRY_S = 1.0
_GATHER_S = 0.1
"""Lines are written this long after the first of them, or at a full batch: each time costs the caller's thread too."""
_MODE = 0o640


class LineLog:
    """Appends lines to ``path``; at ``max_bytes`` the file is put aside as ``path.1``, what was that as ``path.2``.

    A file that something else has moved or removed is begun anew. Whatever is in the file at the start stays.

    Args:
        path: the file; its folder must be there.
        max_bytes: size at which a new file is begun. A line longer than that has a file of its own.
        files: files kept in all.
        most_waiting: lines kept while they cannot be written.

    Raises:
        OSError: the file cannot be opened for writing now.
    """

    def __init__(self, path: Path, *, max_bytes: int, files: int, most_waiting: int = MOST_WAITING) -> None:
        self.path = path
        self.written = 0
        """Lines written since the start."""
        self.dropped = 0
        """Lines lost since the start."""
        self.errors = 0
        """Failed attempts to write since the start."""
        self._max_bytes = max_bytes
        self._files = files
        self._most_waiting = most_waiting
        self._waiting: deque[bytes] = deque()
        self._told = 0
        self._wake = threading.Condition()
        self._closing = False
        self._failing = False
        self._half: bytes = b""
        """What is left of lines of which the file has a part."""
        self._halves = 0
        self._descriptor = self._open()
        self._thread = threading.Thread(target=self._run, name=f"log {path.name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Lines handed over and not written yet."""
        return len(self._waiting) + self._halves

    def add(self, line: bytes) -> None:
        """Hand over a line, without its end. Returns at once."""
        with self._wake:
            if self._closing or len(self._waiting) >= self._most_waiting:
                self.dropped += 1
                return
            self._waiting.append(line)
            if len(self._waiting) in (1, _BATCH):
                self._wake.notify()

    def resize(self, *, max_bytes: int, files: int) -> None:
        """Go on with other limits."""
        with self._wake:
            self._max_bytes, self._files = max_bytes, files

    def finish(self) -> None:
        """Take no more lines; what was handed over is still written, by and by."""
        with self._wake:
            self._closing = True
            self._wake.notify()

    def close(self, timeout_s: float = 5.0) -> int:
        """Write what is waiting and stop. Returns the number of lines that could not be written in time."""
        self.finish()
        self._thread.join(timeout_s)
        return self.waiting if self._thread.is_alive() else 0

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._waiting or self._half or self._closing):
                    self._wake.wait()
                self._wake.wait_for(lambda: self._closing or len(self._waiting) >= _BATCH, _GATHER_S)
                if self._failing and not self._closing:
                    self._wake.wait_for(lambda: self._closing, _RETRY_S)
                closing = self._closing
            try:
                while self._waiting or self._half or self._told < self.dropped:
                    self._write_some()
                if self._failing:
                    _log.warning("%s is written again", self.path)
                    self._failing = False
            except OSError as error:
                self._failed(error)
                if closing:
                    self._give_up()
            if closing:
                with contextlib.suppress(OSError):
                    os.close(self._descriptor)
                return

    def _write_some(self) -> None:
        if not self._half:
            self._look_for_the_file()
            lines: list[bytes] = []
            if (dropped := self.dropped - self._told) > 0:
                lines.append(b'{"dropped":%d}' % dropped)
            size = os.fstat(self._descriptor).st_size
            room = self._max_bytes - size - sum(len(line) + 1 for line in lines)
            taken = 0
            with self._wake:
                while self._waiting and taken < _BATCH:
                    length = len(self._waiting[0]) + 1
                    if length > room and (size or lines):
                        break
                    room -= length
                    taken += 1
                    lines.append(self._waiting.popleft())
            if not taken and self._waiting:
                self._rotate()
                return
            self._told += dropped
            self._half, self._halves = b"\n".join([*lines, b""]), taken
        while self._half:
            self._half = self._half[os.write(self._descriptor, self._half) :]
        self.written += self._halves
        self._halves = 0

    def _look_for_the_file(self) -> None:
        mine = os.fstat(self._descriptor)
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            fresh = self._open()
            os.close(self._descriptor)
            self._descriptor = fresh

    def _rotate(self) -> None:
        aside = [self.path, *(self._aside(n) for n in range(1, self._files))]
        beyond = self._files
        while beyond > 1 and self._aside(beyond).exists():
            self._aside(beyond).unlink()
            beyond += 1
        for older, newer in zip(aside[:0:-1], aside[-2::-1], strict=True):
            with contextlib.suppress(FileNotFoundError):
                os.replace(newer, older)
        if self._files == 1:
            os.unlink(self.path)
        fresh = self._open()
        os.close(self._descriptor)
        self._descriptor = fresh

    def _aside(self, n: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{n}")

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

    def _failed(self, error: OSError) -> None:
        self.errors += 1
        if not self._failing:
            self._failing = True
            _log.error(
                "%s cannot be written: %s; up to %d lines are kept, further ones are dropped and counted",
                self.path,
                error.strerror or errno.errorcode.get(error.errno or 0, str(error)),
                self._most_waiting,
            )

    def _give_up(self) -> None:
        lost = self.waiting
        self._waiting.clear()
        self._half, self._halves = b"", 0
        self.dropped += lost
        _log.error("%s: %d lines could not be written and are lost", self.path, lost)
