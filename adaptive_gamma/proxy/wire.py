"""A client's request as it goes to an engine."""

from __future__ import annotations

from typing import NamedTuple

from adaptive_gamma.proxy.headers import ClientHeaders

__all__ = ["Wire"]


class Wire(NamedTuple):
    """What does not depend on the engine."""

    method: bytes
    target: bytes
    client: ClientHeaders
    has_body: bool
