"""A free number of a model."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FittedParameter", "Parameter"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number to be fitted, between bounds."""

    name: str
    low: float
    high: float
    start: float
    unit: str
    told_by: str
    """What observations must hold to tell it, in words that follow "needs"."""
    held_at: float | None = None
    """What it is taken to be where the observations cannot tell it; None refuses the fit."""

    @property
    def scale(self) -> float:
        """A size it is natural to measure it in."""
        return max(abs(self.start), (self.high - self.low) * 1e-9, 1e-15)


@dataclass(frozen=True, slots=True)
class FittedParameter:
    """A fitted number with its 95 % interval over repeats."""

    name: str
    value: float
    low: float | None
    """None where it is not known: no bootstrap was asked for, or there are no more points than parameters."""
    high: float | None
    unit: str
    held: bool = False
    """True where the observations could not tell it and it was held at ``value``."""

    def __str__(self) -> str:
        interval = "" if self.low is None or self.high is None else f" ({self.low:.4g} to {self.high:.4g})"
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.name} = {self.value:.4g}{interval}{unit}{', held' if self.held else ''}"
