"""From the objects of ``adaptive_gamma.roofline`` back to a policy's inputs: what calibration found, written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adaptive_gamma.roofline import (
    AcceptanceCurve,
    AutoregressiveDrafter,
    CapturedStep,
    Drafter,
    LinearStep,
    MeasuredTableStep,
    ModelShare,
    MoeStep,
    NgramDrafter,
    ParallelDrafter,
    PassFraction,
    PassSeconds,
    PlainPoolStep,
    RooflineStep,
    SpeculationCost,
    StepTime,
    ZeroGammaTax,
)

__all__ = ["CostInputs", "class_prior_input", "cost_inputs", "drafter_input", "step_time_input"]


@dataclass(frozen=True, slots=True)
class CostInputs:
    """Parts of a policy's ``inputs``, as a parsed file has them."""

    step_time: dict[str, Any]
    drafter: dict[str, Any]
    limits: dict[str, Any]
    """``capture_limit_tokens``, ``capture_sizes``, ``uncaptured_seconds`` and ``zero_gamma_tax``, as far as set."""
    hardware: dict[str, Any] | None
    """Without its name; None where the step time does not go by hardware."""
    model: dict[str, Any] | None
    """Likewise."""


def cost_inputs(cost: SpeculationCost) -> CostInputs:
    """What to write in a policy so that ``speculation_cost`` gives the same times again.

    Raises TypeError for a step time or drafter that a policy has no kind for.
    """
    limits: dict[str, Any] = {}
    step = cost.step
    if isinstance(step, CapturedStep):
        if step.sizes is not None:
            limits["capture_sizes"] = list(step.sizes.sizes)
        if step.uncaptured_seconds > 0:
            limits["uncaptured_seconds"] = step.uncaptured_seconds
        if step.limit is not None:
            limits["capture_limit_tokens"] = step.limit
        step = step.step
    if cost.capture_limit_tokens is not None:
        limits["capture_limit_tokens"] = cost.capture_limit_tokens
    if cost.zero_gamma_tax != ZeroGammaTax():
        points = [[batch, tax] for batch, tax in cost.zero_gamma_tax.points]
        limits["zero_gamma_tax"] = points[0][1] if len(points) == 1 else points
    roofline = step.plain if isinstance(step, PlainPoolStep) else step
    hardware: dict[str, Any] | None = None
    model: dict[str, Any] | None = None
    if isinstance(roofline, RooflineStep):
        hardware = {"bandwidth_bytes_per_s": roofline.bandwidth, "compute_flops_per_s": roofline.compute}
        model = {
            "weight_bytes": roofline.weight_bytes,
            "flops_per_token": roofline.flops_per_token,
            "kv_bytes_per_token": roofline.kv_bytes_per_token,
        }
    return CostInputs(step_time_input(step), drafter_input(cost.drafter), limits, hardware, model)


def step_time_input(step: StepTime) -> dict[str, Any]:
    """The ``step_time`` of a policy. Raises TypeError for a step time that a policy has no kind for."""
    if isinstance(step, PlainPoolStep):
        found: dict[str, Any] = {"kind": "plain_pool", "plain": step_time_input(step.plain)}
        return {**found, "kv_read_once": True} if step.kv_read_once else found
    if isinstance(step, LinearStep):
        return {
            "kind": "linear",
            "fixed_seconds": step.fixed_seconds,
            "seconds_per_token": step.token_seconds,
            "seconds_per_kv_token": step.kv_token_seconds,
        }
    if isinstance(step, MoeStep):
        return {
            "kind": "moe",
            "shared_seconds": step.shared_seconds,
            "experts_seconds": step.experts_seconds,
            "active_share": step.active_share,
            "exponent": step.exponent,
            "seconds_per_token": step.token_seconds,
            "seconds_per_kv_token": step.kv_token_seconds,
            "launch_seconds": step.launch_seconds,
            "combine": step.combine,
        }
    if isinstance(step, MeasuredTableStep):
        one_context = step.contexts == (0.0,)
        times: dict[str, Any] = (
            {"seconds": list(step.rows[0])}
            if one_context
            else {"contexts": list(step.contexts), "rows": [list(row) for row in step.rows]}
        )
        return {"kind": "table", "tokens": list(step.tokens), **times, "interpolation": step.interpolation}
    if isinstance(step, RooflineStep):
        return {
            "kind": "roofline",
            "combine": step.combine,
            "memory_efficiency": step.memory_efficiency,
            "compute_efficiency": step.compute_efficiency,
            "launch_seconds": step.launch_seconds,
            **({} if step.capture is None else {"capture_sizes": list(step.capture.sizes)}),
        }
    raise TypeError(f"a policy has no kind for the step time {type(step).__name__}")


def drafter_input(drafter: Drafter) -> dict[str, Any]:
    """The ``drafter`` of a policy. Raises TypeError for a drafter that a policy has no kind for."""
    if isinstance(drafter, NgramDrafter):
        return {"kind": "ngram", "fraction": drafter.fraction}
    if isinstance(drafter, ParallelDrafter):
        return {"kind": "parallel", **_shares(drafter.share)}
    if isinstance(drafter, AutoregressiveDrafter):
        one = drafter.draft_pass
        one_pass: Mapping[str, float]
        if isinstance(one, PassFraction):
            one_pass = {"pass_fraction": one.fraction}
        elif isinstance(one, PassSeconds):
            one_pass = {"pass_seconds": one.seconds}
        else:
            one_pass = _shares(one)
        fixed = {"fixed_fraction": drafter.fixed_fraction, "fixed_seconds": drafter.fixed_seconds}
        return {"kind": "autoregressive", **one_pass, **{key: value for key, value in fixed.items() if value > 0}}
    raise TypeError(f"a policy has no kind for the drafter {type(drafter).__name__}")


def class_prior_input(curve: AcceptanceCurve) -> dict[str, Any]:
    """A class of a policy with this curve; its weight against counted drafts is left at the default."""
    if len(curve.conditional) == 0:
        return {"reading": "conditional", "independent": curve.plateau}
    if len(curve.conditional) == 1:
        both = {"first": curve.conditional[0], "plateau": curve.plateau}
        return {"reading": "unconditional", "two_parameter": both}
    rates: list[float] = curve.unconditional(len(curve.conditional)).tolist()
    return {"reading": "unconditional", "rates": rates, "plateau": curve.plateau}


def _shares(share: ModelShare) -> dict[str, float]:
    return {"weight_fraction": share.weight, "compute_fraction": share.compute, "kv_fraction": share.kv}
