"""What an accelerator can do. The figures of real ones are data: ``adaptive_gamma.policy.library`` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Efficiency", "Hardware", "NumberFormat", "achieved_efficiency"]

NumberFormat: TypeAlias = Literal["bf16", "fp8"]


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Shares of the peaks that dense kernels reach, each in (0, 1]."""

    memory: float
    """Of bandwidth, at 1-128 tokens in a step."""
    compute: float
    """Of FLOP/s, at 512-2048 tokens."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """One accelerator. FLOP/s are dense (no sparsity)."""

    name: str
    bandwidth: float
    """Peak memory bandwidth, bytes/s."""
    bf16_flops: float
    """Peak dense bf16 compute, FLOP/s."""
    fp8_flops: float | None
    """Peak dense fp8 compute, FLOP/s; None where there are no fp8 units."""
    memory_bytes: float
    source: str
    bf16_efficiency: Efficiency | None = None
    """None where nothing was measured."""
    fp8_efficiency: Efficiency | None = None

    def flops(self, number_format: NumberFormat) -> float:
        """Peak FLOP/s in a number format; without fp8 units, fp8 weights are computed in bf16."""
        if number_format == "fp8" and self.fp8_flops is not None:
            return self.fp8_flops
        return self.bf16_flops

    def efficiency(self, number_format: NumberFormat) -> Efficiency | None:
        """What dense kernels reach in a number format; None where nothing was measured."""
        return self.fp8_efficiency if number_format == "fp8" else self.bf16_efficiency


def achieved_efficiency(hardware: Hardware, number_format: NumberFormat) -> tuple[float, float] | None:
    """(memory, compute) efficiency of dense kernels; None where nothing was measured."""
    found = hardware.efficiency(number_format)
    return None if found is None else (found.memory, found.compute)
