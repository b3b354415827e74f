"""SGLang's ``--speculative-adaptive`` with its default table, as a choice of gamma.

Written from a description of SGLang 0.5.23. Batch sizes fall into slots, each with candidate numbers of steps and a
state of its own. A slot averages the accepted tokens of its batches exponentially and moves every few batches: down
while the average is no more than half a step below the next smaller candidate, else up while it exceeds the present
one less half a step. From 0 it always tries the smallest positive candidate again. There is no cost in it.

Two things are left out, both in its favour: batches are not padded to captured sizes before the slot is looked up, so
that slots of shorter drafts begin no earlier than named, and a change of gamma costs nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["DEFAULT_TABLE", "AdaptiveSlot", "AdaptiveTable", "SlotRule"]


@dataclass(frozen=True, slots=True)
class SlotRule:
    """One slot of the table, and how it moves."""

    candidates: tuple[int, ...]
    """Numbers of steps, rising; 0 drafts nothing."""
    up_hysteresis: float = 0.0
    down_hysteresis: float = 0.0
    ema_alpha: float = 0.2
    update_interval: int = 5
    """Batches between two moves."""
    warmup_batches: int = 10

    def __post_init__(self) -> None:
        if not self.candidates or self.candidates[0] < 0 or any(a >= b for a, b in pairwise(self.candidates)):
            raise ValueError(f"candidates must rise from 0 or more: {self.candidates!r}")


DEFAULT_TABLE: Mapping[int, SlotRule] = {
    1: SlotRule((1, 3, 5, 7), down_hysteresis=-0.25),
    8: SlotRule((0, 1, 3)),
    32: SlotRule((0, 1)),
    64: SlotRule((0,)),
}
"""By smallest batch size."""


@dataclass(slots=True)
class AdaptiveSlot:
    """The state of one slot."""

    rule: SlotRule
    steps: int
    """In force; one of the candidates."""
    average: float | None = None
    """Of the accepted tokens; None before the first draft."""
    switches: int = 0
    _batches: int = field(default=0, repr=False)

    @property
    def patience(self) -> int:
        """Batches until the next move."""
        rule, since = self.rule, self._batches - self.rule.warmup_batches
        return rule.update_interval - since if since < 0 else rule.update_interval - since % rule.update_interval

    def saw(self, accepted: float) -> None:
        """A batch accepted so many draft tokens a sequence, on average."""
        rule = self.rule
        if self.steps:
            before = accepted if self.average is None else self.average
            self.average = before + rule.ema_alpha * (accepted - before)
        self._batches += 1
        since = self._batches - rule.warmup_batches
        if since > 0 and since % rule.update_interval == 0:
            self._move()

    def _move(self) -> None:
        candidates, average = self.rule.candidates, self.average
        at = before = candidates.index(self.steps)
        if average is None or (self.steps == 0 and len(candidates) > 1):
            at = min(at + 1, len(candidates) - 1) if self.steps == 0 else at
        else:
            while at and average <= self._low(candidates[at - 1]):
                at -= 1
            if at == before:
                while at + 1 < len(candidates) and average > candidates[at] - 0.5 + self.rule.up_hysteresis:
                    at += 1
        self.switches += at != before
        self.steps = candidates[at]

    def _low(self, smaller: int) -> float:
        return 0.5 if smaller == 0 else smaller - 0.5 + self.rule.down_hysteresis


class AdaptiveTable:
    """All slots; one for each replica (``simulation.replay.WatchingChoice``).

    Args:
        start: draft tokens the server is started with; each slot begins with its largest candidate up to that.
        table: rules by smallest batch size, the first for 1.
    """

    def __init__(self, start: int, table: Mapping[int, SlotRule] = DEFAULT_TABLE) -> None:
        self._bounds = sorted(table)
        if not self._bounds or self._bounds[0] != 1:
            raise ValueError("the table must begin at batch size 1")
        self.slots = [
            AdaptiveSlot(rule, max((c for c in rule.candidates if c <= start), default=rule.candidates[0]))
            for rule in (table[bound] for bound in self._bounds)
        ]
        self._slot = self.slots[0]

    @property
    def patience(self) -> int:
        return self._slot.patience

    def at(self, batch: int, class_counts: Sequence[int], context: float | None) -> int:
        self._slot = self.slots[bisect_right(self._bounds, max(batch, 1)) - 1]
        return self._slot.steps

    def saw(self, accepted: npt.NDArray[np.float64]) -> bool:
        before = self._slot.steps
        for each in accepted.tolist():
            self._slot.saw(each)
        return self._slot.steps != before
