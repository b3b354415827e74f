"""Where the two files are when only the route is asked for: a directory of this vLLM alone, gone when it ends."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

from adaptive_gamma.vllm_plugin.settings import FILE, PluginSettings

__all__ = ["schedule_file_of"]


def schedule_file_of(settings: PluginSettings, environment: MutableMapping[str, str]) -> Path:
    """The schedule file. One that is made up here is put into the environment, so that the processes started from this
    one, the engine's among them, use the same."""
    if settings.file is not None:
        return settings.file
    directory = Path(tempfile.mkdtemp(prefix="adaptive-gamma-"))
    atexit.register(_remove, directory, os.getpid())
    path = directory / "gamma.json"
    environment[FILE] = str(path)
    return path


def _remove(directory: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)
