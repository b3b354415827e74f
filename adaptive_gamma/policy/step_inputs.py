"""The kinds of step time that a policy may name, each with the values it is made of."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator

from adaptive_gamma.policy.units import Efficiency, at_least_zero, is_number
from adaptive_gamma.roofline import LinearStep, MoeStep, StepTime

__all__ = ["BasicStepInput", "LinearInput", "MoeInput", "RooflineInput", "Section", "StepInput", "TableInput"]


class Section(BaseModel):
    """A part of a policy file; wrong keys are refused, and numbers are no texts."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class StepInput(Section):
    """A kind of step time that is made of its own values alone."""

    @abstractmethod
    def step(self) -> StepTime:
        """The step time. Raises ValueError where the values do not fit together."""


class RooflineInput(Section):
    """Memory against compute time from the hardware's peaks and the model's size."""

    kind: Literal["roofline"]
    combine: Any = 2.0
    """``max``, or the power p >= 1 of (memory^p + compute^p)^(1/p)."""
    memory_efficiency: Efficiency
    """Share of the peak bandwidth that is reached."""
    compute_efficiency: Efficiency
    """Share of the peak FLOP/s that is reached."""
    launch_seconds: Annotated[float, at_least_zero(1.0, "seconds; milliseconds would be 1000 times that")] = 0.0
    capture_sizes: list[int] | None = None
    """Captured token counts a step is padded up to."""
    source: str | None = None

    @field_validator("combine")
    @classmethod
    def _max_or_power(cls, value: object) -> Literal["max"] | float:
        return _combine(value)


class LinearInput(StepInput):
    """t = fixed + per token x tokens + per KV token x KV tokens, as fitted to a server."""

    kind: Literal["linear"]
    fixed_seconds: Annotated[float, at_least_zero(5.0, "seconds per step; 20.6 ms is 0.0206")]
    """Of every step."""
    seconds_per_token: Annotated[float, at_least_zero(0.05, "seconds per token; 0.105 ms is 1.05e-4")]
    seconds_per_kv_token: Annotated[float, at_least_zero(1e-4, "seconds per KV token; 62.6 ns is 6.26e-8")] = 0.0
    source: str | None = None

    def step(self) -> StepTime:
        if self.fixed_seconds + self.seconds_per_token <= 0:
            raise ValueError("a step needs fixed_seconds or seconds_per_token above 0")
        return LinearStep(self.fixed_seconds, self.seconds_per_token, self.seconds_per_kv_token)


class MoeInput(StepInput):
    """Shared weights, experts as tokens need them, tokens and KV tokens, in seconds, as fitted to a server.

    Memory time is shared + experts x D(T) / N + KV, with D(T) / N = 1 - (1 - active_share)^(T^exponent).
    """

    kind: Literal["moe"]
    shared_seconds: Annotated[float, at_least_zero(5.0, "seconds per step")]
    """Reading the weights that every token uses."""
    experts_seconds: Annotated[float, at_least_zero(5.0, "seconds to read all experts")]
    """Reading all experts."""
    active_share: Annotated[float, Field(gt=0, lt=1)]
    """Experts a token uses, of those of a layer: 8 of 128 is 0.0625."""
    exponent: Annotated[float, Field(gt=0, le=2)] = 1.0
    """1: every token draws its experts at random; below 1: tokens choose alike."""
    seconds_per_token: Annotated[float, at_least_zero(0.05, "seconds per token; 0.105 ms is 1.05e-4")]
    seconds_per_kv_token: Annotated[float, at_least_zero(1e-4, "seconds per KV token; 62.6 ns is 6.26e-8")] = 0.0
    launch_seconds: Annotated[float, at_least_zero(1.0, "seconds; milliseconds would be 1000 times that")] = 0.0
    combine: Any = 1.0
    """``max``, or the power p >= 1 of (memory^p + compute^p)^(1/p)."""
    source: str | None = None

    @field_validator("combine")
    @classmethod
    def _max_or_power(cls, value: object) -> Literal["max"] | float:
        return _combine(value)

    def step(self) -> StepTime:
        return MoeStep(
            shared_seconds=self.shared_seconds,
            experts_seconds=self.experts_seconds,
            active_share=self.active_share,
            token_seconds=self.seconds_per_token,
            exponent=self.exponent,
            kv_token_seconds=self.seconds_per_kv_token,
            launch_seconds=self.launch_seconds,
            combine=self.combine,
        )


_Seconds = Annotated[float, Field(gt=0), at_least_zero(100.0, "seconds per step; 20.6 ms is 0.0206")]


class TableInput(Section):
    """Measured seconds of a step by the tokens computed in it; they may not fall.

    With ``contexts``, a row for each: the context of sequences that compute one token each (a step of several tokens
    per sequence reads every context once and is priced at context / tokens per sequence).
    """

    kind: Literal["table"]
    tokens: Annotated[list[Annotated[float, Field(gt=0, le=1e7)]], Field(min_length=2, max_length=4096)]
    """Computed in the steps that were measured; they rise."""
    seconds: list[_Seconds] | None = None
    """One for each token count; or ``rows``."""
    contexts: list[Annotated[float, Field(ge=0, le=1e8)]] | None = None
    """Context lengths of the rows."""
    rows: list[list[_Seconds]] | None = None
    """For each of ``contexts`` its seconds."""
    interpolation: Literal["linear", "log"] = "linear"
    """Between measured steps."""
    source: str | None = None


BasicStepInput: TypeAlias = RooflineInput | LinearInput | MoeInput | TableInput


def _combine(value: object) -> Literal["max"] | float:
    if value == "max":
        return "max"
    if is_number(value) and 1 <= value <= 1000:
        return float(value)
    raise ValueError(f"expected 'max' or a power in 1..1000, not {value!r}")
