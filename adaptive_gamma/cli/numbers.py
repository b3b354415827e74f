"""The type of every option that takes a number with a fraction."""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["FiniteFloat"]


class FiniteFloat(click.FloatRange):
    """A number within a range, and a number: ``nan`` lies within every range of click's own, for it compares false."""

    name = "finite float range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Raises click.BadParameter for what is no number, not finite, or outside of the range."""
        number = click.FLOAT.convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        found: float = super().convert(number, param, ctx)
        return found
