"""The monotonic clock of a started process, in the test's hand: it is moved by hours, or stands still.

A shim of a few lines of C is put before the C library's ``clock_gettime`` (LD_PRELOAD); it reads from a shared page how
far the clock is ahead and whether it stands. Event loops that wait look at their clock when they wake, so after a move
the process is woken by a request (``Served.advance`` does both).
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

__all__ = ["TimeMachine"]

_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile long long *page;   /* [0] nanoseconds ahead, [1] nanoseconds at which the clock stands, 0: it runs */
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TIME_MACHINE");
    int file = path ? open(path, O_RDONLY) : -1;
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (file >= 0) {
        void *mapped = mmap(0, 16, PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if (mapped != MAP_FAILED) page = mapped;
    }
}

int clock_gettime(clockid_t id, struct timespec *t) {
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, t);
    if (result == 0 && page &&
        (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_RAW || id == CLOCK_MONOTONIC_COARSE || id == CLOCK_BOOTTIME)) {
        long long now = page[1] ? page[1] : t->tv_sec * 1000000000LL + t->tv_nsec;
        now += page[0];
        t->tv_sec = now / 1000000000LL;
        t->tv_nsec = now % 1000000000LL;
    }
    return result;
}
"""


def _library(folder: Path) -> Path:
    """The shim, compiled; skips, with the reason, where there can be none."""
    compiler = shutil.which("cc")
    if not sys.platform.startswith("linux") or compiler is None:
        reason = "a process's clock can be moved only on Linux and with a C compiler"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    source, library = folder / "shim.c", folder / "shim.so"
    source.write_text(_SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library


class TimeMachine:
    """Give ``environment`` to one process at its start, then ``advance`` or ``stand`` its clock."""

    def __init__(self, folder: Path) -> None:
        path = folder / "clock"
        path.write_bytes(bytes(mmap.PAGESIZE))
        self.environment = {"LD_PRELOAD": str(_library(folder)), "TIME_MACHINE": str(path)}
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._ahead = 0

    def advance(self, seconds: float) -> None:
        """Move the clock on."""
        self._ahead += round(seconds * 1e9)
        self._page[0:8] = struct.pack("q", self._ahead)

    def stand(self) -> None:
        """Stop the clock: from here on no timer of the process can run out."""
        self._page[8:16] = struct.pack("q", time.clock_gettime_ns(time.CLOCK_MONOTONIC))

    def run(self) -> None:
        """Let it go on, by as much as it stood still."""
        self._page[8:16] = bytes(8)
