"""Lines written to a file or a stream by a thread of its own, within a bounded space, and none lost without a word.

The caller never waits for the disk: it hands over a line and goes on. Where the disk cannot keep up or cannot be
written to, or a reader does not read, lines are kept up to a limit; what is over it is dropped, counted, and told
among the lines themselves by one such as ``{"dropped": n}`` once they go out again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from adaptive_gamma.observe.line_sink import FileSink, LineSink

__all__ = ["LineLog", "LineWriter"]

_log = logging.getLogger("adaptive_gamma.observe")

MOST_WAITING = 50_000
_BATCH = 1000
_RETRY_S = 1.0
_GATHER_S = 0.1
"""Lines are written this long after the first of them, or at a full batch: each time costs the caller's thread too."""


def _dropped_as_json(count: int) -> bytes:
    return b'{"dropped":%d}' % count


class LineWriter:
    """Writes lines to a sink.

    Args:
        sink: where they go.
        name: what that is called in the log of this process.
        most_waiting: lines kept while they cannot be written.
        dropped_line: the line that tells of so many dropped ones.
    """

    def __init__(
        self,
        sink: LineSink,
        name: str,
        *,
        most_waiting: int = MOST_WAITING,
        dropped_line: Callable[[int], bytes] = _dropped_as_json,
    ) -> None:
        self.name = name
        self.written = 0
        """Lines written since the start."""
        self.dropped = 0
        """Lines lost since the start."""
        self.errors = 0
        """Failed attempts to write since the start."""
        self._sink = sink
        self._dropped_line = dropped_line
        self._most_waiting = most_waiting
        self._waiting: deque[bytes] = deque()
        self._told = 0
        self._wake = threading.Condition()
        self._closing = False
        self._failing = False
        self._overfull = False
        """Whether the sink is over its size because no new one could be begun."""
        self._batch: bytes = b""
        """Lines of which the sink may have a part; empty when it has all."""
        self._sent = 0
        """Bytes of them that it has."""
        self._halves = 0
        self._thread = threading.Thread(target=self._run, name=f"log {name}", daemon=True)
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
                while not (self._waiting or self._batch or self._closing):
                    self._wake.wait()
                self._wake.wait_for(lambda: self._closing or len(self._waiting) >= _BATCH, _GATHER_S)
                if self._failing and not self._closing:
                    self._wake.wait_for(lambda: self._closing, _RETRY_S)
                closing = self._closing
            try:
                # Not for as long as lines come: each turn costs the caller's thread, which would write line by line.
                while (self._waiting or self._batch or self._told < self.dropped) and self._write_some(closing):
                    continue
                if self._failing:
                    _log.warning("%s is written again", self.name)
                    self._failing = False
            except OSError as error:
                self._failed(error)
                if closing:
                    self._give_up()
            if closing:
                with contextlib.suppress(OSError):
                    self._sink.close()
                return

    def _write_some(self, closing: bool) -> bool:
        """Write at most a batch. Gives whether to go on at once."""
        # Also before the rest of a batch: a full disk may have been freed by taking the file away.
        if self._sink.look() and self._batch:
            self._sent = self._batch.rfind(b"\n", 0, self._sent) + 1
        if not self._batch:
            lines: list[bytes] = []
            if (dropped := self.dropped - self._told) > 0:
                lines.append(self._dropped_line(dropped))
            size = self._sink.size
            room = self._sink.max_bytes - size - sum(len(line) + 1 for line in lines)
            taken = self._take(lines, room, size)
            if not taken and self._waiting:
                if self._put_aside():
                    return True
                taken = self._take(lines, math.inf, size)
            self._told += dropped
            self._batch, self._sent, self._halves = b"\n".join([*lines, b""]), 0, taken
        while self._sent < len(self._batch):
            self._sent += self._sink.write(self._batch[self._sent :])
        self.written += self._halves
        self._batch, self._sent, self._halves = b"", 0, 0
        return closing or len(self._waiting) >= _BATCH

    def _take(self, lines: list[bytes], room: float, size: int) -> int:
        """Move lines that are waiting into ``lines``, as many as there is room for and a batch may have; how many."""
        taken = 0
        with self._wake:
            while self._waiting and taken < _BATCH:
                length = len(self._waiting[0]) + 1
                if length > room and (size or lines):
                    break
                room -= length
                taken += 1
                lines.append(self._waiting.popleft())
        return taken

    def _put_aside(self) -> bool:
        """Begin a new file; where that cannot be, lines go on into the one there is, which is told once."""
        try:
            self._sink.begin_anew()
        except OSError as error:
            self.errors += 1
            if not self._overfull:
                self._overfull = True
                _log.error(
                    "%s is full and cannot be put aside: %s; it grows until that is mended",
                    self.name,
                    error.strerror or errno.errorcode.get(error.errno or 0, str(error)),
                )
            return False
        if self._overfull:
            self._overfull = False
            _log.warning("%s is put aside at its size again", self.name)
        return True

    def _failed(self, error: OSError) -> None:
        self.errors += 1
        if not self._failing:
            self._failing = True
            _log.error(
                "%s cannot be written: %s; up to %d lines are kept, further ones are dropped and counted",
                self.name,
                error.strerror or errno.errorcode.get(error.errno or 0, str(error)),
                self._most_waiting,
            )

    def _give_up(self) -> None:
        lost = self.waiting
        self._waiting.clear()
        self._batch, self._sent, self._halves = b"", 0, 0
        self.dropped += lost
        _log.error("%s: %d lines could not be written and are lost", self.name, lost)


class LineLog(LineWriter):
    """Appends lines to the file ``path``.

    Args:
        path: the file; its folder must be there.
        max_bytes: size at which a new file is begun. A line longer than that has a file of its own.
        files: files kept in all.
        most_waiting: lines kept while they cannot be written.
        dropped_line: the line that tells of so many dropped ones.

    Raises:
        OSError: the file cannot be opened for writing now.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int,
        files: int,
        most_waiting: int = MOST_WAITING,
        dropped_line: Callable[[int], bytes] = _dropped_as_json,
    ) -> None:
        self.path = path
        self._file = FileSink(path, max_bytes=max_bytes, files=files)
        super().__init__(self._file, str(path), most_waiting=most_waiting, dropped_line=dropped_line)

    def resize(self, *, max_bytes: int, files: int) -> None:
        """Go on with other limits."""
        with self._wake:
            self._file.max_bytes, self._file.files = max_bytes, files
