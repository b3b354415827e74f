"""From a policy's inputs to the objects of ``adaptive_gamma.roofline``."""

from __future__ import annotations

from adaptive_gamma.errors import PolicyError
from adaptive_gamma.policy.schema import (
    AutoregressiveInput,
    ClassPrior,
    Limits,
    ParallelInput,
    PlainPoolInput,
    PolicyInputs,
    StepInput,
    TableInput,
)
from adaptive_gamma.policy.step_inputs import BasicStepInput
from adaptive_gamma.roofline import (
    AcceptanceCurve,
    AutoregressiveDrafter,
    CapturedStep,
    CaptureSizes,
    Drafter,
    DraftPass,
    MeasuredTableStep,
    ModelShare,
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

__all__ = ["curve_of", "curves_of", "speculation_cost"]


def speculation_cost(inputs: PolicyInputs, source: str = "inputs") -> SpeculationCost:
    """The step times the inputs describe.

    Raises PolicyError where a step time lacks the hardware or model it needs, or a drafter its pass.
    """
    return SpeculationCost(
        step=_captured(_step(inputs, source), inputs.limits, source),
        drafter=_drafter(inputs, source),
        zero_gamma_tax=ZeroGammaTax.of(inputs.limits.zero_gamma_tax),
        capture_limit_tokens=inputs.limits.capture_limit_tokens,
    )


def curves_of(inputs: PolicyInputs, source: str = "inputs") -> dict[str, AcceptanceCurve]:
    """The acceptance curve of each class."""
    return {name: curve_of(prior, source, f"inputs.classes.{name}") for name, prior in inputs.classes.items()}


def curve_of(prior: ClassPrior, source: str, key: str) -> AcceptanceCurve:
    """The curve of a class prior.

    Raises PolicyError for none or several forms at once, for unconditional rates that rise, and for a line that
    leaves 0..1.
    """
    forms = [f for f in ("rates", "line", "two_parameter", "independent") if getattr(prior, f) is not None]
    if len(forms) != 1:
        found = " and ".join(forms) if forms else "none of them"
        raise PolicyError(
            source, key, f"expected exactly one of rates, line, two_parameter, independent; found {found}"
        )
    form = forms[0]
    if prior.plateau is not None and form not in ("rates", "line"):
        raise PolicyError(source, f"{key}.plateau", f"goes with rates or line, not with {form}")
    try:
        if prior.rates is not None:
            if not prior.rates:
                raise ValueError("expected at least one rate")
            return AcceptanceCurve.from_per_position(prior.rates, prior.reading, prior.plateau)
        if prior.line is not None:
            line = prior.line
            return AcceptanceCurve.line(
                line.first, line.fall_per_position, line.positions, prior.reading, prior.plateau
            )
        if prior.two_parameter is not None:
            return AcceptanceCurve.two_parameter(prior.two_parameter.first, prior.two_parameter.plateau)
        if prior.independent is not None and prior.reading == "conditional":
            return AcceptanceCurve.independent(prior.independent)
        raise ValueError("an independent rate is a conditional one; set reading: conditional")
    except ValueError as error:
        raise PolicyError(source, f"{key}.{form}", str(error)) from error


def _step(inputs: PolicyInputs, source: str) -> StepTime:
    chosen = inputs.step_time
    if isinstance(chosen, PlainPoolInput):
        return PlainPoolStep(_basic_step(chosen.plain, inputs, source, "inputs.step_time.plain"), chosen.kv_read_once)
    return _basic_step(chosen, inputs, source, "inputs.step_time")


def _captured(step: StepTime, limits: Limits, source: str) -> StepTime:
    if limits.uncaptured_seconds > 0 and limits.capture_limit_tokens is None and limits.capture_sizes is None:
        raise PolicyError(
            source, "inputs.limits.uncaptured_seconds", "needs capture_limit_tokens, beyond which it applies"
        )
    if limits.uncaptured_seconds == 0 and limits.capture_sizes is None:
        return step
    try:
        sizes = None if limits.capture_sizes is None else CaptureSizes(tuple(limits.capture_sizes))
        return CapturedStep(step, sizes, limits.capture_limit_tokens, limits.uncaptured_seconds)
    except ValueError as error:
        raise PolicyError(source, "inputs.limits.capture_sizes", str(error)) from error


def _basic_step(chosen: BasicStepInput, inputs: PolicyInputs, source: str, key: str) -> StepTime:
    if isinstance(chosen, StepInput):
        try:
            return chosen.step()
        except ValueError as error:
            raise PolicyError(source, key, str(error)) from error
    if isinstance(chosen, TableInput):
        return _table(chosen, source, key)
    if inputs.hardware is None:
        raise PolicyError(source, "inputs.hardware", "missing; a roofline step time needs it")
    if inputs.model is None:
        raise PolicyError(source, "inputs.model", "missing; a roofline step time needs it")
    try:
        capture = None if chosen.capture_sizes is None else CaptureSizes(tuple(chosen.capture_sizes))
    except ValueError as error:
        raise PolicyError(source, f"{key}.capture_sizes", str(error)) from error
    return RooflineStep(
        weight_bytes=inputs.model.weight_bytes,
        flops_per_token=inputs.model.flops_per_token,
        kv_bytes_per_token=inputs.model.kv_bytes_per_token,
        bandwidth=inputs.hardware.bandwidth_bytes_per_s,
        compute=inputs.hardware.compute_flops_per_s,
        memory_efficiency=chosen.memory_efficiency,
        compute_efficiency=chosen.compute_efficiency,
        combine=chosen.combine,
        launch_seconds=chosen.launch_seconds,
        capture=capture,
    )


def _table(chosen: TableInput, source: str, key: str) -> MeasuredTableStep:
    if (chosen.seconds is None) == (chosen.rows is None):
        raise PolicyError(source, key, "expected seconds (one context) or rows (one for each of contexts)")
    if (chosen.rows is None) != (chosen.contexts is None):
        raise PolicyError(source, f"{key}.contexts", "goes with rows, one context for each")
    rows = [chosen.seconds] if chosen.seconds is not None else chosen.rows or []
    try:
        return MeasuredTableStep(
            tuple(chosen.tokens),
            tuple(tuple(row) for row in rows),
            (0.0,) if chosen.contexts is None else tuple(chosen.contexts),
            chosen.interpolation,
        )
    except ValueError as error:
        raise PolicyError(source, key, str(error)) from error


def _drafter(inputs: PolicyInputs, source: str) -> Drafter:
    chosen = inputs.drafter
    if isinstance(chosen, AutoregressiveInput):
        return AutoregressiveDrafter(_pass(chosen, source), chosen.fixed_fraction, chosen.fixed_seconds)
    if isinstance(chosen, ParallelInput):
        return ParallelDrafter(ModelShare(chosen.weight_fraction, chosen.compute_fraction, chosen.kv_fraction))
    return NgramDrafter(chosen.fraction)


def _pass(chosen: AutoregressiveInput, source: str) -> DraftPass:
    shares = (chosen.weight_fraction, chosen.compute_fraction, chosen.kv_fraction)
    given = [chosen.pass_fraction is not None, chosen.pass_seconds is not None, any(s is not None for s in shares)]
    if sum(given) != 1:
        raise PolicyError(
            source,
            "inputs.drafter",
            "expected exactly one of pass_fraction, pass_seconds, or the three weight_, compute_ and kv_fraction",
        )
    if chosen.pass_fraction is not None:
        return PassFraction(chosen.pass_fraction)
    if chosen.pass_seconds is not None:
        return PassSeconds(chosen.pass_seconds)
    weight, compute, kv = shares
    if weight is None or compute is None or kv is None:
        missing = [
            name for name in ("weight_fraction", "compute_fraction", "kv_fraction") if getattr(chosen, name) is None
        ]
        raise PolicyError(source, f"inputs.drafter.{missing[0]}", "missing; a pass as a share needs all three")
    return ModelShare(weight, compute, kv)
