"""Writing the files so that Envoy never sees half of one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from adaptive_gamma.errors import ConfigurationError

__all__ = ["FileWriter"]


class FileWriter:
    """Puts files into a folder, each by a rename, which is what Envoy watches for, and only when it has changed.

    Args:
        folder: is made where it is not there.
        private: the files hold a key: only their owner may read them.

    Raises:
        ConfigurationError: the folder cannot be made.
    """

    def __init__(self, folder: Path, *, private: bool) -> None:
        self.folder = folder
        self.private = private
        self._written: dict[str, dict[str, Any]] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError("--out", "", f"{folder} cannot be made: {error.strerror}") from error

    def write(self, name: str, content: dict[str, Any]) -> bool:
        """Write a file of JSON; whether it had changed. Raises ConfigurationError where that fails.

        ``content`` is kept, to be held against the next.
        """
        if self._written.get(name) == content:
            return False
        data = json.dumps(content, separators=(",", ":")).encode()
        path = self.folder / name
        mode = 0o600 if self.private else 0o644
        try:
            path.parent.mkdir(exist_ok=True)
            beside = path.with_name(f".{path.name}.new")
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)
                file.write(data)
            os.replace(beside, path)
        except OSError as error:
            raise ConfigurationError("--out", "", f"{path} cannot be written: {error.strerror}") from error
        self._written[name] = content
        return True

    def forget(self, names: set[str]) -> None:
        """Delete files that this writer wrote and nobody names any more."""
        for name in names & self._written.keys():
            del self._written[name]
            (self.folder / name).unlink(missing_ok=True)

    @property
    def names(self) -> set[str]:
        """What has been written so far."""
        return set(self._written)
