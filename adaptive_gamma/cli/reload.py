"""Configuration and policy of a command: read at the start, and again when told to or when a file has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from adaptive_gamma.cli.discovered import DiscoveredReplicas
from adaptive_gamma.config import (
    FileChanges,
    Settings,
    Stamp,
    check_class_names,
    load_settings,
    stamp_of,
    stamps_of,
    variable_of,
)
from adaptive_gamma.errors import ConfigurationError, PolicyError, shortened
from adaptive_gamma.policy import CLASS_ALIASES, Policy, find_policy, load_policy, shipped_policies
from adaptive_gamma.routing import CLASSES

__all__ = ["Configuration", "Reloader", "watch_files"]

_log = logging.getLogger("adaptive_gamma.reload")

_LOOK_FOR_THE_SETTING_S = 1.0


class Configuration:
    """Where settings and policy come from: one file, the environment and the command line."""

    def __init__(self, path: Path | None, overrides: Mapping[str, str | None]) -> None:
        self._path = path
        self._overrides = overrides
        self._read_before = False
        self.stamps: Mapping[Path, Stamp] = {}
        """The files that the last load read, or tried to, as they looked before."""

    def load(self) -> tuple[Settings, Policy]:
        """Read and check everything, at the start as at each reload.

        Raises ConfigurationError, or PolicyError for a policy file that cannot be used.
        """
        if self._path is not None and self._read_before and _is_piped(self._path):
            raise ConfigurationError(
                str(self._path), "", "was piped in, and can be read only once; restart to change it"
            )
        self._read_before = True
        # What was read before is watched on should this file not even say which policy it wants.
        stamps = stamps_of([*self.stamps, *([] if self._path is None else [self._path])])
        try:
            settings = load_settings(self._path, overrides=self._overrides, policies=shipped_policies())
            stamps = {path: stamp for path, stamp in stamps.items() if path == self._path}
            file = _policy_file(settings.policy)
            stamps[file] = stamp_of(file)
            policy = _named_policy(settings, self.origin("policy"))
        finally:
            self.stamps = stamps
        check_class_names(settings, {*CLASSES, *CLASS_ALIASES, *policy.classes}, self.origin)
        return settings, policy

    def origin(self, key: str) -> str:
        """The option, variable or file that gave a dotted key."""
        if self._overrides.get(key) is not None:
            return f"--{key}"
        return variable_of(key) or ("environment" if self._path is None else str(self._path))


def _is_piped(path: Path) -> bool:
    """Whether it is no file that could be read again: the end of it may never come."""
    return path.exists() and not (path.is_file() or path.is_dir())


def _named_policy(settings: Settings, source: str) -> Policy:
    """The policy the settings name; ``source`` is where they name it."""
    try:
        find_policy(settings.policy)
    except PolicyError as error:
        shown = shortened(settings.policy)
        raise ConfigurationError(source, "policy", f"{shown!r}: {error.problem}", error.suggestion) from error
    return load_policy(settings.policy)


def _policy_file(name_or_path: str) -> Path:
    """The file of a policy, or the one that would be it were it there."""
    try:
        return find_policy(name_or_path)
    except PolicyError:
        return Path(name_or_path)


class Reloader:
    """Applies the configuration again when asked to, one reload at a time; the last request is never lost."""

    def __init__(self, configuration: Configuration, found: DiscoveredReplicas) -> None:
        self.body = found.body
        self._configuration = configuration
        self._found = found
        self._task: asyncio.Task[None] | None = None
        self._again = False

    @property
    def busy(self) -> bool:
        """Whether a reload is under way."""
        return self._task is not None

    def wanted(self) -> None:
        """Reload now, or once more after the reload under way."""
        self._again = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="reload")
            self._task.add_done_callback(self._ended)

    async def _run(self) -> None:
        while self._again:
            self._again = False
            try:
                # In a thread, as a large fleet's file takes a fifth of a second to read.
                settings, policy = await asyncio.to_thread(self._configuration.load)
            except ConfigurationError as error:
                self.body.reload_failed()
                _log.error("the configuration stays as it is: %s", error)
                continue
            if self.body.draining:
                return
            try:
                self._found.reload(settings, policy, self._configuration.origin)
            except ConfigurationError as error:
                _log.error("the configuration stays as it is: %s", error)
                continue
            replicas = ", ".join(f"{replica.name}={replica.url}" for replica in self.body.settings.replicas)
            _log.info(
                "configuration loaded again: policy %s, mode %s, replicas %s", policy.name, settings.mode, replicas
            )

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            self.body.reload_failed()
            _log.error("a reload met a fault of ours", exc_info=task.exception())
        if self._again and not task.cancelled():
            self.wanted()


async def watch_files(configuration: Configuration, reloader: Reloader) -> None:
    """Have everything read again when a file has changed, for as long as ``reload.watch_s`` is set; never returns."""
    changes = FileChanges()
    while True:
        watch_s = reloader.body.settings.reload.watch_s
        await asyncio.sleep(_LOOK_FOR_THE_SETTING_S if watch_s is None else watch_s)
        if watch_s is None or reloader.busy:
            continue
        loaded = configuration.stamps
        # In a thread, as a file system over the network may take its time.
        if changes.changed(loaded, await asyncio.to_thread(stamps_of, loaded)) and not reloader.busy:
            _log.info("configuration or policy has changed")
            reloader.wanted()
