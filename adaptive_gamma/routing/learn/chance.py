"""How far beyond chance a difference lies."""

from __future__ import annotations

import math

__all__ = ["standard_score"]


def standard_score(chi_squared: float, freedom: int) -> float:
    """A chi-squared of so many degrees of freedom as the normal score of the same probability (Wilson, Hilferty)."""
    if freedom < 1 or chi_squared <= 0.0:
        return 0.0
    spread = 2.0 / (9.0 * freedom)
    return float((math.pow(chi_squared / freedom, 1.0 / 3.0) - (1.0 - spread)) / math.sqrt(spread))
