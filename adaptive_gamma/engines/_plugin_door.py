"""The two ways to the plugin inside of vLLM: its route on the engine's own port, or two files on a shared volume.

Both give the same JSON. What goes wrong is an :class:`ActuatorError` with one of these reasons:

    ``absent``        no such route, or no state file: the plugin is not there (yet)
    ``unauthorized``  the token is refused, or this machine is
    ``silent``        no whole answer in time, no connection, or the server says that its engine does not answer
    ``malformed``     something else than the state
    ``refused``       the engine does not take what it was sent
    ``unwritable``    the schedule file cannot be written
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from pathlib import Path
from typing import Any, Protocol

from pydantic import SecretStr

from adaptive_gamma.engines._plugin_state import FORMAT, short_text
from adaptive_gamma.engines.actuator import EngineCalls, GammaRanges
from adaptive_gamma.errors import ActuatorError, ScrapeError

__all__ = ["PATH", "FileDoor", "HttpDoor", "PluginDoor", "state_file_of"]

PATH = "/plugins/adaptive-gamma/schedule"

_READ_S = 2.0
_WRITE_S = 4.0
"""The engine has a second to take a schedule before its server gives up."""
_LARGEST = 1 << 20
_MODE = 0o640
"""Another container, of the same group, reads the file; it holds no secret."""


class PluginDoor(Protocol):
    """A way in."""

    kind: str
    """``http`` or ``file``."""

    async def read(self) -> dict[str, Any]:
        """The state. Raises ActuatorError."""

    async def write(self, schedule: GammaRanges | None, revision: str) -> dict[str, Any] | None:
        """Ask for a schedule, None: that of the start-up. The state after it, where this way tells at once.

        Raises ActuatorError.
        """

    async def close(self) -> None: ...


class HttpDoor:
    """The route.

    Args:
        calls: to the engine, with the token.
        token: to keep it out of what the server's words are quoted in.
    """

    kind = "http"

    def __init__(self, calls: EngineCalls, token: SecretStr) -> None:
        self._calls = calls
        self._token = token

    async def read(self) -> dict[str, Any]:
        return await self._call("GET", None, _READ_S)

    async def write(self, schedule: GammaRanges | None, revision: str) -> dict[str, Any] | None:
        if schedule is None:
            return await self._call("DELETE", None, _WRITE_S)
        body = json.dumps({"schedule": schedule, "revision": revision}, separators=(",", ":")).encode()
        return await self._call("PUT", body, _WRITE_S)

    async def close(self) -> None:
        await self._calls.close()

    async def _call(self, method: str, body: bytes | None, timeout_s: float) -> dict[str, Any]:
        try:
            status, answer = await self._calls.exchange(method, PATH, body, timeout_s=timeout_s, max_bytes=_LARGEST)
        except ScrapeError as error:
            if error.reason in ("too_large", "encoding"):
                raise ActuatorError("malformed", f"the answer of the plugin's route: {self._clean(error)}") from None
            raise ActuatorError("silent", f"the plugin's route gives no answer: {self._clean(error)}") from None
        told = _object(answer)
        if status == 200:
            if told is None:
                raise ActuatorError("malformed", "the plugin's route answers with something else than a JSON object")
            return told
        said = self._clean(_message(told)) or "no reason given"
        if status == 404:
            raise ActuatorError("absent", f"the engine has no {PATH}: the plugin is not loaded, or has no token")
        if status == 401:
            raise ActuatorError("unauthorized", f"the plugin refuses gamma_control.token: {said}")
        if status == 403:
            raise ActuatorError("unauthorized", f"the plugin refuses this machine: {said}")
        if status in (400, 409, 413, 422):
            raise ActuatorError("refused", f"{said} ({status})")
        if status >= 500:
            raise ActuatorError("silent", f"{said} ({status})")
        raise ActuatorError("malformed", f"the plugin's route answers {status}")

    def _clean(self, words: object) -> str:
        return short_text(str(words).replace(self._token.get_secret_value(), "[token]"))


class FileDoor:
    """The pair of files: we write the one, the plugin the other beside it.

    Args:
        path: the schedule file.
    """

    kind = "file"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state = state_file_of(path)

    async def read(self) -> dict[str, Any]:
        return await asyncio.to_thread(self._read)

    async def write(self, schedule: GammaRanges | None, revision: str) -> dict[str, Any] | None:
        value = {"format": FORMAT, "revision": revision, "schedule": schedule}
        await asyncio.to_thread(self._write, json.dumps(value, separators=(",", ":")).encode())
        return None

    async def close(self) -> None:
        """Nothing stays open."""

    def _read(self) -> dict[str, Any]:
        try:
            with open(self._state, "rb", opener=_at_once) as file:
                content = file.read(_LARGEST + 1) or b""
        except FileNotFoundError:
            raise ActuatorError("absent", f"there is no {self._state}: the plugin has not started (yet)") from None
        except OSError as error:
            raise ActuatorError("absent", f"{self._state} cannot be read: {error.strerror}") from None
        told = _object(content) if len(content) <= _LARGEST else None
        if told is None:
            raise ActuatorError("malformed", f"{self._state} holds something else than a JSON object")
        return told

    def _write(self, content: bytes) -> None:
        beside = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}.tmp")
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(beside, self._path)
            except OSError:
                beside.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise ActuatorError("unwritable", f"{self._path} cannot be written: {error.strerror}") from None


def state_file_of(path: Path) -> Path:
    """Where the plugin tells what became of a schedule file: ``gamma.json`` has ``gamma.state.json`` beside it."""
    return path.with_name(f"{path.stem}.state.json")


def _at_once(path: str, flags: int) -> int:
    """Opens a pipe in the state file's place without waiting for one who writes: the thread would never come back."""
    return os.open(path, flags | os.O_NONBLOCK)


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _message(told: dict[str, Any] | None) -> object:
    error = None if told is None else told.get("error")
    return error.get("message") if isinstance(error, dict) else None
