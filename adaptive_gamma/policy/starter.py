"""A first policy from public figures: an accelerator, a dense model, a drafter family."""

from __future__ import annotations

from adaptive_gamma.errors import PolicyError
from adaptive_gamma.policy.document import parse_inputs
from adaptive_gamma.policy.priors import DrafterFamily
from adaptive_gamma.policy.schema import Limits
from adaptive_gamma.policy.table import Policy, build_policy
from adaptive_gamma.roofline import Hardware, ModelShape, NumberFormat, achieved_efficiency

__all__ = ["MEASURED_ZERO_GAMMA_TAX", "starter_policy"]

MEASURED_ZERO_GAMMA_TAX = [[2.0, 0.0656], [189.0, 0.2158]]
"""(batch, tax) of Gemma-4-31B on one H100 NVL (vLLM issue #49548)."""
_ASSUMED_EFFICIENCY = (0.75, 0.65)
"""(memory, compute) where no kernels were measured: the low end of those that were."""


def starter_policy(
    hardware: Hardware,
    shape: ModelShape,
    family: DrafterFamily,
    weights: NumberFormat,
    limits: Limits,
    name: str | None = None,
    source: str = "policy build",
) -> Policy:
    """A policy from nothing measured on the server it is for: a p = 2 roofline and the family's priors.

    Raises PolicyError for a mixture of experts, whose step time a dense roofline does not give.
    """
    if shape.parameters is None:
        raise PolicyError(source, "inputs.model", f"{shape.name} is a mixture of experts; its step time is not known")
    measured_efficiency = achieved_efficiency(hardware, weights)
    memory, compute = measured_efficiency or _ASSUMED_EFFICIENCY
    short = shape.name.rsplit("/", 1)[-1]
    label = f"{hardware.name}-{short}-{weights}-{family.name}"
    inputs = {
        "hardware": {
            "name": hardware.name,
            "bandwidth_bytes_per_s": hardware.bandwidth,
            "compute_flops_per_s": hardware.flops(weights),
            "memory_bytes": hardware.memory_bytes,
        },
        "model": {
            "name": shape.name,
            "weight_bytes": shape.parameters * (2.0 if weights == "bf16" else 1.0),
            "flops_per_token": 2.0 * shape.parameters,
            "kv_bytes_per_token": shape.kv_bytes_per_token(),
        },
        "step_time": {
            "kind": "roofline",
            "combine": 2.0,
            "memory_efficiency": memory,
            "compute_efficiency": compute,
        },
        "drafter": family.drafter,
        "classes": family.classes(),
        "default_class": "unsure",
        "limits": limits,
    }
    return build_policy(
        parse_inputs(inputs, source),
        name=name or "".join(c if (c.isascii() and c.isalnum()) or c in "._-" else "-" for c in label).lower()[:63],
        description=f"{shape.name} ({weights}) on one {hardware.name} with the drafter family {family.name}. "
        "A first guess from public figures: measure your own server before you trust it.",
        sources=[hardware.source, family.source],
        measured=["efficiencies: dense GEMM medians of this accelerator"] if measured_efficiency else [],
        assumed=[
            *([] if measured_efficiency else ["efficiencies: nothing measured for this accelerator and format"]),
            "acceptance: priors of the drafter family",
            "drafter cost: " + (family.drafter.source or "assumed"),
            "zero_gamma_tax: Gemma-4-31B on H100 NVL (vLLM issue #49548)",
        ],
        source=source,
    )
