"""The entry points: calibrate one model, or let loads that were left out choose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from adaptive_gamma.roofline.calibrate.acceptance import GivenCurves
from adaptive_gamma.roofline.calibrate.calibration import POOR_FIT, Calibration, Prepared, calibration_of
from adaptive_gamma.roofline.calibrate.catalogue import families_for, family_named
from adaptive_gamma.roofline.calibrate.drafters import DRAFTER_KINDS
from adaptive_gamma.roofline.calibrate.family import StepFamily
from adaptive_gamma.roofline.calibrate.fit import Fit
from adaptive_gamma.roofline.calibrate.known import Machine, ModelNumbers
from adaptive_gamma.roofline.calibrate.left_out import LeftOut, leave_one_load_out
from adaptive_gamma.roofline.calibrate.observation import Observation
from adaptive_gamma.roofline.calibrate.parametric import LinearFamily, MoeFamily
from adaptive_gamma.roofline.calibrate.refusal import UnderDetermined
from adaptive_gamma.roofline.capture import CaptureSizes

__all__ = ["RankedModel", "calibrate", "compare_models"]


@dataclass(frozen=True, slots=True)
class RankedModel:
    """A model in a comparison."""

    family: StepFamily
    drafter: str | None
    left_out: LeftOut | None
    calibration: Calibration | None
    """Fitted to all observations, without intervals; None where it was refused."""
    refusal: str | None
    """Why it could not be fitted or judged, in words."""


def calibrate(
    observations: Sequence[Observation],
    *,
    model: StepFamily | str | None = None,
    drafter: str | None = None,
    hardware: Machine | None = None,
    numbers: ModelNumbers | None = None,
    capture_limit_tokens: int | None = None,
    capture_sizes: CaptureSizes | None = None,
    curve: GivenCurves = None,
    bootstrap: int = 200,
    seed: int = 0,
) -> Calibration:
    """Fit a model to what a server was seen to do.

    Errors are relative (least squares of log(predicted / observed)), each observation counting by the share of its
    requests that came through.

    Args:
        observations: of one engine, model and drafter.
        model: a step-time family or its name (``linear``, ``roofline``, ``moe``, ``table``, ``plain_pool``); None
            takes the one that predicts left-out loads best, of those that reach all observations.
        drafter: ``autoregressive``, ``parallel`` or ``ngram``; None likewise.
        hardware: peaks of what served; a roofline needs them.
        numbers: sizes of the model; a roofline needs them.
        capture_limit_tokens: most tokens in a captured step. Observations beyond it only tell what leaving it costs.
        capture_sizes: token counts the engine captured; steps are then taken as padded up to them.
        curve: acceptance, for all classes or by class; used where an observation does not know its tokens per step. A
            class without either is fitted too.
        bootstrap: draws for the intervals; 0 leaves them out.
        seed: of those draws.

    Raises UnderDetermined where the observations cannot tell the parameters, in words; ValueError for a name there is
    not.
    """
    notes = []
    if model is None or (drafter is None and any(o.includes_drafter and o.gamma > 0 for o in observations)):
        ranked = compare_models(
            observations,
            models=None if model is None else [model],
            drafters=None if drafter is None else [drafter],
            hardware=hardware,
            numbers=numbers,
            capture_limit_tokens=capture_limit_tokens,
            capture_sizes=capture_sizes,
            curve=curve,
        )
        best = ranked[0]
        if best.calibration is None:
            raise UnderDetermined("any model", "; ".join(f"{r.family.name}: {r.refusal}" for r in ranked))
        model, drafter = best.family, best.drafter
        notes.append(f"chosen by leave-one-load-out among {len(ranked)} models")
    family = family_named(model, hardware, numbers) if isinstance(model, str) else model
    prepared = Prepared.of(observations, capture_sizes, capture_limit_tokens)
    problem = prepared.problem(family, drafter, curve)
    fit = Fit.of(problem, prepared.inside.weight)
    left_out, reason = _judged(fit)
    if reason is not None:
        notes.append(f"not judged on left-out loads: {reason}")
    return calibration_of(prepared, fit, left_out=left_out, bootstrap=bootstrap, seed=seed, notes=notes)


def compare_models(
    observations: Sequence[Observation],
    *,
    models: Sequence[StepFamily | str] | None = None,
    drafters: Sequence[str] | None = None,
    hardware: Machine | None = None,
    numbers: ModelNumbers | None = None,
    capture_limit_tokens: int | None = None,
    capture_sizes: CaptureSizes | None = None,
    curve: GivenCurves = None,
) -> list[RankedModel]:
    """Fit every model with every kind of drafter, and rank them by their mean error on loads left out.

    The error is that over all observations. Models that do not reach some of them (a plain curve that ends before) come
    after those that do, whatever their error, and poor fits (more than 30 % off in the mean) after all good ones.
    Models that cannot be judged so come after those that can, refused ones last, each with its reason. One that fits
    what it has seen worse than another predicts what it has not is not judged, for it cannot win; neither is one that
    does not reach all, where a good one does. A mixture of experts without a sign of experts is refused beside the
    straight line that it is. Arguments as for ``calibrate``; ``models`` None is every family that the hardware and
    model numbers at hand allow.

    Raises UnderDetermined where no observation is usable.
    """
    prepared = Prepared.of(observations, capture_sizes, capture_limit_tokens)
    families = (
        families_for(hardware, numbers)
        if models is None
        else [family_named(m, hardware, numbers) if isinstance(m, str) else m for m in models]
    )
    kinds: Sequence[str | None] = [None]
    if prepared.inside.drafted.any():
        kinds = DRAFTER_KINDS if drafters is None else drafters
    refused: list[RankedModel] = []
    fits: list[tuple[str | None, Fit]] = []
    for family, kind in product(families, kinds):
        try:
            problem = prepared.problem(family, kind, curve)
            fits.append((kind, Fit.of(problem, prepared.inside.weight, more_starts=1)))
        except UnderDetermined as refusal:
            refused.append(RankedModel(family, kind, None, None, refusal.problem))
    fits, lines = _without_disguised_lines(fits)
    refused += lines
    ranked = []
    least = math.inf
    wholly = False
    for kind, fit in sorted(fits, key=lambda entry: (not entry[1].reached.all(), entry[1].mean_error)):
        left_out: LeftOut | None = None
        reason: str | None = "it fits what it has seen worse than another predicts what it has not"
        whole = bool(fit.reached.all())
        if wholly and not whole:
            reason = "it ends before some observations, and another model does not"
        elif fit.mean_error <= least:
            left_out, reason = _judged(fit)
            least = least if left_out is None else min(least, left_out.mean)
            wholly = wholly or (whole and left_out is not None and fit.mean_error <= POOR_FIT)
        found = calibration_of(prepared, fit, left_out=left_out, bootstrap=0, seed=0, notes=())
        ranked.append(RankedModel(fit.problem.family, kind, left_out, found, reason))
    return [*sorted(ranked, key=_rank), *refused]


def _without_disguised_lines(
    fits: Sequence[tuple[str | None, Fit]],
) -> tuple[list[tuple[str | None, Fit]], list[RankedModel]]:
    """Of a mixture of experts in which none are seen and the straight line that it is, the line alone."""
    lines = {kind for kind, fit in fits if isinstance(fit.problem.family, LinearFamily)}
    kept, left = [], []
    for kind, fit in fits:
        family = fit.problem.family
        if kind in lines and isinstance(family, MoeFamily) and fit.by_name["experts_seconds"] == 0.0:
            left.append(
                RankedModel(family, kind, None, None, "it fits as the straight line, with no experts to be seen")
            )
        else:
            kept.append((kind, fit))
    return kept, left


def _judged(fit: Fit) -> tuple[LeftOut | None, str | None]:
    """The errors on loads left out, or why there are none."""
    try:
        return leave_one_load_out(fit), None
    except UnderDetermined as refusal:
        return None, refusal.problem


def _rank(model: RankedModel) -> tuple[bool, bool, bool, float]:
    found = model.calibration
    assert found is not None  # the refused ones are not ranked
    error = found.mean_error if model.left_out is None else model.left_out.mean
    return (found.mean_error > POOR_FIT, found.reached < len(found.residuals), model.left_out is None, error)
