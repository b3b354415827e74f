"""Counters of replicas that serve several classes at once, as sums from which the classes can be told apart.

A look at a replica gives its drafts, how many of them were accepted to each position, and which share of the drafts
each class had. Accepted drafts are then, but for chance, the classes' drafts times their survival rates u: a linear
regression without intercept, whose sums of squares and products are all that has to be kept. As the mix varies from
look to look and from replica to replica, the classes' rates come apart; where it never varies they do not, and the
prior alone decides how the total is divided.

The sums are kept in parts and forgotten at a change as those of a single class are (:mod:`.counts`). The test is
whether the newest parts can have come from the rates that fit the older ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from adaptive_gamma.roofline import AcceptanceCurve, FloatArray
from adaptive_gamma.routing.learn.chance import standard_score
from adaptive_gamma.routing.learn.memory import (
    LEAST_CHANGE,
    SPLITS,
    Dispersion,
    Elapsing,
    parts_to_keep,
)
from adaptive_gamma.routing.learn.recovery import recover
from adaptive_gamma.routing.learn.tilt import log_odds, tilted_rate

__all__ = ["MixCounts", "MixSums", "shape_steps", "survival"]

_PART_DRAFTS = 100.0
"""Times the number of classes: drafts of a closed part."""
_PART_LOOKS = 4
_LEAST_DRAFTS = 30.0
_USUAL_DISPERSION = 1.5
_USUAL_FREEDOM = 8.0
_TELLING = 3
"""Survival to the third position shows a change of the whole curve best: it hangs on three rates, and neither nearly
all nor nearly none of the drafts get there."""
_MOST_SURPRISE = 20.0
"""A part that differs from the older ones by more tells of a change, not of what is usual."""


class MixSums:
    """The sums of a regression, one for each position.

    Every look counts with the inverse of its drafts, as the variance of a count grows with them.
    """

    __slots__ = ("looks", "products", "scatter", "squares", "targets", "weight")

    def __init__(self, classes: int, positions: int = 0) -> None:
        self.products: FloatArray = np.zeros((positions, classes, classes))
        """Sum of d d' / drafts, d being the drafts of each class: [position, class, class]."""
        self.targets: FloatArray = np.zeros((positions, classes))
        """Sum of d x accepted / drafts: [position, class]."""
        self.squares: FloatArray = np.zeros(positions)
        """Sum of accepted^2 / drafts: [position]."""
        self.looks: FloatArray = np.zeros(positions)
        self.weight: FloatArray = np.zeros(positions)
        """Drafts: [position]."""
        self.scatter: tuple[float, float] | None = None
        """Squared distances of the looks from their own fit, once no more looks are added, and their freedom."""

    @property
    def positions(self) -> int:
        return int(self.squares.size)

    @property
    def telling(self) -> int:
        """The position, from 0, at which changes are looked for; -1 where there is none."""
        position = min(self.positions, _TELLING) - 1
        while position > 0 and self.weight[position] < 0.5 * self.weight[0]:
            position -= 1
        return position

    def grow(self, positions: int) -> None:
        """Make room for positions not seen before."""
        more = positions - self.positions
        if more > 0:
            classes = self.products.shape[1]
            self.products = np.concatenate([self.products, np.zeros((more, classes, classes))])
            self.targets = np.concatenate([self.targets, np.zeros((more, classes))])
            for name in ("squares", "looks", "weight"):
                setattr(self, name, np.concatenate([getattr(self, name), np.zeros(more)]))

    def look(self, drafts: FloatArray, accepted: FloatArray) -> None:
        """One look: drafts by class, and how many of them were accepted to each position."""
        whole = float(drafts.sum())
        self.grow(accepted.size)
        seen = slice(0, accepted.size)
        self.products[seen] += np.outer(drafts, drafts) / whole
        self.targets[seen] += np.outer(accepted, drafts) / whole
        self.squares[seen] += accepted * accepted / whole
        self.looks[seen] += 1.0
        self.weight[seen] += whole

    def add(self, other: MixSums) -> None:
        self.grow(other.positions)
        seen = slice(0, other.positions)
        self.products[seen] += other.products
        self.targets[seen] += other.targets
        self.squares[seen] += other.squares
        self.looks[seen] += other.looks
        self.weight[seen] += other.weight

    def without(self, other: MixSums) -> MixSums:
        """What is left without a part of it."""
        rest = MixSums(self.products.shape[1], self.positions)
        rest.add(self)
        seen = slice(0, other.positions)
        rest.products[seen] -= other.products
        rest.targets[seen] -= other.targets
        rest.squares[seen] -= other.squares
        rest.looks[seen] -= other.looks
        rest.weight[seen] -= other.weight
        return rest

    def scale(self, factor: float) -> None:
        for sums in (self.products, self.targets, self.squares, self.looks, self.weight):
            sums *= factor


class MixCounts:
    """The memory of a drafter family's counters.

    Args:
        classes: how many there are.
        half_life_s: half-life of the sums, in seconds of traffic.
        pseudo_drafts: weight of each class's prior.
    """

    def __init__(self, classes: int, half_life_s: float, pseudo_drafts: Sequence[float]) -> None:
        self.changes = 0
        self._classes = classes
        self._pseudo = np.asarray(pseudo_drafts, dtype=np.float64)
        self._time = Elapsing(half_life_s)
        self._old = MixSums(classes)
        self._recent: deque[MixSums] = deque()
        self._open = MixSums(classes)
        self._fresh = False
        self._looks = Dispersion(_USUAL_DISPERSION, _USUAL_FREEDOM)
        self._parts = Dispersion(1.0, _USUAL_FREEDOM)

    def look(self, drafts: FloatArray, accepted: FloatArray, at: float, prior: FloatArray) -> None:
        """What one replica counted between two scrapes.

        Args:
            drafts: by class, together > 0.
            accepted: drafts accepted to each position.
            at: when.
            prior: survival rates believed, [class, position]: for the test of changes, should it be due.
        """
        if self._time.due(at):
            self._look(at, prior)
        self._open.look(drafts, accepted)
        self._fresh = True

    def review(self, now: float, prior: FloatArray) -> bool:
        """Let time pass, and look whether acceptance has changed; whether it has."""
        if not self._fresh:
            self._time.idle(now)
            return False
        return self._look(now, prior)

    def _look(self, now: float, prior: FloatArray) -> bool:
        self._fresh = False
        factor = self._time.factor(now)
        if factor < 1.0:
            for part in (self._old, *self._recent, self._open):
                part.scale(factor)
            self._looks.scale(factor)
            self._parts.scale(factor)
        changed = self._forget_another_population(prior)
        part = self._open
        if part.positions and part.looks[0] >= _PART_LOOKS and part.weight[0] >= _PART_DRAFTS * self._classes:
            older = _sum(self._classes, (self._old, *self._recent))
            chi_squared, freedom, _ = self._distance(part, older, prior, 1.0)
            self._parts.add(min(chi_squared, _MOST_SURPRISE * freedom), freedom)
            self._close()
        return changed

    def total(self) -> MixSums:
        """All that is remembered."""
        return _sum(self._classes, (self._old, *self._recent, self._open))

    @property
    def dispersion(self) -> float:
        """Variance over that of independent drafts, at least 1.

        The larger of two: how looks scatter about the fit of their own part, and how parts differ from those before
        them. Wrong shares show in the first one, long requests, which many looks in a row have in common, in the
        second.
        """
        looks, parts = self.scatter()
        return max(looks.value, parts.value, 1.0)

    def scatter(self) -> tuple[Dispersion, Dispersion]:
        """What is behind the dispersion: of looks and of parts."""
        looks = Dispersion(_USUAL_DISPERSION, _USUAL_FREEDOM, self._looks.observed, self._looks.expected)
        for part in (*self._recent, self._open):
            looks.add_part(*(part.scatter or _scatter(part)), self._most_scatter)
        return looks, self._parts

    def restore(self, sums: MixSums, looks: tuple[float, float], parts: tuple[float, float]) -> None:
        """Go on from what was remembered before: the sums, and (observed, expected) of both dispersions."""
        self._old = sums
        self._looks = Dispersion(_USUAL_DISPERSION, _USUAL_FREEDOM, *looks)
        self._parts = Dispersion(1.0, _USUAL_FREEDOM, *parts)

    def forget(self) -> None:
        """Start anew, but for what is known of the dispersion."""
        self._old, self._open = MixSums(self._classes), MixSums(self._classes)
        self._recent.clear()

    def _close(self) -> None:
        self._open.scatter = _scatter(self._open)
        self._recent.append(self._open)
        self._open = MixSums(self._classes)
        if len(self._recent) > max(SPLITS):
            self._retire(self._recent.popleft())

    @property
    def _most_scatter(self) -> float:
        return 4.0 * max(self._looks.value, _USUAL_DISPERSION)

    def _retire(self, part: MixSums) -> None:
        self._looks.add_part(*(part.scatter or _scatter(part)), self._most_scatter)
        self._old.add(part)

    def _forget_another_population(self, prior: FloatArray) -> bool:
        """Drop what lies before the likeliest point of change, if there is one beyond chance."""
        parts = [*self._recent, self._open] if self._open.positions else [*self._recent]
        dispersion, whole = self.dispersion, self.total()
        scores: dict[int, float] = {}

        def score(size: int) -> float:
            if size not in scores:
                newest = _sum(self._classes, parts[-size:])
                scores[size] = self._difference(newest, whole.without(newest), prior, dispersion)
            return scores[size]

        # Counters tell of every draft at once, so what is kept does not reach back to before the change.
        keep = parts_to_keep(len(parts), score, after_change=False)
        if keep is None:
            return False
        for _ in parts[:-keep]:
            self._retire(self._recent.popleft())
        self._old = MixSums(self._classes)
        self.changes += 1
        return True

    def _difference(self, newest: MixSums, older: MixSums, prior: FloatArray, dispersion: float) -> float:
        """How far beyond chance the newest parts lie from what fits the older ones, 0 where by too little to matter."""
        chi_squared, freedom, change = self._distance(newest, older, prior, dispersion)
        return standard_score(chi_squared, freedom) if change >= LEAST_CHANGE else 0.0

    def _distance(
        self, newest: MixSums, older: MixSums, prior: FloatArray, dispersion: float
    ) -> tuple[float, int, float]:
        """Chi-squared of the newest parts against the older ones' fit, its degrees of freedom, and by how much the
        survival rate of some class differs. All 0 where there is too little on either side."""
        position = min(newest.telling, older.telling)
        if position < 0:
            return 0.0, 0, 0.0
        if newest.weight[position] < _LEAST_DRAFTS or older.weight[position] < _LEAST_DRAFTS * self._classes:
            return 0.0, 0, 0.0
        weights = self._pseudo * dispersion
        precision = older.products[position] + np.diag(weights)
        fit = np.linalg.solve(precision, older.targets[position] + weights * prior[:, position])
        products = newest.products[position]
        rest = newest.targets[position] - products @ np.clip(fit, 0.0, 1.0)
        change = np.linalg.solve(products + np.diag(weights), rest)
        mean = float(newest.targets[position].sum() / newest.weight[position])
        variance = max(mean * (1.0 - mean), 0.01) * dispersion
        spread = variance * (products + products @ np.linalg.solve(precision, products))
        values, vectors = np.linalg.eigh(spread)
        told = values > 1e-6 * values.max()
        along = vectors.T[told] @ rest
        return float(np.sum(along * along / values[told])), int(told.sum()), float(np.abs(change).max())


def _scatter(part: MixSums) -> tuple[float, float]:
    """Squared distances from a part's own fit, in units of independent drafts' variance, and their freedom."""
    position = part.telling
    if position < 0 or part.weight[position] <= 0:
        return 0.0, 0.0
    products, targets, weight = part.products[position], part.targets[position], float(part.weight[position])
    mean = float(targets.sum()) / weight
    variance = mean * (1.0 - mean)
    rank = int(np.linalg.matrix_rank(products, tol=1e-6 * weight, hermitian=True))
    freedom = float(part.looks[position]) - rank
    if variance < 1e-3 or freedom < 1:
        return 0.0, 0.0
    fit = np.linalg.lstsq(products, targets, rcond=1e-6)[0]
    return max(float(part.squares[position] - targets @ fit), 0.0) / variance, freedom


def _sum(classes: int, parts: Iterable[MixSums]) -> MixSums:
    whole = MixSums(classes)
    for part in parts:
        whole.add(part)
    return whole


def shape_steps(sums: MixSums, curves: Sequence[AcceptanceCurve]) -> list[float]:
    """By how much, in log-odds, each position's rate over all classes together is off what the curves predict of it."""
    shares = sums.products[0].sum(axis=1)
    survivals = np.stack([curve.unconditional(sums.positions) for curve in curves])
    predicted = (shares @ survivals / shares.sum()).tolist()
    seen = (sums.targets.sum(axis=1) / sums.weight).tolist()
    steps, above_seen, above_predicted = [], 1.0, 1.0
    for position, (now, then) in enumerate(zip(seen, predicted, strict=True)):
        if above_seen <= 0 or above_predicted <= 0:
            steps.append(0.0)
            continue
        trials = float(sums.weight[position]) * above_seen
        off = log_odds(min(now / above_seen, 1.0)) - log_odds(min(then / above_predicted, 1.0))
        steps.append(off * trials / (trials + _LEAST_DRAFTS))
        above_seen, above_predicted = now, then
    return steps


def survival(
    sums: MixSums, dispersion: float, prior: Sequence[AcceptanceCurve], weights: Sequence[float]
) -> tuple[FloatArray, FloatArray]:
    """Survival rates of each class and the drafts of its own that they are worth, both [class, position].

    From position to position a class's prior is moved up or down (:mod:`.tilt`) as far as the positions before are off,
    so that deep positions, which few drafts reach, follow them.

    Args:
        sums: of all looks.
        dispersion: variance about the fit over that of independent drafts.
        prior: believed of each class.
        weights: drafts that this is worth.
    """
    classes, positions = len(prior), sums.positions
    weight = np.asarray(weights, dtype=np.float64)
    rates, drafts = np.zeros((classes, positions)), np.zeros((classes, positions))
    above = np.ones(classes)
    steps, pulls = [0.0] * classes, [0.0] * classes
    information = [
        own * (first := curve.conditional_at(1)) * (1.0 - first) for own, curve in zip(weights, prior, strict=True)
    ]
    for position in range(positions):
        believed = [
            tilted_rate(curve.conditional_at(position + 1), step) for curve, step in zip(prior, steps, strict=True)
        ]
        precision = sums.products[position] / dispersion + np.diag(weight)
        wanted = sums.targets[position] / dispersion + weight * above * np.asarray(believed)
        found = recover(precision, wanted, above)
        worth = np.maximum(1.0 / np.diag(np.linalg.inv(precision)) - weight, 0.0)
        for k in range(classes):
            if above[k] > 0:
                rate = float(found[k] / above[k])
                told = float(worth[k] * above[k]) * rate * (1.0 - rate)
                pulls[k] += told * (log_odds(rate) - log_odds(prior[k].conditional_at(position + 1)))
                information[k] += told
                steps[k] = pulls[k] / information[k] if information[k] > 0 else 0.0
        rates[:, position], drafts[:, position] = found, worth
        above = found
    return rates, drafts
