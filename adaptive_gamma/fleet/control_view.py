"""What the rest of the fleet sees of the one who sets a replica's gamma."""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

__all__ = ["GammaControlView"]


class GammaControlView(Protocol):
    """What pages say of the one who sets a replica's gamma."""

    changes: Counter[str]
    failures: Counter[str]

    @property
    def problem(self) -> str | None: ...

    @property
    def best(self) -> int | None: ...

    def as_dict(self, now: float) -> dict[str, Any]: ...
