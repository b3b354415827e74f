"""What the doctor knows of an engine beside its metrics."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from adaptive_gamma.doctor.evidence import Version
from adaptive_gamma.doctor.finding import Fix

__all__ = ["EngineWords"]


@dataclass(frozen=True, slots=True)
class EngineWords:
    """One engine."""

    name: str
    """As the dialect of its metrics is called, where there is one."""
    title: str
    owners: frozenset[str]
    """What it calls the owner of its models in ``/v1/models``."""
    log_mark: re.Pattern[bytes]
    """What only its log holds."""
    gamma_flags: Callable[[int, Version | None], tuple[str, ...]]
    """The flags that set gamma."""
    statistics_fix: Fix
    """How its metrics are switched on."""
    reading_resets: str | None = None
    """What reading its metrics does to others that read them; None where nothing."""
    reading_fix: Fix | None = None
    page_is_read: bool = True
    """False where the doctor keeps its hands off the page."""
