"""How many connections the process may hold: every one is an open file, and the engines' are some too."""

from __future__ import annotations

import resource

__all__ = ["most_connections"]

_RESERVE = 128
"""Files that clients leave alone: listeners, the admin port, scrapes, logs."""
_LEAST = 16


def most_connections() -> int:
    """Connections of clients that may be open at once, after the process's limit has been raised as far as it may be.

    Each may need another one to an engine.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # a system with a lower limit of its own
            pass
    if soft == resource.RLIM_INFINITY:
        return 1 << 20
    return max((soft - _RESERVE) // 2, _LEAST)
