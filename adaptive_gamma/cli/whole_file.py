"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from adaptive_gamma.errors import ConfigurationError

__all__ = ["refuse_input", "refuse_unwritable", "write_whole"]


def refuse_input(flag: str, output: str | Path | None, inputs: Iterable[str | Path | None]) -> None:
    """Raises ConfigurationError, naming ``flag``, where a file that is to be written is one that the command reads.

    Links are followed. What is no file on the disk, such as a name of a shipped policy or a pipe, is passed over.
    """
    if output is None or not Path(output).is_file():
        return
    for each in inputs:
        if each is not None and Path(each).is_file() and os.path.samefile(output, each):
            raise ConfigurationError(flag, "", f"{output} is what this command reads: it would be overwritten")


def refuse_unwritable(name: str) -> None:
    """Find out before long work that a file could not be written: its folder is missing or closed, or it is a folder.

    Raises ConfigurationError, as ``write_whole`` does.
    """
    path = Path(os.path.realpath(name))
    problem = None
    if path.is_dir():
        problem = errno.EISDIR
    elif not path.exists() and not path.parent.is_dir():
        problem = errno.ENOENT
    elif not os.access(path if path.exists() and not path.is_file() else path.parent, os.W_OK):
        problem = errno.EACCES
    if problem is not None:
        raise ConfigurationError(name, "", f"cannot be written: {os.strerror(problem)}")


def write_whole(name: str, text: str) -> None:
    """Write to a temporary file of the same folder and rename it, so that no reader and no full disk sees half a file.

    A link is followed; a pipe or device is written to as it is. Raises ConfigurationError where it cannot be written;
    then what was there before is there still.
    """
    try:
        path = Path(os.path.realpath(name))
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        beside = path.with_name(f".{path.name[:200]}.{os.getpid()}.tmp")
        try:
            beside.write_text(text, encoding="utf-8")
            if path.exists():
                beside.chmod(stat.S_IMODE(path.stat().st_mode))
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(name, "", f"cannot be written: {error.strerror or error}") from error
