"""From a sweep to a policy: cells, observations, calibration, acceptance, table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from adaptive_gamma.bench.cells import Cells, sweep_cells
from adaptive_gamma.bench.curves import ClassCurve, class_curves
from adaptive_gamma.bench.fit_words import contradictions, error_words, no_model, no_plain_words, poor_fit_words
from adaptive_gamma.bench.importers import ImportFinding, Sweep
from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.measured_points import MIXED_CLASS, evidence_of, policy_class
from adaptive_gamma.bench.named_model import model_measured
from adaptive_gamma.bench.observations import SweepObservations, sweep_observations
from adaptive_gamma.errors import ConfigurationError, SweepError
from adaptive_gamma.policy import (
    DrafterFamily,
    Evidence,
    Policy,
    build_policy,
    class_prior_input,
    cost_inputs,
    parse_inputs,
)
from adaptive_gamma.policy.document import parse_section
from adaptive_gamma.policy.starter import MEASURED_ZERO_GAMMA_TAX
from adaptive_gamma.roofline import NgramDrafter, SpeculationCost
from adaptive_gamma.roofline.calibrate import (
    Calibration,
    Machine,
    ModelNumbers,
    RankedModel,
    UnderDetermined,
    calibrate,
    compare_models,
)

__all__ = ["BuiltPolicy", "JudgedSweep", "PolicyWishes", "judged_sweep", "policy_from_sweep"]

VLLM_CAPTURE_LIMIT = 512
"""What vLLM captures up to by default on an H200 and smaller (PR #54418)."""
SAME_CONTEXT = 1.5
SOURCE = "policy build --from"


@dataclass(frozen=True, slots=True)
class PolicyWishes:
    """What a policy is asked to cover, beside what was measured; None is taken from the sweep."""

    name: str | None = None
    max_gamma: int | None = None
    min_gamma: int = 1
    max_batch: int | None = None
    contexts: Sequence[int] | None = None
    capture_limit: int | None = None
    no_capture_limit: bool = False
    slo_tpot_seconds: float | None = None
    hardware_name: str | None = None
    machine: Machine | None = None
    model_name: str | None = None
    numbers: ModelNumbers | None = None
    family: DrafterFamily | None = None
    step_time: str | None = None
    """A step-time family; None lets left-out loads choose."""
    allow_poor_fit: bool = False
    """Build from a model that is more than 30 % off in the mean all the same."""
    without_plain: bool = False
    """Build although no engine without a drafter was measured."""
    prompts_cached: bool = False
    prompt_share: float | None = None
    """Prompt tokens computed per output token in the traffic the policy is for; None: as in the sweep."""
    fit_acceptance: bool = False
    bootstrap: int = 200


@dataclass(frozen=True, slots=True)
class JudgedSweep:
    """A sweep of which is known what may be believed."""

    cells: Cells
    observations: SweepObservations
    findings: tuple[ImportFinding, ...]
    """Of the import, the cells and the observations."""


@dataclass(frozen=True, slots=True)
class BuiltPolicy:
    """A policy and how it came to be."""

    policy: Policy
    calibration: Calibration
    ranked: tuple[RankedModel, ...]
    """Every model that was tried, the best first; empty where one was asked for."""


def judged_sweep(sweep: Sweep, wishes: PolicyWishes) -> JudgedSweep:
    """What of a sweep may be believed, and why the rest may not.

    Raises SweepError for rows of several engines or drafters, or of another model than the one asked for.
    """
    named = model_measured(sweep.rows, wishes.model_name, wishes.numbers)
    cells = sweep_cells(sweep.rows)
    seen = sweep_observations(cells, prompts_cached=wishes.prompts_cached, fit_acceptance=wishes.fit_acceptance)
    return JudgedSweep(cells, seen, (*sweep.findings, *named, *cells.findings, *seen.findings))


def policy_from_sweep(sweep: JudgedSweep, wishes: PolicyWishes) -> BuiltPolicy:
    """Calibrate and build.

    Raises:
        SweepError: where nothing usable was measured, or no acceptance, with the import's own reason; where no engine
            without a drafter was, unless that is wished; where the model is more than 30 % off in the mean.
        UnderDetermined: where the rows cannot tell the numbers of any model, in words.
        ConfigurationError: for a roofline without a GPU's peaks and a model's sizes.
        PolicyError: for wishes that contradict each other.
    """
    cells, seen = sweep.cells, sweep.observations
    if wishes.step_time == "roofline" and (wishes.machine is None or wishes.numbers is None):
        raise ConfigurationError("--step-time", "", "roofline needs --gpu and --model, for its peaks and sizes")
    if not seen.observations:
        raise _nothing_usable(sweep.findings)
    if not seen.curves and wishes.family is None and not wishes.fit_acceptance:
        raise _no_acceptance(sweep.findings)
    if not (wishes.without_plain or seen.has_plain):
        raise SweepError(SOURCE, "plain", no_plain_words(seen.observations))
    limit = _capture_limit(cells, wishes)
    fitted, ranked = _calibrated(seen, wishes, limit)
    poor = poor_fit_words(fitted)
    if poor is not None and not wishes.allow_poor_fit:
        raise SweepError(SOURCE, "fit", poor)
    curves = _policy_curves(seen, fitted)
    inputs, assumed = _inputs(cells, seen, fitted, curves, wishes, sweep.findings)
    evidence = parse_section(Evidence, evidence_of(cells, seen, curves, _fitted_tokens(fitted)), SOURCE, "evidence")
    model = wishes.model_name or next((row.model for row in seen.rows if row.model), None)
    policy = build_policy(
        parse_inputs(inputs, SOURCE),
        name=wishes.name or _name(model, seen, wishes),
        description=_description(model, seen, fitted),
        sources=evidence.files,
        measured=_measured(fitted, curves),
        assumed=assumed,
        evidence=evidence,
        source=SOURCE,
    )
    return BuiltPolicy(policy, fitted, ranked)


def _nothing_usable(findings: Sequence[ImportFinding]) -> SweepError:
    for finding in findings:
        if finding.kind == "refused":
            more = sum(one.kind == "refused" for one in findings) - 1
            tail = f" (and {more} more refused)" if more else ""
            return SweepError(
                str(finding.source), finding.field, f"nothing usable was measured: {finding.problem}{tail}"
            )
    return SweepError(SOURCE, "", "nothing usable was measured: no file holds a result")


def _capture_limit(cells: Cells, wishes: PolicyWishes) -> int | None:
    if wishes.no_capture_limit:
        return None
    if wishes.capture_limit is not None:
        return wishes.capture_limit
    engines = {cell.key.engine for cell in cells.cells} | {row.engine for row in cells.steps}
    return VLLM_CAPTURE_LIMIT if "vllm" in engines else None


def _calibrated(
    seen: SweepObservations, wishes: PolicyWishes, limit: int | None
) -> tuple[Calibration, tuple[RankedModel, ...]]:
    given = {name: curve.curve for name, curve in seen.curves.items()}
    drafter: str | None = None if wishes.family is None else wishes.family.drafter.kind
    drafted = any(one.gamma > 0 and one.includes_drafter for one in seen.observations)
    ranked: list[RankedModel] = []
    model: Any = wishes.step_time
    if model is None or (drafted and drafter is None):
        ranked = compare_models(
            seen.observations,
            models=None if model is None else [model],
            drafters=None if drafter is None else [drafter],
            hardware=wishes.machine,
            numbers=wishes.numbers,
            capture_limit_tokens=limit,
            curve=given,
        )
        best = next((one for one in ranked if one.calibration is not None), None)
        if best is None:
            # One reason for each family: its kinds of drafters differ little in what they lack.
            reasons = {one.family.name: one.refusal or "refused" for one in reversed(ranked)}
            raise no_model(seen.observations, dict(reversed(reasons.items())))
        model, drafter = best.family, best.drafter
    try:
        fitted = calibrate(
            seen.observations,
            model=model,
            drafter=drafter if drafted else None,
            hardware=wishes.machine,
            numbers=wishes.numbers,
            capture_limit_tokens=limit,
            curve=given,
            bootstrap=wishes.bootstrap,
        )
    except UnderDetermined as refusal:
        raise no_model(seen.observations, {refusal.model: refusal.problem}) from refusal
    return fitted, tuple(ranked)


def _fitted_tokens(fitted: Calibration) -> float:
    """Most tokens in a step that the step time knows."""
    return max(
        (one.observation.tokens for one in fitted.residuals if one.fitted or not one.observation.speculative),
        default=0.0,
    )


def _policy_curves(seen: SweepObservations, fitted: Calibration) -> dict[str, ClassCurve]:
    """Acceptance by the policy's classes, with the mix of all as a class of its own where there are several."""
    rows = [replace(row, request_class=policy_class(row.request_class)) for row in seen.rows]
    curves = class_curves(rows, Findings())
    for name, curve in fitted.curves.items():
        # A class whose acceptance nobody counted, fitted with the step time.
        own = policy_class(None if name == "all" else name)
        of = tuple(row for row in rows if row.request_class == own and row.acceptance is None and row.gamma)
        if own not in curves and of:
            curves[own] = ClassCurve(curve, max(row.gamma or 0 for row in of), 0, False, of)
    if len(curves) > 1 and MIXED_CLASS not in curves:
        mixed = class_curves([replace(row, request_class=MIXED_CLASS) for row in rows], Findings())
        curves |= mixed
    return curves


def _inputs(
    cells: Cells,
    seen: SweepObservations,
    fitted: Calibration,
    curves: Mapping[str, ClassCurve],
    wishes: PolicyWishes,
    findings: Sequence[ImportFinding],
) -> tuple[dict[str, Any], list[str]]:
    assumed = []
    family = wishes.family
    if fitted.drafter is not None:
        found = cost_inputs(fitted.cost())
        drafter = {**found.drafter, "source": _fitted_to(fitted)}
    elif family is not None:
        found = cost_inputs(
            SpeculationCost(fitted.step, NgramDrafter(0.0), fitted.zero_gamma_tax, fitted.capture_limit_tokens)
        )
        drafter = family.drafter.model_dump(exclude_none=True, exclude_unset=True)
        assumed.append(f"drafter cost: {family.drafter.source or 'assumed'} (no speculative arm was measured)")
    else:
        raise UnderDetermined(
            fitted.family, "no speculative arm was measured; measure one, or name the drafter's family with --drafter"
        )
    if family is not None:
        drafter["family"] = family.name
    classes = {name: _class_input(curve) for name, curve in curves.items()}
    if not classes:
        if family is None:
            raise _no_acceptance(findings)
        classes = {name: prior.model_dump(exclude_none=True) for name, prior in family.classes().items()}
        assumed.append(f"acceptance: priors of the drafter family {family.name} (none was measured)")
    limits = _limits(cells, seen, fitted, found.limits, wishes, assumed)
    inputs: dict[str, Any] = {
        "step_time": {**found.step_time, "source": _fitted_to(fitted)},
        "drafter": drafter,
        "classes": classes,
        "default_class": MIXED_CLASS if MIXED_CLASS in classes else next(iter(classes)),
        "limits": limits,
    }
    if found.hardware is not None:
        inputs = {"hardware": {"name": wishes.hardware_name or "unknown", **found.hardware}, **inputs}
    if found.model is not None:
        inputs = {"model": {"name": wishes.model_name or "unknown", **found.model}, **inputs}
    assumed += [note for note in fitted.notes if "held at" in note]
    if not seen.has_plain:
        assumed.append(
            "plain decoding: no engine without a drafter was measured, every speed-up over it is extrapolated"
        )
    if not wishes.prompts_cached and any(one.prefill_tokens for one in seen.observations):
        assumed.append("every prompt token was computed in the steps measured, none came from a prefix cache")
    return inputs, assumed


def _class_input(curve: ClassCurve) -> dict[str, Any]:
    counted = f"{curve.drafts} drafts counted" if curve.drafts else f"fitted to {len(curve.rows)} runs"
    depth = "by position" if curve.by_position else "from mean lengths, two numbers"
    if len(curve.curve.conditional) > 1:
        rates = np.minimum.accumulate(np.round(curve.curve.unconditional(len(curve.curve.conditional)), 6))
        prior: dict[str, Any] = {
            "reading": "unconditional",
            "rates": rates.tolist(),
            "plateau": round(curve.curve.plateau, 6),
        }
    else:
        prior = class_prior_input(curve.curve)
    return {**prior, "source": f"{counted}, {depth}"}


def _no_acceptance(findings: Sequence[ImportFinding]) -> SweepError:
    for finding in findings:
        if finding.kind == "refused" and finding.field == "acceptance":
            return SweepError(str(finding.source), "acceptance", f"no acceptance to build from: {finding.problem}")
    return SweepError(SOURCE, "acceptance", "no row tells acceptance; name the drafter's family with --drafter")


def _limits(
    cells: Cells,
    seen: SweepObservations,
    fitted: Calibration,
    found: Mapping[str, Any],
    wishes: PolicyWishes,
    assumed: list[str],
) -> dict[str, Any]:
    gammas = [one.gamma for one in seen.observations]
    loads = [max(one.batch, one.load or 0.0) for one in seen.observations]
    limits: dict[str, Any] = {
        "max_gamma": wishes.max_gamma or max(max(gammas), 1),
        "min_gamma": wishes.min_gamma,
        "max_batch": wishes.max_batch or min(_power_above(max(loads)), 8192),
        "context_buckets": list(wishes.contexts or _contexts([one.context_tokens for one in seen.observations])),
        **found,
    }
    share = _prompt_share(seen, wishes)
    if share > 0:
        limits["prompt_tokens_per_output_token"] = share
    if wishes.slo_tpot_seconds is not None:
        limits["slo_tpot_seconds"] = wishes.slo_tpot_seconds
    if not fitted.zero_gamma_tax_measured:
        limits["zero_gamma_tax"] = MEASURED_ZERO_GAMMA_TAX
        assumed.append("zero_gamma_tax: Gemma-4-31B on H100 NVL (vLLM issue #49548)")
    if fitted.capture_limit_tokens is not None and wishes.capture_limit is None:
        assumed.append(f"capture_limit_tokens: {VLLM_CAPTURE_LIMIT}, vLLM's default on an H200 and smaller")
    if not any(one.context_tokens for one in seen.observations):
        assumed.append("context: no row tells its prompts' length, so the step time knows no context")
    return limits


def _prompt_share(seen: SweepObservations, wishes: PolicyWishes) -> float:
    if wishes.prompt_share is not None:
        return wishes.prompt_share
    if wishes.prompts_cached:
        return 0.0
    shares = [row.input_tokens / row.output_tokens for row in seen.rows if row.input_tokens and row.output_tokens]
    return float(f"{np.median(shares):.4g}") if shares else 0.0


def _power_above(value: float) -> int:
    return 1 << max(int(np.ceil(np.log2(max(value, 1.0)))), 3)


def _contexts(measured: Sequence[float]) -> list[int]:
    """The contexts measured, those near each other as one; 2,048 where none is known."""
    known = sorted(value for value in measured if value >= 1)
    groups: list[list[float]] = []
    for value in known:
        if groups and value <= SAME_CONTEXT * groups[-1][0]:
            groups[-1].append(value)
        else:
            groups.append([value])
    return [round(float(np.median(group))) for group in groups] or [2048]


def _fitted_to(fitted: Calibration) -> str:
    of = "" if fitted.reached == len(fitted.residuals) else f" of {len(fitted.residuals)}"
    return f"fitted to {fitted.reached}{of} observations"


def _name(model: str | None, seen: SweepObservations, wishes: PolicyWishes) -> str:
    drafter = (
        wishes.family.name if wishes.family is not None else next((r.drafter for r in seen.rows if r.drafter), None)
    )
    parts = [wishes.hardware_name, (model or "model").rstrip("/").rsplit("/", 1)[-1], drafter, "measured"]
    text = "-".join(part for part in parts if part)
    cleaned = "".join(c if (c.isascii() and c.isalnum()) or c in "._-" else "-" for c in text).strip("-._").lower()
    return cleaned[:63] or "measured"


def _description(model: str | None, seen: SweepObservations, fitted: Calibration) -> str:
    engine = next((row.engine for row in seen.rows if row.engine), None)
    version = next((row.engine_version for row in seen.rows if row.engine_version), None)
    served = " ".join(part for part in (engine, version) if part) or "an engine that the files do not name"
    return f"{model or 'A model the files do not name'} as measured on {served}, {len(fitted.residuals)} observations."


def _measured(fitted: Calibration, curves: Mapping[str, ClassCurve]) -> list[str]:
    error = error_words(fitted)
    if fitted.left_out is not None:
        error += f", on loads left out {fitted.left_out.mean:.1%} (worst {fitted.left_out.worst:.1%})"
    found = [f"step time and drafter: {fitted.family}, {error}"]
    far = contradictions(fitted)
    if far is not None:
        found.append(f"beware: {far}")
    return found + [f"acceptance of {name}: {_class_input(curve)['source']}" for name, curve in curves.items()]
