"""Peak figures of accelerators, restated from vendors' data with their source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["HARDWARE", "Hardware", "NumberFormat", "achieved_efficiency", "hardware_named"]

NumberFormat: TypeAlias = Literal["bf16", "fp8"]

_PLANNER = "vendor datasheet, as in ai-dynamo/aiconfigurator @ 095f58a (Apache-2.0)"


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

    def flops(self, number_format: NumberFormat) -> float:
        """Peak FLOP/s in a number format; without fp8 units, fp8 weights are computed in bf16."""
        if number_format == "fp8" and self.fp8_flops is not None:
            return self.fp8_flops
        return self.bf16_flops


def _row(name: str, tb_s: float, bf16_tf: float, fp8_tf: float | None, gigabytes: float, source: str) -> Hardware:
    return Hardware(
        name, tb_s * 1e12, bf16_tf * 1e12, None if fp8_tf is None else fp8_tf * 1e12, gigabytes * 1e9, source
    )


HARDWARE: tuple[Hardware, ...] = (
    _row("H100 SXM", 3.35, 989, 1978, 80, _PLANNER),
    _row("H100 PCIe", 2.0, 756.5, 1513, 80, _PLANNER),
    _row("H200 SXM", 4.8, 989, 1978, 141, _PLANNER),
    _row("A100 SXM 80GB", 2.039, 312, None, 80, _PLANNER),
    _row("A100 PCIe 80GB", 1.935, 312, None, 80, _PLANNER),
    _row("L4", 0.300, 121, 242, 24, _PLANNER),
    _row("L40S", 0.864, 362.05, 733, 48, _PLANNER),
    _row("B200 SXM", 7.7, 2250, 4500, 180, _PLANNER + "; marketing says 8 TB/s"),
    _row("B300 SXM", 7.75, 2250, 4500, 288, _PLANNER),
    _row("GB10", 0.273, 125, 250, 128, "DGX Spark datasheet; bf16 and fp8 inferred by halving 1 PFLOP/s of sparse fp4"),
    _row("MI300X", 5.3, 1307, 2615, 192, "AMD datasheet; FLOP/s not verified against the page"),
    _row("MI355X", 8.0, 2516, 5033, 288, "AMD datasheet; bf16 FLOP/s not verified against the page"),
)

_ALIASES = {"h100": "h100sxm", "h200": "h200sxm", "a100": "a100sxm80gb", "a100sxm": "a100sxm80gb",
            "a100pcie": "a100pcie80gb", "b200": "b200sxm", "b300": "b300sxm", "dgxspark": "gb10"}  # fmt: skip


def _squeezed(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


_BY_NAME = {_squeezed(h.name): h for h in HARDWARE}


def hardware_named(name: str) -> Hardware | None:
    """The accelerator of that name, case and punctuation aside (``h100`` is the SXM one); None where there is none."""
    squeezed = _squeezed(name)
    return _BY_NAME.get(_ALIASES.get(squeezed, squeezed))


_GEMM: dict[tuple[str, NumberFormat], tuple[float, float]] = {
    ("H100 SXM", "bf16"): (0.80, 0.80),
    ("H100 SXM", "fp8"): (0.70, 0.58),
    ("H200 SXM", "bf16"): (0.74, 0.81),
    ("H200 SXM", "fp8"): (0.64, 0.64),
    ("B200 SXM", "bf16"): (0.71, 0.65),
    ("B200 SXM", "fp8"): (0.50, 0.45),
    ("L40S", "bf16"): (0.80, 0.64),
    ("L40S", "fp8"): (0.67, 0.50),
    ("A100 SXM 80GB", "bf16"): (0.66, 0.80),
}


def achieved_efficiency(hardware: Hardware, number_format: NumberFormat) -> tuple[float, float] | None:
    """(memory, compute) efficiency of dense kernels; None where nothing was measured.

    Medians over 105-145 measured GEMM shapes of 50 MB to 1.2 GB weights (ai-dynamo/aiconfigurator @ 095f58a,
    Apache-2.0): memory at 1-128 tokens, compute at 512-2048.
    """
    return _GEMM.get((hardware.name, number_format))
