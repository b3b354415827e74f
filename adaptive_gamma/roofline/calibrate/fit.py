"""One least-squares fit: a family, a drafter and the yields against points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from adaptive_gamma.roofline.acceptance import AcceptanceCurve
from adaptive_gamma.roofline.arrays import FloatArray
from adaptive_gamma.roofline.calibrate.acceptance import YieldModel
from adaptive_gamma.roofline.calibrate.drafters import DrafterModel
from adaptive_gamma.roofline.calibrate.family import BoundFamily, StepFamily
from adaptive_gamma.roofline.calibrate.observation import Points
from adaptive_gamma.roofline.calibrate.parameter import Parameter
from adaptive_gamma.roofline.calibrate.refusal import UnderDetermined
from adaptive_gamma.roofline.captured_step import CapturedStep
from adaptive_gamma.roofline.drafter import Drafter
from adaptive_gamma.roofline.step_time import StepTime

__all__ = ["Fit", "Held", "Problem", "pass_seconds", "sensitivity"]

_RANK = 1e-6
"""A direction in which the residuals move this much less than in the strongest one is not told by the points."""
_F_TEST = 4.0
"""Growth of the squared error, in units of its mean, that one parameter less may cost (95 %)."""
_IN_DIRECTION = 0.2
"""Share of such a direction from which a parameter is named."""
_MOST_TRIALS = 60
_NEAR = 1e-8
_NOTHING = 1e-6
"""Share of its scale below which a number that may be 0 is 0, with what the search left of it."""
_GAIN = 1e-6
"""Share of the squared error below which a further step gains nothing; in a flat valley it would go on for long."""


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


class Held(NamedTuple):
    """A parameter that was not fitted."""

    value: float
    because: str
    """Why, in words that follow a colon."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Parameters found, and what they predict."""

    problem: Problem
    bound: BoundFamily
    parameters: tuple[Parameter, ...]
    """Of the step, then the drafter, then the yields."""
    values: FloatArray
    held: Mapping[str, Held]
    """By name, the parameters that the points do not tell."""
    cost: float
    """Half the weighted sum of squared logarithmic errors."""

    @property
    def mean_error(self) -> float:
        """Mean absolute relative error of all points but those of gamma 0 on a speculative engine."""
        points = self.problem.points
        judged = points.where(~points.taxed if (~points.taxed).any() else np.ones(len(points), dtype=np.bool_))
        return float(np.abs(self.seconds_per_token(judged) / judged.seconds - 1.0).mean())

    @property
    def reached(self) -> npt.NDArray[np.bool_]:
        """Which points the model rests on: fitted, taken as measured, or telling the zero-gamma tax."""
        points = self.problem.points
        return np.asarray(self.bound.fitted | points.taxed | points.plain)

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
    def of(cls, problem: Problem, weights: FloatArray, more_starts: int = 2) -> Fit:
        """Fit a problem.

        Args:
            problem: what to fit.
            weights: how much each point counts.
            more_starts: at how many places the search begins beside the parameters' own start.

        Raises UnderDetermined where parameters cannot be told and have no value to be held at.
        """
        bound = problem.family.bind(problem.points, weights)
        parameters = bound.parameters
        if problem.drafter is not None:
            parameters += problem.drafter.parameters
        parameters += problem.yields.parameters
        held: dict[str, Held] = {}
        _hold_down_to(int(bound.fitted.sum()), problem.name, parameters, held)
        found = _searched(problem, bound, parameters, weights, held, more_starts)
        while weak := _untold(found, found.slopes(weights)):
            droppable = [p for p in weak if p.held_at is not None]
            if not droppable:
                raise UnderDetermined(problem.name, "the observations cannot tell its parameters apart", weak)
            held = {**held, droppable[0].name: Held(_held_value(droppable[0]), _untold_words(droppable[0], weak))}
            found = _searched(problem, bound, parameters, weights, held, found.by_name)
        return _without_vague(found, weights)

    def slopes(self, weights: FloatArray) -> FloatArray:
        """How the weighted residuals that took part move with the free parameters, each in its own scale."""
        rows = self.bound.fitted
        return np.sqrt(weights[rows])[:, None] * sensitivity(self, self.problem.points.where(rows), self.free)


def _without_vague(fit: Fit, weights: FloatArray) -> Fit:
    """The same fit with parameters held that the points hardly tell, where that costs it nothing to speak of.

    Hardly told: the 95 % error exceeds the parameter's own size. Nothing to speak of: an F test would not miss it.
    """
    needed: set[str] = set()
    while vague := _vague(fit, fit.slopes(weights), needed):
        parameter, error = vague
        within = f"{error:.2g} {parameter.unit}".rstrip()
        because = f"the fit is as good so, and the observations tell it to no better than +-{within}"
        held = {**fit.held, parameter.name: Held(_held_value(parameter), because)}
        problem = fit.problem
        simpler = _searched(problem, fit.bound, fit.parameters, weights, held, fit.by_name)
        freedom = int(fit.bound.fitted.sum()) - len(fit.free)
        if (simpler.cost - fit.cost) * freedom <= _F_TEST * fit.cost:
            fit = simpler
        else:
            needed.add(parameter.name)
    return fit


def _held_value(parameter: Parameter) -> float:
    if parameter.held_at is None:
        raise ValueError(f"{parameter.name} has no value to be held at")
    return parameter.held_at


def _untold_words(parameter: Parameter, weak: Sequence[Parameter]) -> str:
    others = [each.name for each in weak if each.name != parameter.name]
    if not others:
        return f"to be told it needs {parameter.told_by}"
    return f"the observations do not tell it apart from {' and '.join(others)}; that takes {parameter.told_by}"


def _hold_down_to(points: int, model: str, parameters: Sequence[Parameter], held: dict[str, Held]) -> None:
    """Hold what can be held until no more parameters than points are free."""
    because = f"{points} usable observation{'' if points == 1 else 's'} for {len(parameters)} parameters"
    for parameter in reversed(parameters):
        if _free_count(parameters, held) <= points:
            return
        if parameter.held_at is not None:
            held.setdefault(parameter.name, Held(parameter.held_at, because))
    free = [p for p in parameters if p.name not in held]
    if len(free) > points:
        raise UnderDetermined(
            model, f"{points} usable observation{'' if points == 1 else 's'} for {len(free)} parameters", free
        )


def _free_count(parameters: Sequence[Parameter], held: Mapping[str, Held]) -> int:
    return sum(p.name not in held for p in parameters)


def pass_seconds(step: StepTime, drafter: Drafter | None, points: Points) -> FloatArray:
    """Seconds of each point's step, padding included, and its drafting where its time holds it."""
    if points.capture is not None:
        step = CapturedStep(step, points.capture)
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


def _searched(
    problem: Problem,
    bound: BoundFamily,
    parameters: tuple[Parameter, ...],
    weights: FloatArray,
    held: Mapping[str, Held],
    starts: Mapping[str, float] | int,
) -> Fit:
    """Least squares over the free parameters: from given values, or from their own start and so many around it."""
    points, root = problem.points.where(bound.fitted), np.sqrt(weights[bound.fitted])
    base = np.asarray([held[p.name].value if p.name in held else p.start for p in parameters])
    free = np.asarray([p.name not in held for p in parameters], dtype=np.bool_)
    seen = np.log(points.seconds)

    def off(at: FloatArray) -> FloatArray:
        values = base.copy()
        values[free] = at * scale
        return np.asarray(root * (np.log(_predicted(problem, bound, points, values)) - seen))

    if not free.any():
        empty = np.empty(0)
        scale = empty
        return Fit(problem, bound, parameters, base, held, 0.5 * float(np.sum(off(empty) ** 2)))
    chosen = [p for p, is_free in zip(parameters, free, strict=True) if is_free]
    scale = np.asarray([p.scale for p in chosen])
    low, high = np.asarray([p.low for p in chosen]) / scale, np.asarray([p.high for p in chosen]) / scale
    own_start = np.asarray([p.start for p in chosen]) / scale
    if isinstance(starts, int):
        begins = [own_start, *_around(own_start, low, high, starts)]
    else:
        begins = [np.asarray([starts[p.name] for p in chosen]) / scale]
    best = None
    for begin in begins:
        inside = np.clip(begin, low + 1e-9 * (high - low), high - 1e-9 * (high - low))
        found = least_squares(
            off, inside, bounds=(low, high), xtol=_NEAR, gtol=_NEAR, ftol=_GAIN,
            max_nfev=_MOST_TRIALS,
        )  # fmt: skip
        if best is None or found.cost < best.cost * (1.0 - 1e-9):
            best = found
    assert best is not None
    values = base.copy()
    found_values = best.x * scale
    may_be_zero = np.asarray([p.low == 0.0 for p in chosen], dtype=np.bool_)
    found_values[may_be_zero & (np.abs(found_values) <= _NOTHING * scale)] = 0.0
    values[free] = found_values
    return Fit(problem, bound, parameters, values, held, float(best.cost))


def _around(start: FloatArray, low: FloatArray, high: FloatArray, count: int) -> list[FloatArray]:
    """So many further starts, the same every time."""
    draws = np.random.default_rng(20240229).normal(0.0, 1.0, (count, start.size))
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


def _untold(fit: Fit, slopes: FloatArray) -> list[Parameter]:
    """Parameters along which, alone or together, the residuals do not move; those most concerned first."""
    free = fit.free
    if not free:
        return []
    _, singular, directions = np.linalg.svd(slopes, full_matrices=False)
    found: dict[int, float] = {}
    for strength, direction in zip(singular.tolist(), directions, strict=True):
        if strength > _RANK * float(singular[0]):
            continue
        for index, part in zip(free, np.abs(direction).tolist(), strict=True):
            if part >= _IN_DIRECTION:
                found[index] = max(found.get(index, 0.0), part)
    return [fit.parameters[i] for i in sorted(found, key=lambda i: -found[i])]


def _vague(fit: Fit, slopes: FloatArray, needed: set[str]) -> tuple[Parameter, float] | None:
    """Of the parameters that can be held and are not needed, the one least told and its 95 % error; None if all are
    well told."""
    free = fit.free
    freedom = len(slopes) - len(free)
    if freedom < 1:
        return None
    _, singular, directions = np.linalg.svd(slopes, full_matrices=False)
    spread = np.sqrt(2.0 * fit.cost / freedom * np.sum((directions / singular[:, None]) ** 2, axis=0))
    worst, chosen = 1.0, None
    for index, error in zip(free, spread.tolist(), strict=True):
        parameter = fit.parameters[index]
        error_95 = 1.96 * error * parameter.scale
        excess = error_95 / max(abs(float(fit.values[index])), parameter.scale)
        if parameter.held_at is not None and parameter.name not in needed and excess > worst:
            worst, chosen = excess, (parameter, error_95)
    return chosen
