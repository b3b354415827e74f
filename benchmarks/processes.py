"""Processes of a benchmark: each ends with its block, by its own id; CPU and memory from /proc."""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

__all__ = [
    "BenchmarkError",
    "cpu_seconds",
    "end_on_sigterm",
    "free_port",
    "raise_file_limit",
    "resident_mb",
    "running",
    "until",
]

_TICKS = os.sysconf("SC_CLK_TCK")
_START_S = 30.0
_END_S = 10.0


class BenchmarkError(Exception):
    """A part of the benchmark that could not run; its text says why."""


@contextlib.contextmanager
def running(
    command: Sequence[str | Path],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    talks: bool = False,
    folder: Path | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """A process, SIGTERM and at last SIGKILL when the block ends.

    Args:
        log: file for its standard error, and for its standard output where it does not talk.
        environment: variables beside those of this process.
        talks: standard input and output are pipes.
    """
    with log.open("w") as written:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE if talks else written,
            stderr=written,
            env=None if environment is None else {**os.environ, **environment},
            cwd=folder,
            text=True,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends them
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def end_on_sigterm() -> None:
    """SIGTERM ends the benchmark as Ctrl-C does, blocks and their processes included."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def until(happened: Callable[[], bool], what: str, process: subprocess.Popen[str], log: Path) -> None:
    """Look every 10 ms until a process just started has done what it should.

    Raises:
        BenchmarkError: it ended, or took too long; with the end of its log.
    """
    deadline = time.monotonic() + _START_S
    while not happened():
        if process.poll() is not None or time.monotonic() > deadline:
            why = "in time" if process.poll() is None else f"before it ended with {process.returncode}"
            raise BenchmarkError(f"{what}: not {why}: {log.read_text().strip()[-800:]}")
        time.sleep(0.01)


def _with_children(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _with_children(int(child))


def cpu_seconds(pid: int) -> float:
    """utime + stime of a process and its living children."""
    ticks = 0
    for each in _with_children(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


def resident_mb(pid: int) -> float:
    """VmRSS of a process and its children, pages they share counted for each."""
    kilobytes = 0
    for each in _with_children(pid):
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{each}/status").read_text())
        kilobytes += int(found[1]) if found else 0
    return kilobytes / 1024


def free_port() -> int:
    """A port nobody listens on now, below those the kernel gives to clients."""
    while True:
        with socket.socket() as probe:
            port = random.randrange(20_000, 32_000)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port


def raise_file_limit() -> int:
    """Let this process and those it starts open as many files as they may; returns how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = 65_536
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
