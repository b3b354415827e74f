"""How much of what an engine says is believed: beyond these bounds a value is unknown.

A page or a response is another program's word, and a wrong one must not end in a decision, in a number of 309 digits
or in an arithmetic error.
"""

from __future__ import annotations

import math

__all__ = ["LARGEST_COUNT", "LARGEST_GAMMA", "believed_gamma", "request_count", "share"]

LARGEST_GAMMA = 64
"""Draft tokens per step; the limit of the configuration's ``gamma`` too."""
LARGEST_COUNT = 2.0**53
"""Beyond it a float no longer counts in steps of one, so no difference of two totals means anything."""
_MOST_REQUESTS = 1e6
_FULL = 1.01


def believed_gamma(gamma: int) -> int | None:
    """``gamma`` where it is one that an engine may speculate with, else None."""
    return gamma if 0 < gamma <= LARGEST_GAMMA else None


def request_count(value: float | None) -> int | None:
    """A gauge of requests; None where it is negative, not finite or above a million."""
    if value is None or not math.isfinite(value) or not 0 <= value <= _MOST_REQUESTS:
        return None
    return round(value)


def share(value: float | None) -> float | None:
    """A share of a whole, 0..1; rounding of a full whole is forgiven, a percentage is not taken for a share."""
    return None if value is None or not 0 <= value <= _FULL else min(value, 1.0)
