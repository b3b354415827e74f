"""What was counted of one class, decayed, and forgotten where acceptance has changed.

A long memory makes the learned value quiet, a short one makes it quick. So, as in the fleet's window of one replica,
the memory is long and the newest parts of it are kept apart: they are compared with all that is older, and where the
difference is beyond chance and large enough to matter, everything before it is forgotten at once.

What is chance is measured too. Drafts of one request resemble each other, so requests differ by more than independent
drafts would; how much more shows in how requests of the same few seconds differ. Every request is reduced to its score
for a step of the whole curve in log-odds (:mod:`.tilt`) and the information I behind it, which is the score's variance
were its drafts independent. With a variance t between requests in log-odds it is I (1 + t I). So a memory of many
requests is worth its counts divided by 1 + t sum(I^2) / sum(I), and tests and errors go by that.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from adaptive_gamma.roofline import AcceptanceCurve
from adaptive_gamma.routing.learn.memory import (
    LEAST_CHANGE,
    SPLITS,
    Dispersion,
    Elapsing,
    parts_to_keep,
)
from adaptive_gamma.routing.learn.tilt import accepted_moments

__all__ = ["ClassCounts", "Means", "Tally"]

_PART_DRAFTS = 100.0
_PART_REQUESTS = 4
"""A part of the memory is closed when it has as many drafts and requests."""
_LEAST_TRIALS = 50.0
"""Fewer on either side and the normal approximation does not hold."""
_USUAL_BETWEEN = 0.1
"""Variance between requests in log-odds: most of them within 0.3."""
_USUAL_WEIGHT = 50.0
"""Information that what is usual counts as."""
_USUAL_RATE = 0.7
_LEAST_VARIANCE = 1e-3


@dataclass(slots=True)
class Means:
    """Drafts of which only totals are known."""

    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted: float = 0.0

    def add(self, other: Means) -> None:
        self.drafts += other.drafts
        self.draft_tokens += other.draft_tokens
        self.accepted += other.accepted


@dataclass(slots=True)
class _Spread:
    """How the requests of one part scatter. Neither decayed nor summed across parts, as the rates that the scores are
    measured from move."""

    requests: int = 0
    information: float = 0.0
    squared: float = 0.0
    score: float = 0.0
    scatter: float = 0.0
    """Sum of the requests' score^2 / information."""


@dataclass(slots=True)
class Tally:
    """Weighted counts of a part of the memory."""

    tried: list[float] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    means: dict[int, Means] = field(default_factory=dict)
    """By gamma."""
    drafts: float = 0.0
    requests: float = 0.0
    information: float = 0.0
    squared: float = 0.0
    """Sum of the squares of the requests' information."""
    spread: _Spread = field(default_factory=_Spread)

    def add(self, other: Tally) -> None:
        """Everything but the spread."""
        self.drafts += other.drafts
        self.requests += other.requests
        self.information += other.information
        self.squared += other.squared
        missing = len(other.tried) - len(self.tried)
        if missing > 0:
            self.tried += [0.0] * missing
            self.accepted += [0.0] * missing
        for position, tried in enumerate(other.tried):
            self.tried[position] += tried
            self.accepted[position] += other.accepted[position]
        for gamma, means in other.means.items():
            self.means.setdefault(gamma, Means()).add(means)

    def scale(self, factor: float) -> None:
        self.drafts *= factor
        self.requests *= factor
        self.information *= factor
        self.squared *= factor
        self.tried = [value * factor for value in self.tried]
        self.accepted = [value * factor for value in self.accepted]
        for means in self.means.values():
            means.drafts *= factor
            means.draft_tokens *= factor
            means.accepted *= factor

    def request(self, drafts: float, score: float, information: float) -> None:
        """Count a request."""
        self.drafts += drafts
        self.requests += 1
        if information > 0:
            self.information += information
            self.squared += information * information
            spread = self.spread
            spread.requests += 1
            spread.information += information
            spread.squared += information * information
            spread.score += score
            spread.scatter += score * score / information

    def dispersion(self, between: float) -> float:
        """Variance over that of independent drafts, given the variance between requests."""
        return 1.0 + between * self.squared / self.information if self.information > 0 else 1.0


@dataclass(frozen=True, slots=True)
class _Moments:
    """Accepted tokens of a draft: mean, variance, growth of the mean with a step in log-odds, c (1 - c)."""

    mean: float
    variance: float
    slope: float
    rate_variance: float


class ClassCounts:
    """The memory of one class.

    Args:
        half_life_s: half-life of the counts, in seconds of traffic of the class.
    """

    def __init__(self, half_life_s: float) -> None:
        self.changes = 0
        """Changes of acceptance found."""
        self._time = Elapsing(half_life_s)
        self._old = Tally()
        self._recent: deque[Tally] = deque()
        self._open = Tally()
        self._fresh = False
        self._rates: list[float] = []
        self._moments: dict[int, _Moments] = {}
        self._closed = Dispersion(_USUAL_BETWEEN, _USUAL_WEIGHT)

    def add_trials(self, trials: Sequence[tuple[float, float]], at: float) -> None:
        """A request's (accepted, tried) by position, all positions before it having been accepted."""
        if not trials or trials[0][1] <= 0:
            return
        self._due(at)
        part = self._open
        missing = len(trials) - len(part.tried)
        if missing > 0:
            part.tried += [0.0] * missing
            part.accepted += [0.0] * missing
        rates, score, information = self._rates, 0.0, 0.0
        for position, (accepted, tried) in enumerate(trials):
            part.accepted[position] += accepted
            part.tried[position] += tried
            rate = rates[position] if position < len(rates) else _USUAL_RATE
            score += accepted - tried * rate
            information += tried * rate * (1.0 - rate)
        part.request(trials[0][1], score, information)
        self._fresh = True

    def add_mean(self, drafts: float, draft_tokens: float, accepted: float, gamma: int, at: float) -> None:
        """A request of which only totals are known."""
        if drafts <= 0:
            return
        self._due(at)
        part = self._open
        part.means.setdefault(gamma, Means()).add(Means(drafts, draft_tokens, accepted))
        moments = self._moments.get(gamma)
        if moments is None:
            moments = self._moments[gamma] = _moments_of(AcceptanceCurve.independent(_USUAL_RATE), gamma)
        pull = moments.slope / moments.variance
        part.request(drafts, (accepted - drafts * moments.mean) * pull, drafts * moments.slope * pull)
        self._fresh = True

    def review(self, now: float) -> bool:
        """Let time pass, and look whether acceptance has changed; whether it has."""
        if not self._fresh:
            self._time.idle(now)
            return False
        return self._look(now)

    def _look(self, now: float) -> bool:
        self._fresh = False
        factor = self._time.factor(now)
        self._scale(factor)
        changed = self._forget_another_population()
        self._look_up(self.total())
        if self._open.drafts >= _PART_DRAFTS and self._open.requests >= _PART_REQUESTS:
            self._close()
        return changed

    def total(self) -> Tally:
        """All that is remembered."""
        return _sum((self._old, *self._recent, self._open))

    @property
    def between(self) -> float:
        """Variance between requests in log-odds, >= 0."""
        return max(self.scatter().value, 0.0)

    def forget(self) -> None:
        """Start anew, but for what is known of the dispersion."""
        self._old, self._open = Tally(), Tally()
        self._recent.clear()

    def restore(self, tally: Tally, scatter: tuple[float, float]) -> None:
        """Go on from what was remembered before, and from (observed, expected) of :meth:`scatter`."""
        self._old = tally
        self._look_up(tally)
        self._closed = Dispersion(_USUAL_BETWEEN, _USUAL_WEIGHT, *scatter)

    def scatter(self) -> Dispersion:
        """What is behind :attr:`between`."""
        closed = self._closed
        whole, most = Dispersion(closed.usual, closed.weight, closed.observed, closed.expected), self._most_scatter
        for part in (*self._recent, self._open):
            whole.add_part(*_scatter(part), most)
        return whole

    @property
    def _most_scatter(self) -> float:
        return 4.0 * max(self._closed.value, _USUAL_BETWEEN)

    def _look_up(self, total: Tally) -> None:
        """What the scores of the next requests are measured from."""
        self._rates = [
            accepted / tried if tried >= _LEAST_TRIALS else _USUAL_RATE
            for accepted, tried in zip(total.accepted, total.tried, strict=True)
        ]
        for gamma, means in total.means.items():
            if means.drafts >= _LEAST_TRIALS:
                self._moments[gamma] = _moments_for(means.accepted / means.drafts, gamma)

    def _due(self, at: float) -> None:
        if self._time.due(at):
            self._look(at)

    def _scale(self, factor: float) -> None:
        if factor >= 1.0:
            return
        for part in (self._old, *self._recent, self._open):
            part.scale(factor)
        self._closed.scale(factor)

    def _close(self) -> None:
        self._recent.append(self._open)
        self._open = Tally()
        if len(self._recent) > max(SPLITS):
            oldest = self._recent.popleft()
            self._closed.add_part(*_scatter(oldest), self._most_scatter)
            self._old.add(oldest)

    def _forget_another_population(self) -> bool:
        """Drop what lies before the likeliest point of change, if there is one beyond chance."""
        parts = [*self._recent, self._open] if self._open.requests else [*self._recent]
        between = self.between

        def score(size: int) -> float:
            return _difference(_sum(parts[-size:]), _sum((self._old, *parts[:-size])), between)

        # Requests report at their end, so soon after a change some parts hold drafts from before it.
        after_change = self.changes > 0 and self._old.drafts <= 0
        keep = parts_to_keep(len(parts), score, after_change=after_change)
        if keep is None:
            return False
        self._old = Tally()
        for _ in parts[:-keep]:
            self._closed.add_part(*_scatter(self._recent.popleft()), self._most_scatter)
        self.changes += 1
        return True


def _sum(parts: Iterable[Tally]) -> Tally:
    whole = Tally()
    for part in parts:
        whole.add(part)
    return whole


def _scatter(part: Tally) -> tuple[float, float]:
    """By how much the scores of a part's requests scatter beyond independent drafts, and by how much they would with a
    variance of 1 between requests."""
    spread = part.spread
    if spread.requests < 2:
        return 0.0, 0.0
    surplus = spread.scatter - spread.score * spread.score / spread.information - (spread.requests - 1)
    return surplus, max(spread.information - spread.squared / spread.information, 0.0)


def _moments_of(curve: AcceptanceCurve, gamma: int) -> _Moments:
    mean, variance, slope = accepted_moments(curve, gamma)
    return _Moments(mean, max(variance, _LEAST_VARIANCE), slope, curve.plateau * (1.0 - curve.plateau))


def _moments_for(mean: float, gamma: int) -> _Moments:
    """Of drafts of such a mean, were acceptance the same at every position."""
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = 0.5 * (low + high)
        if accepted_moments(AcceptanceCurve.independent(middle), gamma)[0] < mean:
            low = middle
        else:
            high = middle
    return _moments_of(AcceptanceCurve.independent(low), gamma)


def _difference(newest: Tally, older: Tally, between: float) -> float:
    """How far beyond chance two parts differ, 0 where by too little to matter: a normal score.

    Each position, and the mean at each gamma, gives an estimate of the step in log-odds between the two; they are
    averaged by what they are worth.
    """
    new_wide, old_wide = newest.dispersion(between), older.dispersion(between)
    pull = worth = steepest = 0.0
    for new_hits, new_tried, old_hits, old_tried in zip(
        newest.accepted, newest.tried, older.accepted, older.tried, strict=False
    ):
        if new_tried < _LEAST_TRIALS or old_tried < _LEAST_TRIALS:
            break
        pooled = (new_hits + old_hits) / (new_tried + old_tried)
        slope, noise = pooled * (1.0 - pooled), new_wide / new_tried + old_wide / old_tried
        pull += (new_hits / new_tried - old_hits / old_tried) / noise
        worth += slope / noise
        steepest = max(steepest, slope)
    for gamma, new in newest.means.items():
        old = older.means.get(gamma)
        if old is None or new.drafts < _LEAST_TRIALS or old.drafts < _LEAST_TRIALS:
            continue
        moments = _moments_for((new.accepted + old.accepted) / (new.drafts + old.drafts), gamma)
        noise = (new_wide / new.drafts + old_wide / old.drafts) * moments.variance
        pull += moments.slope * (new.accepted / new.drafts - old.accepted / old.drafts) / noise
        worth += moments.slope * moments.slope / noise
        steepest = max(steepest, moments.rate_variance)
    if worth <= 0 or abs(pull / worth) * steepest < LEAST_CHANGE:
        return 0.0
    return abs(pull) / math.sqrt(worth)
