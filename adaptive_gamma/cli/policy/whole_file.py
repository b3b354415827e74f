"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from adaptive_gamma.errors import ConfigurationError

__all__ = ["write_whole"]


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
