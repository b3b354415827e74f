"""Who chooses the gamma of a replica, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from adaptive_gamma.routing import GammaSchedule, GammaSetting
from adaptive_gamma.simulation.replay.pricing import PLAIN, StepPrices

__all__ = ["BestGamma", "ConstantGamma", "GammaChoice", "HeldGamma", "ScheduledGamma", "WatchingChoice"]


class GammaChoice(Protocol):
    """Chooses a replica's gamma as its batch changes."""

    def at(self, batch: int, class_counts: Sequence[int], context: float | None) -> int:
        """Draft tokens of a step, or ``PLAIN``; ``class_counts`` are the batch's sequences by class."""


@runtime_checkable
class WatchingChoice(Protocol):
    """A choice that is told of every step, and may want another gamma because of what it saw."""

    @property
    def patience(self) -> int:
        """Steps, at least 1, after which it may want to choose anew."""
        ...

    def at(self, batch: int, class_counts: Sequence[int], context: float | None) -> int: ...

    def saw(self, accepted: npt.NDArray[np.float64]) -> bool:
        """Mean accepted tokens of a sequence in each step, at most ``patience`` steps; whether to ask ``at`` anew."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantGamma:
    """The same at every load: a gamma, or ``PLAIN``."""

    key: int

    def at(self, batch: int, class_counts: Sequence[int], context: float | None) -> int:
        return self.key


@dataclass(slots=True)
class HeldGamma:
    """A gamma for every batch, or a schedule, until somebody sets another. After a change tell the replica to
    ``review``."""

    setting: GammaSetting

    def at(self, batch: int, class_counts: Sequence[int], context: float | None) -> int:
        setting = self.setting
        return setting.at(batch) if isinstance(setting, GammaSchedule) else setting


@dataclass(frozen=True, slots=True)
class ScheduledGamma:
    """The engine's own schedule by batch size; gamma 0 in it pays the drafter's tax."""

    schedule: GammaSchedule

    def at(self, batch: int, class_counts: Sequence[int], context: float | None) -> int:
        return self.schedule.at(batch)


class BestGamma:
    """The gamma, ``PLAIN`` among them, that gives a batch's class mix the most tokens a second.

    Args:
        prices: of steps.
        expected: by class, tokens a step with 0, 1, .. draft tokens, as acceptance truly is.
    """

    def __init__(self, prices: StepPrices, expected: Sequence[Sequence[float]]) -> None:
        self._prices = prices
        self._expected = expected
        self._known: dict[tuple[float | None, tuple[int, ...]], int] = {}

    def at(self, batch: int, class_counts: Sequence[int], context: float | None) -> int:
        rounded = None if context is None else float(round(context / 64.0) * 64)
        found = self._known.get((rounded, tuple(class_counts)))
        if found is not None:
            return found
        best, highest = PLAIN, batch / self._prices.seconds(PLAIN, batch, rounded)
        for gamma in range(1, len(self._expected[0])):
            tokens = sum(n * e[gamma] for n, e in zip(class_counts, self._expected, strict=True))
            rate = tokens / self._prices.seconds(gamma, batch, rounded)
            if rate > highest:
                best, highest = gamma, rate
        self._known[rounded, tuple(class_counts)] = best
        return best
