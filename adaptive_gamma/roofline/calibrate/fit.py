"""One least-squares fit: a family, a drafter and the yields against points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from adaptive_gamma.roofline.acceptance import AcceptanceCurve
from adaptive_gamma.roofline.arrays import FloatArray
from adaptive_gamma.roofline.calibrate.acceptance import YieldModel
from adaptive_gamma.roofline.calibrate.drafters import DrafterModel
from adaptive_gamma.roofline.calibrate.family import BoundFamily, StepFamily
from adaptive_gamma.roofline.calibrate.observation import Points
from adaptive_gamma.roofline.calibrate.parameter import Parameter
from adaptive_gamma.roofline.calibrate.refusal import UnderDetermined
from adaptive_gamma.roofline.drafter import Drafter
from adaptive_gamma.roofline.step_time import StepTime

__all__ = ["Fit", "Problem", "pass_seconds", "sensitivity"]

_RANK = 1e-6
"""A direction in which the residuals move this much less than in the strongest one is not told by the points."""
_IN_DIRECTION = 0.2
"""Share of such a direction from which a parameter is named."""
_EXTRA_STARTS = 4


@dataclass(frozen=True, slots=True)
class Problem:
    """What is fitted to what."""

    family: StepFamily
    drafter: DrafterModel | None
    """None where no point has a drafter in its time."""
    yields: YieldModel
    points: Points

    @property
    def name(self) -> str:
        return self.family.name if self.drafter is None else f"{self.family.name} with {self.drafter.kind} drafter"


@dataclass(frozen=True, slots=True)
class Fit:
    """Parameters found, and what they predict."""

    problem: Problem
    bound: BoundFamily
    parameters: tuple[Parameter, ...]
    """Of the step, then the drafter, then the yields."""
    values: FloatArray
    held: Mapping[str, float]
    """Names held at a value because the points cannot tell them."""
    cost: float
    """Half the weighted sum of squared logarithmic errors."""

    @property
    def by_name(self) -> dict[str, float]:
        """Values of the parameters."""
        return {p.name: value for p, value in zip(self.parameters, self.values.tolist(), strict=True)}

    @property
    def free(self) -> list[int]:
        """Indices of the parameters that were not held."""
        return [i for i, p in enumerate(self.parameters) if p.name not in self.held]

    @property
    def step(self) -> StepTime:
        return self.bound.step(self.values[: len(self.bound.parameters)])

    @property
    def drafter(self) -> Drafter | None:
        model = self.problem.drafter
        if model is None:
            return None
        first = len(self.bound.parameters)
        return model.drafter(self.values[first : first + len(model.parameters)])

    @property
    def curves(self) -> dict[str, AcceptanceCurve]:
        """By class, as far as given or fitted."""
        return self.problem.yields.curves(self.values[self.values.size - len(self.problem.yields.parameters) :])

    def seconds_per_token(self, points: Points) -> FloatArray:
        """Predicted time per output token; at gamma 0 of a speculative engine without its tax."""
        return _predicted(self.problem, self.bound, points, self.values)

    def residuals(self, points: Points, values: FloatArray) -> FloatArray:
        """log(predicted / seen) of points at other values of the parameters."""
        return np.asarray(np.log(_predicted(self.problem, self.bound, points, values) / points.seconds))

    @classmethod
    def of(cls, problem: Problem, weights: FloatArray, also_start: Mapping[str, float] | None = None) -> Fit:
        """Fit a problem.

        Args:
            problem: what to fit.
            weights: how much each point counts.
            also_start: values by name to begin at beside the parameters' own; None begins at a few around those.

        Raises UnderDetermined where parameters cannot be told and have no value to be held at.
        """
        bound = problem.family.bind(problem.points, weights)
        parameters = bound.parameters
        if problem.drafter is not None:
            parameters += problem.drafter.parameters
        parameters += problem.yields.parameters
        rows = bound.fitted
        used, root = problem.points.where(rows), np.sqrt(weights[rows])
        held: dict[str, float] = {}
        _hold_down_to(len(used), problem.name, parameters, held)
        while True:
            values, cost = _solved(problem, bound, used, root, parameters, held, also_start)
            found = cls(problem, bound, parameters, values, held, cost)
            weak = _untold(found, used, root)
            if not weak:
                return found
            droppable = [p for p in weak if p.held_at is not None]
            if not droppable:
                raise UnderDetermined(problem.name, "the observations cannot tell its parameters apart", weak)
            held[droppable[0].name] = _held_value(droppable[0])


def _held_value(parameter: Parameter) -> float:
    if parameter.held_at is None:
        raise ValueError(f"{parameter.name} has no value to be held at")
    return parameter.held_at


def _hold_down_to(points: int, model: str, parameters: Sequence[Parameter], held: dict[str, float]) -> None:
    """Hold what can be held until no more parameters than points are free."""
    for parameter in reversed(parameters):
        if _free_count(parameters, held) <= points:
            return
        if parameter.held_at is not None:
            held.setdefault(parameter.name, parameter.held_at)
    free = [p for p in parameters if p.name not in held]
    if len(free) > points:
        raise UnderDetermined(
            model, f"{points} usable observation{'' if points == 1 else 's'} for {len(free)} parameters", free
        )


def _free_count(parameters: Sequence[Parameter], held: Mapping[str, float]) -> int:
    return sum(p.name not in held for p in parameters)


def pass_seconds(step: StepTime, drafter: Drafter | None, points: Points) -> FloatArray:
    """Seconds of each point's step, its drafting included where its time holds it."""
    seconds = step.seconds(points.batch, points.gamma + 1, points.context, points.prefill)
    if drafter is None:
        return seconds
    drafting = drafter.seconds(step, points.batch, points.gamma, points.context)
    return np.asarray(seconds + np.where(points.drafted, drafting, 0.0))


def _predicted(problem: Problem, bound: BoundFamily, points: Points, values: FloatArray) -> FloatArray:
    of_step = len(bound.parameters)
    step, drafter = bound.step(values[:of_step]), None
    if problem.drafter is not None:
        drafter = problem.drafter.drafter(values[of_step : of_step + len(problem.drafter.parameters)])
    yields = problem.yields
    return np.asarray(
        pass_seconds(step, drafter, points)
        / yields.tokens_per_step(points, values[values.size - len(yields.parameters) :])
    )


def _solved(
    problem: Problem,
    bound: BoundFamily,
    points: Points,
    root: FloatArray,
    parameters: Sequence[Parameter],
    held: Mapping[str, float],
    also_start: Mapping[str, float] | None,
) -> tuple[FloatArray, float]:
    base = np.asarray([held.get(p.name, p.start) for p in parameters])
    free = np.asarray([p.name not in held for p in parameters], dtype=np.bool_)
    seen = np.log(points.seconds)

    def off(at: FloatArray) -> FloatArray:
        values = base.copy()
        values[free] = at * scale
        return np.asarray(root * (np.log(_predicted(problem, bound, points, values)) - seen))

    if not free.any():
        empty = np.empty(0)
        scale = empty
        return base, 0.5 * float(np.sum(off(empty) ** 2))
    chosen = [p for p, is_free in zip(parameters, free, strict=True) if is_free]
    scale = np.asarray([p.scale for p in chosen])
    low, high = np.asarray([p.low for p in chosen]) / scale, np.asarray([p.high for p in chosen]) / scale
    own_start = np.asarray([p.start for p in chosen]) / scale
    if also_start is None:
        others = _around(own_start, low, high)
    else:
        others = [np.asarray([also_start.get(p.name, p.start) for p in chosen]) / scale]
    best = None
    for begin in (own_start, *others):
        inside = np.clip(begin, low + 1e-9 * (high - low), high - 1e-9 * (high - low))
        found = least_squares(off, inside, bounds=(low, high), xtol=1e-9, ftol=1e-9, gtol=1e-9, max_nfev=200)
        if best is None or found.cost < best.cost * (1.0 - 1e-9):
            best = found
    assert best is not None
    values = base.copy()
    values[free] = best.x * scale
    return values, float(best.cost)


def _around(start: FloatArray, low: FloatArray, high: FloatArray) -> list[FloatArray]:
    """A few further starts, the same every time."""
    draws = np.random.default_rng(20240229).normal(0.0, 1.0, (_EXTRA_STARTS, start.size))
    return [np.clip(start * np.exp(d), low, high) for d in draws]


def sensitivity(fit: Fit, points: Points, free: Sequence[int]) -> FloatArray:
    """How residuals move with the parameters of these indices, each measured in its own scale: one column each."""
    columns = np.empty((len(points), len(free)))
    for column, index in enumerate(free):
        parameter, value = fit.parameters[index], float(fit.values[index])
        reach = 1e-4 * max(abs(value), 0.1 * parameter.scale)
        low, high = fit.values.copy(), fit.values.copy()
        low[index], high[index] = max(value - reach, parameter.low), min(value + reach, parameter.high)
        moved = fit.residuals(points, high) - fit.residuals(points, low)
        columns[:, column] = moved / (high[index] - low[index]) * parameter.scale
    return columns


def _untold(fit: Fit, points: Points, root: FloatArray) -> list[Parameter]:
    """Parameters along which, alone or together, the residuals do not move; those most concerned first."""
    free = fit.free
    if not free:
        return []
    _, singular, directions = np.linalg.svd(root[:, None] * sensitivity(fit, points, free), full_matrices=True)
    found: dict[int, float] = {}
    for row, direction in enumerate(directions):
        strength = float(singular[row]) if row < singular.size else 0.0
        if strength > _RANK * float(singular[0]):
            continue
        for index, part in zip(free, np.abs(direction).tolist(), strict=True):
            if part >= _IN_DIRECTION:
                found[index] = max(found.get(index, 0.0), part)
    return [fit.parameters[i] for i in sorted(found, key=lambda i: -found[i])]
