"""The type of every option that takes a number with a fraction."""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["ARRIVAL_SCALE", "MILLISECONDS", "TRACE_SECONDS", "FiniteFloat"]


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


ARRIVAL_SCALE = FiniteFloat(1e-6, 1e6)
"""Factor on the arrival rate of a trace; within these bounds no time of any trace overflows or runs together."""
TRACE_SECONDS = FiniteFloat(0, 1e9, min_open=True)
"""Seconds of a trace's own time, up to decades."""
MILLISECONDS = FiniteFloat(0, 86_400_000, min_open=True)
"""A limit on a time of a request, up to a day."""
