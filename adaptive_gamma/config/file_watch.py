"""Whether files have changed, found by looking at them now and then.

Looking works where change notices do not: on network file systems, in containers, and for a Kubernetes ConfigMap, whose
files are links into a folder that is swapped as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

__all__ = ["FileChanges", "Stamp", "stamp_of", "stamps_of"]

Stamp: TypeAlias = tuple[str, int, int, int, int] | None
"""Where the path leads, device, inode, time of change in nanoseconds, size; None where there is no such file."""


def stamp_of(path: Path) -> Stamp:
    """What tells one content of a file from another without reading it."""
    try:
        found, leads_to = os.stat(path), os.path.realpath(path)
    except (OSError, ValueError):
        return None
    return leads_to, found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


class FileChanges:
    """Tells when files are no longer what was loaded.

    A file is given the time from one look to the next to become whole: one that is still being written has changed
    again by then. One that has gone is a change too, if it is still gone at the next look.
    """

    def __init__(self) -> None:
        self._before: Mapping[Path, Stamp] | None = None

    def changed(self, loaded: Mapping[Path, Stamp], now: Mapping[Path, Stamp]) -> bool:
        """Whether files that looked like ``loaded`` when they were read look otherwise ``now``, and are at rest."""
        before, self._before = self._before, now
        return now != loaded and now == before


def stamps_of(paths: Iterable[Path]) -> dict[Path, Stamp]:
    """The stamps of several files."""
    return {path: stamp_of(path) for path in paths}
