"""A small file that is whole whenever it is read, whatever happened while it was written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["StateFile"]

_LARGEST = 16 * 1024 * 1024


class StateFile:
    """JSON at a path. A write goes to a file beside it, to the disk, and then takes the place of the one before.

    Where the path is a link, all of that is done where it leads to. A pipe or a device is neither read nor replaced.

    May be used from several threads; writes come one after another.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self.ours = False
        """Whether what lies there is gone on from. Where it is not, the next write keeps it under another name."""

    def read(self) -> dict[str, Any] | None:
        """What was written last; None where nothing ever was. Left-overs of writes that were cut off are removed.

        Raises OSError where the file cannot be read, ValueError where it holds no JSON object.
        """
        with self._lock:
            place = self._place()
            for leftover in place.parent.glob(f".{_globbed(place.name)}.*.tmp"):
                leftover.unlink(missing_ok=True)
            try:
                with place.open("rb") as file:
                    text = file.read(_LARGEST + 1)
            except FileNotFoundError:
                return None
        if len(text) > _LARGEST:
            raise ValueError(f"is larger than {_LARGEST} bytes")
        try:
            data = json.loads(text)
        except RecursionError:
            raise ValueError("is nested too deeply") from None
        if not isinstance(data, dict):
            raise ValueError("holds no JSON object")
        return data

    def write(self, data: Mapping[str, Any]) -> None:
        """Replace what was written before; of a file that is not ours a copy stays, as ``NAME.refused``.

        Raises OSError, and then the one before is still there.
        """
        text = json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
        with self._lock:
            place = self._place()
            beside = place.with_name(f".{place.name}.{os.getpid()}.tmp")
            try:
                with beside.open("wb") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                if not self.ours and place.is_file():
                    shutil.copyfile(place, place.with_name(f"{place.name}.refused"))
                beside.replace(place)
                self.ours = True
            except OSError:
                beside.unlink(missing_ok=True)
                raise
            _to_disk(place.parent)

    def _place(self) -> Path:
        """Where the file lies, links followed. Raises OSError where something else than a file lies there."""
        place = Path(os.path.realpath(self.path))
        if place.exists() and not place.is_file():
            raise OSError(errno.EINVAL, "is no regular file", str(self.path))
        return place


def _to_disk(folder: Path) -> None:
    """Make a rename in a folder last, where the file system lets folders be synchronised."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # the file is whole either way; only a loss of power could bring back the one before
    finally:
        os.close(descriptor)


def _globbed(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
