"""What is known before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_gamma.roofline.hardware import Hardware, NumberFormat
from adaptive_gamma.roofline.model_shape import ModelShape

__all__ = ["Experts", "Machine", "ModelNumbers"]


@dataclass(frozen=True, slots=True)
class Machine:
    """Peaks of what serves one replica; of several accelerators together, their sums."""

    bandwidth: float
    """Bytes/s."""
    compute: float
    """Dense FLOP/s at the number format of the weights."""

    @classmethod
    def of(cls, hardware: Hardware, weights: NumberFormat, count: int = 1) -> Machine:
        """Of ``count`` accelerators."""
        return cls(hardware.bandwidth * count, hardware.flops(weights) * count)


@dataclass(frozen=True, slots=True)
class Experts:
    """Of a mixture of experts."""

    count: int
    """Experts of a layer."""
    active: int
    """Of these, how many a token uses."""
    bytes_of_all: float
    """All experts of all layers."""


@dataclass(frozen=True, slots=True)
class ModelNumbers:
    """Sizes of a model as served."""

    weight_bytes: float
    """All weights that a step of many tokens reads; of a mixture of experts, all experts included."""
    flops_per_token: float
    """2 x the parameters that a token uses."""
    kv_bytes_per_token: float
    experts: Experts | None = None
    """None for a dense model."""

    @classmethod
    def of(cls, shape: ModelShape, bytes_per_weight: float) -> ModelNumbers:
        """From a model's shape: 2 bytes per weight for bf16, 1 for fp8. KV cache values take two bytes.

        Raises ValueError for a mixture of experts whose configuration does not tell how many experts a token uses.
        """
        total, active, routed = shape.total_parameters, shape.active_parameters, shape.experts
        if total is None or active is None:
            raise ValueError(f"{shape.name}: its configuration does not tell how many experts a token uses")
        return cls(
            weight_bytes=total * bytes_per_weight,
            flops_per_token=2.0 * active,
            kv_bytes_per_token=shape.kv_bytes_per_token(),
            experts=None
            if routed is None
            else Experts(routed.count, routed.active, routed.parameters * bytes_per_weight),
        )
