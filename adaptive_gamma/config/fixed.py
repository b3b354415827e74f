"""What a running process cannot change: the ports it has bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from adaptive_gamma.config.settings import Settings
from adaptive_gamma.errors import ConfigurationError

__all__ = ["refuse_changes"]


def refuse_changes(before: Settings, after: Settings, keys: Iterable[str], origin: Callable[[str], str]) -> None:
    """Raises ConfigurationError where one of ``keys`` is another; all of them are named, and who gave them."""
    problems = [
        ConfigurationError(
            origin(key),
            key,
            f"{getattr(after, key)} needs a restart; this process serves at {getattr(before, key)}",
        )
        for key in keys
        if getattr(after, key) != getattr(before, key)
    ]
    if problems:
        raise ConfigurationError.together(problems)
