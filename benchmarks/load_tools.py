"""The mock engine and the load client in ``load/``: building and running them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .processes import BenchmarkError, running

__all__ = ["LoadClient", "LoadTools", "MockEngine", "build_load_tools", "find_compiler"]

_SOURCES = Path(__file__).parent / "load"
_FLAGS = ("-O2", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra")


def find_compiler() -> str | None:
    """The system's C compiler: ``$CC``, or the first of cc, gcc and clang."""
    named = os.environ.get("CC")
    return next((found for name in (named, "cc", "gcc", "clang") if name and (found := shutil.which(name))), None)


@dataclass(frozen=True)
class LoadTools:
    """The built programs and the folder they and all logs lie in."""

    folder: Path

    @contextlib.contextmanager
    def mock_engine(self) -> Iterator[MockEngine]:
        """An engine of its own, on two free ports."""
        with running([self.folder / "mock_engine"], log=self.folder / "mock_engine.log", talks=True) as process:
            assert process.stdout is not None
            said = process.stdout.readline().split()
            if len(said) != 3:
                raise BenchmarkError("the mock engine did not start: " + (self.folder / "mock_engine.log").read_text())
            yield MockEngine(process.pid, (int(said[1]), int(said[2])))

    @contextlib.contextmanager
    def load(self, mode: str, port: int, **options: float) -> Iterator[LoadClient]:
        """A load on a port; the block's end stops it. Modes and options: see ``load/load_client.c``."""
        command = [str(self.folder / "load_client"), mode, f"port={port}", *(f"{k}={v:g}" for k, v in options.items())]
        with running(command, log=self.folder / "load_client.log", talks=True) as process:
            yield LoadClient(process)


@dataclass(frozen=True)
class MockEngine:
    pid: int
    ports: tuple[int, int]

    def stats(self) -> dict[str, int]:
        """Its counters since it started."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=10)
        try:
            connection.request("GET", "/mock/stats")
            stats: dict[str, int] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return stats


class LoadClient:
    """One load that runs. Its output is read in step with what it is asked, one line at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def all_flow(self) -> bool:
        """Streams only: wait until each has had its first event. False when the load ended before."""
        return self._line() == "flowing"

    def counters(self) -> dict[str, int]:
        """``requests`` answered, ``chunks`` received and ``failed`` by now."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        counters: dict[str, int] = json.loads(self._line())
        return counters

    def result(self) -> dict[str, float]:
        """Wait for the end of the load."""
        line = self._line()
        if line == "flowing":
            line = self._line()
        result: dict[str, Any] = json.loads(line)
        return result

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchmarkError("the load client ended without a result")
        return line.strip()


def build_load_tools(folder: Path, *flags: str) -> LoadTools:
    """Compile both programs into a folder.

    Raises:
        BenchmarkError: no compiler, or it refuses.
    """
    compiler = find_compiler()
    if compiler is None:
        raise BenchmarkError(
            "no C compiler (cc, gcc, clang or $CC): the load generator and the mock engine are built with it; "
            "on Debian: apt-get install gcc libc6-dev"
        )
    for name in ("mock_engine", "load_client"):
        source = str(_SOURCES / f"{name}.c")
        built = subprocess.run(
            [compiler, *_FLAGS, *flags, "-o", str(folder / name), source], capture_output=True, text=True, check=False
        )
        if built.returncode:
            raise BenchmarkError(f"{compiler} cannot build {name}: {built.stderr.strip()[-800:]}")
    return LoadTools(folder)
