"""What is known before anything is measured, and the families by name."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_gamma.roofline.calibrate.families import LinearFamily, PlainPoolFamily, StepFamily
from adaptive_gamma.roofline.hardware import Hardware, NumberFormat

__all__ = ["Machine", "ModelNumbers", "families_for", "family_named"]


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
class ModelNumbers:
    """Sizes of a model as served."""

    weight_bytes: float
    """All weights that a step of many tokens reads; of a mixture of experts, all experts included."""
    flops_per_token: float
    """2 x the parameters that a token uses."""
    kv_bytes_per_token: float
    experts: int | None = None
    """Experts of a layer; None for a dense model."""
    active_experts: int | None = None
    """Of these, how many a token uses."""
    expert_bytes: float | None = None
    """Bytes of all experts of all layers, within ``weight_bytes``."""


def families_for(hardware: Machine | None, numbers: ModelNumbers | None) -> list[StepFamily]:
    """Every family that can be tried with what is known."""
    return [LinearFamily(), PlainPoolFamily("log"), PlainPoolFamily("linear")]


def family_named(name: str, hardware: Machine | None, numbers: ModelNumbers | None) -> StepFamily:
    """A family by its name. Raises ValueError for a name there is not."""
    by_name: dict[str, StepFamily] = {f.name: f for f in families_for(hardware, numbers)}
    by_name["plain_pool"] = by_name["plain_pool/log"]
    if name not in by_name:
        raise ValueError(f"model must be one of {', '.join(by_name)}, not {name!r}")
    return by_name[name]
