"""Calibrate: from observations to the numbers of a step time, a drafter and acceptance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adaptive_gamma.roofline.acceptance import AcceptanceCurve
from adaptive_gamma.roofline.arrays import FloatArray
from adaptive_gamma.roofline.calibrate.acceptance import GivenCurves, YieldModel, curve_through
from adaptive_gamma.roofline.calibrate.drafters import DrafterModel, drafter_model
from adaptive_gamma.roofline.calibrate.family import StepFamily
from adaptive_gamma.roofline.calibrate.fit import Fit, Problem, pass_seconds
from adaptive_gamma.roofline.calibrate.intervals import Units, bootstrap_intervals, resampling_units
from adaptive_gamma.roofline.calibrate.left_out import LeftOut
from adaptive_gamma.roofline.calibrate.observation import Observation, Points
from adaptive_gamma.roofline.calibrate.parameter import FittedParameter
from adaptive_gamma.roofline.calibrate.refusal import UnderDetermined
from adaptive_gamma.roofline.capture import CaptureSizes
from adaptive_gamma.roofline.captured_step import CapturedStep
from adaptive_gamma.roofline.drafter import Drafter
from adaptive_gamma.roofline.speculation import SpeculationCost, ZeroGammaTax
from adaptive_gamma.roofline.step_time import StepTime

__all__ = ["FAR", "POOR_FIT", "Calibration", "Prepared", "Residual", "calibration_of"]

MOST_FAILED = 0.5
"""Share of failed requests beyond which the survivors' time says nothing of the load."""
POOR_FIT = 0.3
"""Mean absolute relative error beyond which a model tells nothing of the server it was fitted to."""
FAR = 0.1
"""Relative error beyond which a model contradicts a measured point: twice what good benchmarks repeat within."""
_NOTHING = 1e-6
"""Share of a natural size below which a fitted number is zero with rounding errors."""


@dataclass(frozen=True, slots=True)
class Residual:
    """One observation against what the calibration predicts for it."""

    observation: Observation
    predicted_seconds: float
    """Time per output token."""
    relative_error: float
    """Predicted / observed - 1."""
    fitted: bool
    """Whether the observation took part in the fit; False also where a plain curve is taken as measured."""
    reached: bool = True
    """Whether the model rests on it: fitted, taken as measured, or telling the tax or what leaving capture costs."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A model with its numbers."""

    family: str
    step: StepTime
    drafter: Drafter | None
    """None where no observation holds a drafter's time."""
    drafter_kind: str | None
    zero_gamma_tax: ZeroGammaTax
    zero_gamma_tax_measured: bool
    """False where no observation is of gamma 0 on a speculative engine; the tax is then 0 for want of knowledge."""
    uncaptured_seconds: float | None
    """Extra time of a step beyond the capture limit, within ``step`` too; None where no observation is beyond it."""
    curves: Mapping[str, AcceptanceCurve]
    """Acceptance by class: given, fitted, or through the known tokens per step."""
    parameters: tuple[FittedParameter, ...]
    residuals: tuple[Residual, ...]
    """In the order of the observations, less those left aside."""
    left_out: LeftOut | None
    """Leave-one-load-out errors; None where they cannot be had (``notes`` says why)."""
    intervals_over: Units | None
    """What the intervals are drawn over; None without intervals."""
    notes: tuple[str, ...]
    """What was held, left aside or stands at a bound, in words."""
    capture_limit_tokens: int | None

    @property
    def mean_error(self) -> float:
        """Mean absolute relative error of all observations, those the model does not reach included."""
        return float(np.mean([abs(r.relative_error) for r in self.residuals]))

    @property
    def reached(self) -> int:
        """How many of the observations the model rests on; the others it only predicts."""
        return sum(r.reached for r in self.residuals)

    @property
    def contradicted(self) -> tuple[Residual, ...]:
        """Observations that it is more than 10 % off, the worst first."""
        far = [r for r in self.residuals if abs(r.relative_error) > FAR]
        return tuple(sorted(far, key=lambda r: -abs(r.relative_error)))

    def cost(self) -> SpeculationCost:
        """The step times with and without the drafter.

        Raises UnderDetermined where no observation told a drafter's cost.
        """
        if self.drafter is None:
            raise UnderDetermined(self.family, "no observation holds a drafter's time; measure one gamma at least")
        return SpeculationCost(self.step, self.drafter, self.zero_gamma_tax, self.capture_limit_tokens)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Observations sorted into what is fitted and what is not."""

    kept: tuple[Observation, ...]
    """Those whose requests mostly came through."""
    beyond: npt.NDArray[np.bool_]
    """Of these, the ones beyond the capture limit: they tell what leaving it costs, and nothing else."""
    inside: Points
    capture: CaptureSizes | None
    limit_tokens: int | None
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls, observations: Sequence[Observation], capture: CaptureSizes | None, limit_tokens: int | None
    ) -> Prepared:
        """Sort them; what is left aside is named in ``notes``.

        Raises UnderDetermined where nothing is left to fit.
        """
        if limit_tokens is None and capture is not None:
            limit_tokens = capture.limit
        kept, notes = [], []
        for index, seen in enumerate(observations):
            if seen.failed_share > MOST_FAILED:
                where = seen.label or f"observation {index + 1}"
                notes.append(f"{where}: {seen.failed_share:.0%} of its requests failed; left aside")
            else:
                kept.append(seen)
        limit = np.inf if limit_tokens is None else limit_tokens
        beyond = np.asarray([o.decode_tokens > limit for o in kept], dtype=np.bool_)
        inside = [o for o, is_beyond in zip(kept, beyond, strict=True) if not is_beyond]
        if not inside:
            raise UnderDetermined("any model", "no usable observation" + (" within the capture limit" if kept else ""))
        return cls(tuple(kept), beyond, Points.of(inside, capture), capture, limit_tokens, tuple(notes))

    def problem(self, family: StepFamily, drafter: str | None, curve: GivenCurves) -> Problem:
        """What is to be fitted. Raises ValueError where a drafter's kind is needed and missing."""
        model: DrafterModel | None = None
        if self.inside.drafted.any():
            if drafter is None:
                raise ValueError("observations with a drafter need its kind")
            model = drafter_model(drafter)
        return Problem(family, model, YieldModel.of(self.inside, curve), self.inside)


def calibration_of(
    prepared: Prepared, fit: Fit, *, left_out: LeftOut | None, bootstrap: int, seed: int, notes: Sequence[str]
) -> Calibration:
    """What a fit found, as a calibration."""
    problem, points = fit.problem, fit.problem.points
    predicted = np.empty(len(prepared.kept))
    inside = fit.seconds_per_token(points)
    tax = _tax(points, inside)
    if tax is not None:
        inside = np.where(points.taxed, inside * (1.0 + tax.at(points.batch)), inside)
    predicted[~prepared.beyond] = inside
    step, drafter = fit.step, fit.drafter
    extra: float | None = None
    if prepared.beyond.any():
        outside = Points.of(
            [o for o, beyond in zip(prepared.kept, prepared.beyond, strict=True) if beyond], prepared.capture
        )
        yields = YieldModel(fit.curves, ()).tokens_per_step(outside, np.empty(0))
        smooth = pass_seconds(step, drafter, outside)
        passes = outside.seconds * yields
        extra = _or_zero(max(float(np.median(passes - smooth)), 0.0), float(np.median(passes)))
        predicted[prepared.beyond] = (smooth + extra) / yields
    if prepared.capture is not None or extra is not None:
        step = CapturedStep(step, prepared.capture, prepared.limit_tokens, extra or 0.0)
    intervals = bootstrap_intervals(fit, bootstrap, seed)
    fitted = np.zeros(len(prepared.kept), dtype=np.bool_)
    fitted[~prepared.beyond] = fit.bound.fitted
    reached = np.ones(len(prepared.kept), dtype=np.bool_)
    reached[~prepared.beyond] = fit.reached
    return Calibration(
        family=problem.family.name,
        step=step,
        drafter=drafter,
        drafter_kind=None if problem.drafter is None else problem.drafter.kind,
        zero_gamma_tax=tax or ZeroGammaTax(),
        zero_gamma_tax_measured=tax is not None,
        uncaptured_seconds=extra,
        curves=_curves(fit),
        parameters=_parameters(fit, intervals),
        residuals=tuple(
            Residual(seen, float(seconds), float(seconds / seen.seconds_per_token - 1.0), bool(took_part), bool(within))
            for seen, seconds, took_part, within in zip(prepared.kept, predicted, fitted, reached, strict=True)
        ),
        left_out=left_out,
        intervals_over=None if intervals is None else resampling_units(fit)[0],
        notes=(*prepared.notes, *notes, *_notes(fit)),
        capture_limit_tokens=prepared.limit_tokens,
    )


def _tax(points: Points, predicted: FloatArray) -> ZeroGammaTax | None:
    """The extra share at gamma 0, by batch: the median over the observations of a load, never below 0."""
    taxed = points.taxed
    if not taxed.any():
        return None
    extra = points.seconds / predicted - 1.0
    found = []
    for load in np.unique(points.load[taxed]):
        of = taxed & (points.load == load)
        found.append((float(np.median(points.batch[of])), _or_zero(max(float(np.median(extra[of])), 0.0))))
    return ZeroGammaTax.of(sorted(dict(found).items()))


def _or_zero(value: float, size: float = 1.0) -> float:
    """Zero for what is only rounding errors beside a natural size."""
    return 0.0 if abs(value) <= _NOTHING * size else value


def _curves(fit: Fit) -> dict[str, AcceptanceCurve]:
    points, curves = fit.problem.points, fit.curves
    for index, name in enumerate(points.classes):
        of = (points.class_index == index) & ~np.isnan(points.yield_known) & points.drafted
        if name not in curves and of.any():
            through = curve_through(points.gamma[of].astype(np.float64), points.yield_known[of], points.weight[of])
            if through is not None:
                curves[name] = through
    return curves


def _parameters(fit: Fit, intervals: tuple[FloatArray, FloatArray] | None) -> tuple[FittedParameter, ...]:
    found = []
    for index, (parameter, value) in enumerate(zip(fit.parameters, fit.values.tolist(), strict=True)):
        held = parameter.name in fit.held
        known = intervals is not None and not held
        low: float | None = None
        high: float | None = None
        if known and intervals is not None:
            low, high = (_or_zero(float(ends[index]), parameter.scale) for ends in intervals)
        found.append(FittedParameter(parameter.name, value, low, high, parameter.unit, held))
    return tuple(found)


def _notes(fit: Fit) -> list[str]:
    notes = [
        f"{p.name} held at {fit.held[p.name].value:g}: {fit.held[p.name].because}"
        for p in fit.parameters
        if p.name in fit.held
    ]
    for parameter, value in zip(fit.parameters, fit.values.tolist(), strict=True):
        if parameter.name in fit.held:
            continue
        for bound, word in ((parameter.low, "least"), (parameter.high, "most")):
            if abs(value - bound) <= 1e-6 * parameter.scale:
                notes.append(f"{parameter.name} stands at the {word} it may be, {bound:g}")
    outside = int((~fit.reached).sum())
    if outside:
        notes.append(f"{outside} observations lie beyond what {fit.problem.family.name} reaches; predicted, not fitted")
    return notes
