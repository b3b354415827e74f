"""A decayed window of draft acceptance, out of counters that only grow.

Three demands meet here. The window must be long, so that sampling noise is small: half of its weight is younger than
``half_life_s`` seconds of traffic. It must follow a change of traffic within three scrapes that carry at least 100
drafts each. And nothing may be mixed in that was not measured.

A plain exponential window cannot do both of the first two: after three scrapes a second apart, a half-life of 30 s
has forgotten 7 %. Bounding the window's weight so that three scrapes outvote it would make it about as noisy as those
three scrapes at all times. So the window keeps its newest three chunks (a chunk is one scrape, or several that
together reach 100 drafts) apart from the rest, and at each scrape asks whether the newest one, two or three of them
can be of the same population as everything older: a two-proportion z-test on the acceptance of each position given
the position before, and a difference of 0.05 at least. Where they cannot, everything before the clearest of the three
splits is forgotten at once. A change too small for the test after three chunks is smaller than 0.05, or than three
standard errors of what these scrapes hold, that is, inside their sampling noise; it fades in with the half-life.

Drafts of one request resemble each other, so the test finds a change more often than independent drafts would let it.
The price of a needless change found is noise for a few scrapes, never bias.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from adaptive_gamma.engines.reading import SpeculationCounters
from adaptive_gamma.fleet.draft_counts import DraftCounts

__all__ = ["AcceptanceWindow", "DraftCounts", "PositionRate", "WindowUpdate"]

_CHUNK_DRAFTS = 100.0
_CHUNKS = 3
_Z_CLEAR = 4.0
"""For the newest one or two chunks; looked at often, so held to more."""
_Z_SETTLED = 3.0
"""For all three chunks."""
_LEAST_CHANGE = 0.05
"""At a thousand drafts a second every breath of the traffic is significant; what matters to a decision is not."""
_LEAST_TRIALS = 30.0
"""Fewer on either side and the normal approximation of the test does not hold."""
_LEAST_WEIGHT = 1.0
"""A rate over less than one whole trial is no data."""
_SHORTFALL = 0.06
"""Share of the configured length by which the mean draft may fall short and still count as fixed. Engines cut the
last drafts of a request to the tokens it may still have: a llama.cpp server with gamma 4 drafted 5.1 % short on
requests of 32 tokens, 2.4 % on 96, 1.0 % on 300, and its rates by position came out at most 0.05 low. An n-gram
drafter or a schedule at work falls short by a third and more."""


class PositionRate(NamedTuple):
    """Acceptance of one draft position, given that all positions before it were accepted."""

    rate: float
    """0..1"""
    trials: float
    """Decayed number of drafts that reached the position."""


class WindowUpdate(NamedTuple):
    """What one look at the counters brought."""

    drafts: float
    """Drafts since the look before (draft tokens on an engine that does not count drafts)."""
    restarted: bool
    """A counter fell: the engine started anew, and the window with it."""
    changed: bool
    """Acceptance changed by more than chance: the window forgot what was before."""
    counts: DraftCounts | None = None
    """What was counted since the look before; None where nothing was drafted, or from when is not known."""


class AcceptanceWindow:
    """Acceptance of one replica lately.

    Args:
        half_life_s: half-life of the weights, in seconds of traffic: time stands still while no draft arrives.
    """

    def __init__(self, half_life_s: float = 30.0) -> None:
        if not half_life_s > 0:
            raise ValueError(f"half_life_s must be positive, not {half_life_s}")
        self.half_life_s = half_life_s
        """May be changed; holds from the next look on."""
        self._last: SpeculationCounters | None = None
        self._last_at: float | None = None
        self._old = DraftCounts()
        self._recent: deque[DraftCounts] = deque()
        self._sum: DraftCounts | None = None

    def update(
        self,
        counters: SpeculationCounters | None,
        at: float,
        class_shares: Mapping[str, float] | None = None,
        *,
        restarted: bool = False,
    ) -> WindowUpdate:
        """Take in the counters of a scrape.

        The first look sets the base line and brings no data: how old those counts are is not known. After a restart
        the counts are those since the start, all of them new. Counters of None (the engine does not speculate, or
        does not say) empty the window.

        Args:
            counters: totals since the engine's start.
            at: monotonic seconds of the look; earlier than the look before counts as no time at all.
            class_shares: what share of the sequences in the engine each class had since the look before; need not
                sum to 1. None or empty: not known.
            restarted: other evidence that the engine started anew, where its draft counters do not show it.
        """
        previous, previous_at = self._last, self._last_at
        self._last, self._last_at = counters, at
        if counters is None:
            self._forget_all()
            return WindowUpdate(0.0, restarted, False)
        if previous is None:
            return WindowUpdate(0.0, restarted, False)
        if restarted or _fell(previous, counters):
            restarted = True
            self._forget_all()
            previous = SpeculationCounters(drafts=0.0, draft_tokens=0.0, accepted_tokens=0.0)
        elif 0 < len(previous.accepted_per_position) < len(counters.accepted_per_position):
            self._forget_all()  # more positions than before: what was counted with fewer does not compare
            return WindowUpdate(0.0, False, True)
        elif bool(previous.drafted_per_position) != bool(counters.drafted_per_position):
            self._forget_all()  # from here on drafts are counted by position, or no longer
            return WindowUpdate(0.0, False, True)
        delta = _delta(previous, counters, class_shares or {})
        if delta.weight <= 0:
            return WindowUpdate(0.0, restarted, False)
        elapsed = max(at - previous_at, 0.0) if previous_at is not None else 0.0
        drafts = delta.weight
        self._decay(0.5 ** (elapsed / self.half_life_s))
        counts = delta.copy()
        self._append(delta)
        changed = self._forget_another_population()
        self._sum = None
        return WindowUpdate(drafts, restarted, changed, counts)

    @property
    def weight(self) -> float:
        """Decayed number of drafts in the window (draft tokens on an engine that does not count drafts)."""
        return self._counts().weight

    @property
    def variable_draft_length(self) -> bool | None:
        """Whether drafts were shorter than the number of position labels: acceptance by position then reads low.

        None without data, or on an engine without position labels.
        """
        counts = self._counts()
        if counts.drafts < _LEAST_WEIGHT or not counts.per_position:
            return None
        return counts.draft_tokens / counts.drafts < len(counts.per_position) * (1.0 - _SHORTFALL)

    @property
    def drafted_by_position(self) -> bool:
        """Whether drafts are counted by position too: then their length biases nothing."""
        return self._counts().drafted is not None

    def drafts_by_length(self) -> dict[int, float] | None:
        """Decayed drafts by the number of tokens they had; None where drafts are not counted by position."""
        drafted = self._counts().drafted
        if not drafted:
            return None
        longer = (*drafted[1:], 0.0)
        lengths = {n: has - more for n, (has, more) in enumerate(zip(drafted, longer, strict=True), 1) if has > more}
        return lengths or None

    @property
    def accepted_per_draft(self) -> float | None:
        """Mean number of accepted tokens of a draft, the bonus token not counted. Exact for any draft length."""
        counts = self._counts()
        return counts.accepted / counts.drafts if counts.drafts >= _LEAST_WEIGHT else None

    @property
    def token_acceptance(self) -> float | None:
        """Accepted over drafted tokens, 0..1: all that an engine tells which counts neither drafts nor positions."""
        counts = self._counts()
        if counts.draft_tokens < _LEAST_WEIGHT:
            return None
        return min(counts.accepted / counts.draft_tokens, 1.0)

    @property
    def conditional(self) -> tuple[float, ...] | None:
        """Acceptance of position i given that position i-1 was accepted, 0..1, from position 0 on.

        Ends before the first position that no draft reached. None without completed drafts, without position labels,
        and where the draft length varies and drafts are not counted by position.
        """
        rates = self.position_rates()
        return None if rates is None else tuple(rate for rate, _ in rates)

    def position_rates(self) -> tuple[PositionRate, ...] | None:
        """:attr:`conditional` with the number of trials behind each rate."""
        varies = self.variable_draft_length
        if varies is None or (varies and not self.drafted_by_position):
            return None
        rates = []
        for accepted, reached in self._counts().trials():
            if reached < _LEAST_WEIGHT:
                break
            rates.append(PositionRate(accepted / reached, reached))
        return tuple(rates)

    def drafts_by_class(self) -> dict[str | None, float]:
        """Decayed drafts by the class of their requests; key None holds those of unknown class."""
        return dict(self._counts().by_class)

    def _counts(self) -> DraftCounts:
        if self._sum is None:
            self._sum = DraftCounts()
            for part in (self._old, *self._recent):
                self._sum.add(part)
        return self._sum

    def _forget_all(self) -> None:
        self._old = DraftCounts()
        self._recent.clear()
        self._sum = None

    def _decay(self, factor: float) -> None:
        if factor < 1.0:
            for part in (self._old, *self._recent):
                part.scale(factor)

    def _append(self, delta: DraftCounts) -> None:
        if self._recent and self._recent[-1].weight < _CHUNK_DRAFTS:
            self._recent[-1].add(delta)
            return
        self._recent.append(delta)
        if len(self._recent) > _CHUNKS:
            self._old.add(self._recent.popleft())

    def _forget_another_population(self) -> bool:
        """Drop what lies before the likeliest point of change, if there is one beyond chance."""
        chunks = list(self._recent)
        newest, keep, clearest = DraftCounts(), 0, 0.0
        for size in range(1, len(chunks) + 1):
            newest.add(chunks[-size])
            older = DraftCounts()
            for part in (self._old, *chunks[:-size]):
                older.add(part)
            z = _difference(newest, older)
            if z > max(clearest, _Z_SETTLED if size == _CHUNKS else _Z_CLEAR):
                keep, clearest = size, z
        if not keep:
            return False
        self._old = DraftCounts()
        self._recent = deque(chunks[-keep:])
        return True


def _fell(previous: SpeculationCounters, counters: SpeculationCounters) -> bool:
    """Whether any total is smaller than before. Position labels that appear later counted from 0."""
    if (previous.drafts is None) != (counters.drafts is None):
        return True
    before, after = previous.accepted_per_position, counters.accepted_per_position
    drafted = zip(counters.drafted_per_position, previous.drafted_per_position, strict=False)
    return (
        (counters.drafts or 0.0) < (previous.drafts or 0.0)
        or counters.draft_tokens < previous.draft_tokens
        or counters.accepted_tokens < previous.accepted_tokens
        or len(after) < len(before)
        or any(new < old for new, old in (*zip(after, before, strict=False), *drafted))
    )


def _delta(previous: SpeculationCounters, counters: SpeculationCounters, shares: Mapping[str, float]) -> DraftCounts:
    before, drafted_before = previous.accepted_per_position, previous.drafted_per_position
    drafts = (counters.drafts or 0.0) - (previous.drafts or 0.0)
    draft_tokens = counters.draft_tokens - previous.draft_tokens
    weight = draft_tokens if counters.drafts is None else drafts
    total = math.fsum(shares.values())
    return DraftCounts(
        drafts=drafts,
        draft_tokens=draft_tokens,
        accepted=counters.accepted_tokens - previous.accepted_tokens,
        per_position=[
            value - (before[position] if position < len(before) else 0.0)
            for position, value in enumerate(counters.accepted_per_position)
        ],
        by_class=(
            {name: weight * (share / total) for name, share in shares.items() if share > 0}
            if total > 0
            else {None: weight}
        ),
        weight=weight,
        drafted=[
            value - (drafted_before[position] if position < len(drafted_before) else 0.0)
            for position, value in enumerate(counters.drafted_per_position)
        ]
        or None,
    )


def _difference(newest: DraftCounts, older: DraftCounts) -> float:
    """The largest difference of any proportion of the two, in standard errors (pooled two-proportion test)."""
    largest = 0.0
    for (new_hits, new_trials), (old_hits, old_trials) in zip(newest.trials(), older.trials(), strict=False):
        if new_trials < _LEAST_TRIALS or old_trials < _LEAST_TRIALS:
            continue
        change = abs(new_hits / new_trials - old_hits / old_trials)
        pooled = (new_hits + old_hits) / (new_trials + old_trials)
        error = math.sqrt(pooled * (1.0 - pooled) * (1.0 / new_trials + 1.0 / old_trials))
        if change >= _LEAST_CHANGE and error > 0:
            largest = max(largest, change / error)
    return largest
