"""What the environment of vLLM says to the plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["FILE", "REMOTE", "TOKEN", "TOKEN_FILE", "UNTESTED", "PluginSettings", "SettingsError"]

FILE = "ADAPTIVE_GAMMA_PLUGIN_FILE"
TOKEN = "ADAPTIVE_GAMMA_PLUGIN_TOKEN"  # nosec B105  # the name of a variable
TOKEN_FILE = "ADAPTIVE_GAMMA_PLUGIN_TOKEN_FILE"  # nosec B105  # the name of a variable
REMOTE = "ADAPTIVE_GAMMA_PLUGIN_REMOTE"
UNTESTED = "ADAPTIVE_GAMMA_PLUGIN_UNTESTED"
_KNOWN = (FILE, TOKEN, TOKEN_FILE, REMOTE, UNTESTED)
_PREFIX = "ADAPTIVE_GAMMA_PLUGIN_"
_SHORTEST_TOKEN = 16
_LARGEST_TOKEN_FILE = 4096


class SettingsError(ValueError):
    """A variable that cannot be used. The text names it and never holds its value."""


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """How the plugin is reached, and on which vLLM."""

    file: Path | None = None
    """The schedule file, absolute; the state file stands beside it."""
    token: str | None = field(default=None, repr=False)
    """What a request to the route must carry; None: there is no route."""
    remote: bool = False
    """Whether the route also answers clients that are not on this machine."""
    untested: bool = False
    """Whether to run in a vLLM that this was not tested with."""

    @property
    def active(self) -> bool:
        return self.file is not None or self.token is not None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> PluginSettings:
        """Read them.

        Raises:
            SettingsError: a variable is unknown, or its value is of no use.
        """
        for name in environment:
            if name.startswith(_PREFIX) and name not in _KNOWN:
                raise SettingsError(f"{name} is not known; there are {', '.join(_KNOWN)}")
        file = environment.get(FILE) or None
        path = None if file is None else Path(file)
        if path is not None and (not path.is_absolute() or path.suffix != ".json"):
            raise SettingsError(f"{FILE} must be an absolute path that ends with .json")
        return cls(path, _token(environment), _flag(environment, REMOTE), _flag(environment, UNTESTED))


def _token(environment: Mapping[str, str]) -> str | None:
    token, file = environment.get(TOKEN) or None, environment.get(TOKEN_FILE) or None
    name = TOKEN
    if file is not None:
        if token is not None:
            raise SettingsError(f"both {TOKEN} and {TOKEN_FILE} are set")
        name = TOKEN_FILE
        try:
            with open(file, encoding="utf-8") as stream:
                token = stream.read(_LARGEST_TOKEN_FILE).strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise SettingsError(f"the file that {TOKEN_FILE} names cannot be read: {reason}") from None
    if token is None:
        return None
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise SettingsError(f"{name} must hold {_SHORTEST_TOKEN} or more printable ASCII characters without a space")
    return token


def _flag(environment: Mapping[str, str], name: str) -> bool:
    value = environment.get(name, "").lower()
    if value in ("", "0", "false", "no"):
        return False
    if value in ("1", "true", "yes"):
        return True
    raise SettingsError(f"{name} must be 1 or 0")
