"""Ranges that catch a number given in the wrong unit, and say so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, TypeAlias, TypeGuard

from pydantic import AfterValidator

__all__ = ["Efficiency", "Rate", "at_least_zero", "is_number", "measured_in"]


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def measured_in(unit: str, low: float, high: float, other_units: Mapping[str, float]) -> AfterValidator:
    """A number in ``low`` .. ``high`` of ``unit``; one that fits as another unit (name: its size) is told so."""

    def check(value: float) -> float:
        if low <= value <= high:
            return value
        for name, size in other_units.items():
            if low <= value * size <= high:
                raise ValueError(f"expected {unit}, but {value:g} looks like {name}; write {value * size:g}")
        raise ValueError(f"expected {unit} in {low:g}..{high:g}, not {value!r}")

    return AfterValidator(check)


def at_least_zero(high: float, meaning: str) -> AfterValidator:
    """A number in 0 .. ``high``; ``meaning`` says of what, in which unit."""

    def check(value: float) -> float:
        if 0 <= value <= high:
            return value
        raise ValueError(f"expected {meaning}, in 0..{high:g}, not {value!r}")

    return AfterValidator(check)


def _efficiency(value: float) -> float:
    if 0 < value <= 1:
        return value
    hint = f"; {value:g} % is {value / 100:g}" if 1 < value <= 100 else ""
    raise ValueError(f"expected a fraction in (0, 1], not {value!r}{hint}")


def _rate(value: float) -> float:
    if math.isfinite(value) and 0 <= value <= 1:
        return value
    hint = f"; {value:g} % is {value / 100:g}" if 1 < value <= 100 else ""
    raise ValueError(f"expected a rate in 0..1, not {value!r}{hint}")


Efficiency: TypeAlias = Annotated[float, AfterValidator(_efficiency)]
Rate: TypeAlias = Annotated[float, AfterValidator(_rate)]
