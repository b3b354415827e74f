"""The policy file, ``adaptive-gamma/policy/v1``: inputs that a person writes, and the table that follows from them.

These models give the file its shape and the range of each value. What takes more than one key to judge is in
``adaptive_gamma.policy.check``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, Field, field_validator

from adaptive_gamma.policy.step_inputs import (
    BasicStepInput,
    LinearInput,
    MoeInput,
    RooflineInput,
    Section,
    StepInput,
    TableInput,
)
from adaptive_gamma.policy.units import Rate, at_least_zero, is_number, measured_in

__all__ = [
    "SCHEMA",
    "AutoregressiveInput",
    "CellTable",
    "ClassPrior",
    "DrafterInput",
    "Evidence",
    "FallingLine",
    "HardwareInput",
    "Limits",
    "LinearInput",
    "ModelInput",
    "MoeInput",
    "NgramInput",
    "ParallelInput",
    "PlainPoolInput",
    "PolicyDocument",
    "PolicyInputs",
    "PolicyTable",
    "RooflineInput",
    "StepInput",
    "StepTimeInput",
    "TableInput",
    "TwoParameters",
]

SCHEMA = "adaptive-gamma/policy/v1"

_Fraction = Annotated[float, at_least_zero(4.0, "a fraction of a target step")]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]


class _Section(BaseModel):
    model_config = Section.model_config


class HardwareInput(_Section):
    """Peaks of what serves one replica; of several GPUs together, their sums."""

    name: str
    bandwidth_bytes_per_s: Annotated[float, measured_in("bytes/s", 1e10, 1e15, {"TB/s": 1e12, "GB/s": 1e9})]
    """Peak of its memory."""
    compute_flops_per_s: Annotated[float, measured_in("FLOP/s", 1e13, 1e17, {"PFLOP/s": 1e15, "TFLOP/s": 1e12})]
    """Dense, at the number format of the weights."""
    memory_bytes: Annotated[float, measured_in("bytes", 1e9, 1e14, {"GB": 1e9})] | None = None


class ModelInput(_Section):
    name: str
    weight_bytes: Annotated[float, measured_in("bytes", 1e6, 1e14, {"billions of bytes": 1e9})]
    """Weights read in a pass."""
    flops_per_token: Annotated[float, measured_in("FLOP", 1e6, 1e15, {"GFLOP": 1e9})]
    """2 x parameters for a dense model."""
    kv_bytes_per_token: Annotated[float, at_least_zero(1e8, "bytes per token of context over all layers")]
    """Of a token of context over all layers."""


class PlainPoolInput(_Section):
    """Verification priced by plain decoding: t_spec(B, g) = t_plain(B (g + 1))."""

    kind: Literal["plain_pool"]
    plain: Annotated[BasicStepInput, Field(discriminator="kind")]
    """Step time of a plain engine."""
    kv_read_once: bool = False
    """Whether a sequence's context is read once a step and not for each of its tokens."""
    source: str | None = None


StepTimeInput: TypeAlias = Annotated[BasicStepInput | PlainPoolInput, Field(discriminator="kind")]


class AutoregressiveInput(_Section):
    """One pass per draft token. Give ``pass_fraction``, or ``pass_seconds``, or the three shares of the target."""

    kind: Literal["autoregressive"]
    family: str | None = None
    """What the drafter is (eagle3, dflash, ...), for the reader."""
    pass_fraction: _Fraction | None = None
    """Of a plain step, for each draft token."""
    pass_seconds: Annotated[float, at_least_zero(1.0, "seconds per drafter pass")] | None = None
    """For each draft token."""
    weight_fraction: _Fraction | None = None
    compute_fraction: _Fraction | None = None
    kv_fraction: _Fraction | None = None
    fixed_fraction: _Fraction = 0.0
    """Of a plain step, once a step whatever gamma is."""
    fixed_seconds: Annotated[float, at_least_zero(1.0, "seconds per step")] = 0.0
    """Once a step whatever gamma is."""
    source: str | None = None


class ParallelInput(_Section):
    """One pass for all gamma tokens, as shares of the target."""

    kind: Literal["parallel"]
    family: str | None = None
    weight_fraction: _Fraction
    compute_fraction: _Fraction
    kv_fraction: _Fraction
    source: str | None = None


class NgramInput(_Section):
    kind: Literal["ngram"]
    family: str | None = None
    fraction: _Fraction = 0.006
    """Of a plain step."""
    source: str | None = None


DrafterInput: TypeAlias = Annotated[AutoregressiveInput | ParallelInput | NgramInput, Field(discriminator="kind")]


class FallingLine(_Section):
    """first - fall_per_position x (i - 1) for positions 1 .. positions."""

    first: Rate
    """Rate of position 1."""
    fall_per_position: float
    """From each position to the next."""
    positions: Annotated[int, Field(ge=1, le=64)]
    """How many it is told for."""


class TwoParameters(_Section):
    """u_i = first x plateau^(i-1); the same curve under both readings."""

    first: Rate
    """Rate of position 1."""
    plateau: Rate
    """Conditional rate of every later one."""


class ClassPrior(_Section):
    """Acceptance believed of a class before any traffic: one of rates, line, two_parameter, independent."""

    reading: Literal["conditional", "unconditional"]
    """conditional: accepted at i among drafts accepted to i-1. unconditional: among all drafts, as vLLM reports it."""
    rates: list[Rate] | None = None
    """By position, from the first."""
    line: FallingLine | None = None
    """Rates that fall by the same from position to position."""
    two_parameter: TwoParameters | None = None
    """The first rate and one for all others."""
    independent: Rate | None = None
    """One rate for all."""
    plateau: Rate | None = None
    """Conditional rate beyond ``rates`` or ``line``; the last one (or last ratio) where it is null."""
    pseudo_drafts: Annotated[float, Field(gt=0, le=1e6)] = 30.0
    """Weight of the prior against counted drafts."""
    source: str | None = None


class Limits(_Section):
    max_gamma: Annotated[int, Field(ge=1, le=64)]
    """Largest gamma of the table."""
    min_gamma: Annotated[int, Field(ge=0, le=64)] = 1
    """Smallest."""
    max_batch: Annotated[int, Field(ge=1, le=8192)]
    """Most sequences of the table; beyond it prices are extrapolated."""
    context_buckets: Annotated[list[Annotated[int, Field(ge=1, le=100_000_000)]], Field(min_length=1, max_length=64)]
    """Context lengths (tokens) the table is made for; a request takes the one nearest by ratio."""
    capture_limit_tokens: Annotated[int, Field(ge=1)] | None = None
    """Most tokens in a captured step (vLLM: max_cudagraph_capture_size); null sets no limit."""
    capture_sizes: list[Annotated[int, Field(ge=1)]] | None = None
    """Token counts that were captured; a step is padded up to the next one."""
    uncaptured_seconds: Annotated[float, at_least_zero(10.0, "extra seconds of a step beyond the limit")] = 0.0
    """What a step beyond the capture limit takes longer, where that was measured."""
    prompt_tokens_per_output_token: Annotated[float, at_least_zero(1e5, "prompt tokens computed per token put out")] = (
        0.0
    )
    """Of the traffic the table is for: a step of B sequences computes (B - 1) x tokens per step x this many prompt
    tokens, more on a speculative engine, for it finishes requests sooner. 0 is decoding alone, as with prompts from the
    prefix cache or prefilled elsewhere."""
    slo_tpot_seconds: Annotated[float, Field(gt=0), at_least_zero(60.0, "seconds per token; 40 ms is 0.04")] | None = (
        None
    )
    """Time per output token that must hold; the table then says up to which batch it does."""
    zero_gamma_tax: Any = 0.0
    """Extra share of a step on a speculative engine at gamma 0: a number, or [[batch, tax], ...]."""

    @field_validator("zero_gamma_tax")
    @classmethod
    def _number_or_points(cls, value: object) -> float | list[list[float]]:
        if is_number(value):
            points = [[1.0, float(value)]]
        elif isinstance(value, list) and value and all(_is_pair(p) for p in value):
            points = [[float(b), float(t)] for b, t in value]
        else:
            raise ValueError("expected a number such as 0.066, or [[batch, tax], ...]")
        for batch, tax in points:
            if batch <= 0 or not 0 <= tax <= 4:
                raise ValueError(f"expected a batch > 0 and a tax in 0..4 (6.6 % is 0.066), not [{batch:g}, {tax:g}]")
        if any(b[0] <= a[0] for a, b in pairwise(points)):
            raise ValueError("expected batches that rise")
        return points if isinstance(value, list) else points[0][1]


class PolicyInputs(_Section):
    """All the physics of a policy."""

    hardware: HardwareInput | None = None
    """Needed by a roofline."""
    model: ModelInput | None = None
    """Needed by a roofline."""
    step_time: StepTimeInput
    """How long a pass of the target takes."""
    drafter: DrafterInput
    """How long drafting takes."""
    classes: Annotated[dict[_Name, ClassPrior], Field(min_length=1)]
    """Acceptance by class."""
    default_class: str
    """Serves a class the policy lacks."""
    limits: Limits
    """What the table covers and keeps within."""


class CellTable(_Section):
    """One class at one context."""

    best_gamma: list[list[int]]
    """[first batch, last batch, gamma], without gaps from batch 1 to max_batch."""
    plain_wins_from: int | None
    """First batch from which no allowed gamma reaches plain decoding; null where there is none in the table."""
    speedup: dict[int, list[float | None]]
    """Batch: predicted speed-up over plain of each gamma in ``gammas``; null beyond the capture limit."""
    within_slo: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None
    """[with the best gamma, plain]: the last batch up to which ``slo_tpot_seconds`` holds, 0 where it never does."""


class PolicyTable(_Section):
    gammas: list[int]
    """Those that ``speedup`` tells of."""
    classes: dict[str, dict[int, CellTable]]
    """Class: context bucket: cell."""


_Point = Annotated[list[Annotated[float, Field(ge=0, le=1e9)]], Field(min_length=7, max_length=7)]
_StepPoint = Annotated[list[Annotated[float, Field(ge=0, le=1e9)]], Field(min_length=4, max_length=4)]
_Arm = Literal["plain"] | Annotated[int, Field(ge=0, le=64)]


class Evidence(_Section):
    """What a sweep measured, and which cells of the table rest on it."""

    files: list[str] = []
    """Read to make it."""
    points: dict[_Name, dict[_Arm, list[_Point]]]
    """Class: arm (``plain``, or its gamma): [load asked for, batch, context, seconds per token, lowest, highest, runs].

    Batch is the mean number of sequences that decoded together, seconds the median of the runs' medians.
    """
    steps: dict[_Arm, list[_StepPoint]] = {}
    """Arm: [batch, context, seconds, times seen] of engine steps that were timed directly."""
    counted_positions: dict[_Name, Annotated[int, Field(ge=0, le=64)]] = {}
    """Class: draft positions whose acceptance was counted."""
    fitted_tokens: Annotated[float, Field(ge=0, le=1e9)]
    """Most tokens in a step that the step time was fitted to; a larger step is extrapolated."""
    cells: dict[_Name, dict[int, dict[int, str]]] = {}
    """Class: context: gamma: ranges of batches as ``1-4 measured, 5-15 interpolated, 16-64 extrapolated``."""


class PolicyDocument(_Section):
    """The whole file."""

    schema_: Annotated[Literal["adaptive-gamma/policy/v1"], Field(alias="schema")]
    """Which form the file has."""
    name: _Name
    description: str = ""
    sources: list[str] = []
    """Where numbers come from."""
    measured: list[str] = []
    """Which numbers are measured, and by whom."""
    assumed: list[str] = []
    """Which numbers are assumed."""
    inputs: PolicyInputs
    """The physics, from which the table follows."""
    table: PolicyTable
    """Look-ups made of it."""
    evidence: Evidence | None = None
    """None for a policy that was not built from a sweep."""


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(is_number(v) for v in value)
