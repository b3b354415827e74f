"""What a configuration may say and Envoy's files cannot."""

from __future__ import annotations

from collections.abc import Callable

from adaptive_gamma.config import Settings
from adaptive_gamma.errors import ConfigurationError

__all__ = ["refuse_settings"]

_MOST_BYTES = 2**32 - 1


def refuse_settings(settings: Settings, envoy_admin: str, origin: Callable[[str], str]) -> None:
    """Raises ConfigurationError for what cannot be said to an Envoy whose admin port is ``envoy_admin``.

    ``origin`` names who gave a key.
    """
    if settings.listen.endswith(":0"):
        raise ConfigurationError(
            origin("listen"), "listen", "Envoy's port must be a number that clients can know, not 0"
        )
    if settings.limits.body_bytes > _MOST_BYTES:
        raise ConfigurationError(
            origin("limits.body_bytes"), "limits.body_bytes", f"Envoy buffers no more than {_MOST_BYTES} bytes"
        )
    if envoy_admin in (settings.listen, settings.admin):
        raise ConfigurationError("--envoy-admin", "", f"{envoy_admin} is the configured listen or admin address")
