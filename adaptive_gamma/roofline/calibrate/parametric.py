"""Step times of a few numbers: a straight line, a roofline, a mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass, field

from adaptive_gamma.roofline.arrays import FloatArray
from adaptive_gamma.roofline.calibrate.family import TWO_CONTEXTS, TWO_LOADS, Bound, BoundFamily, Scales
from adaptive_gamma.roofline.calibrate.known import Machine, ModelNumbers
from adaptive_gamma.roofline.calibrate.observation import Points
from adaptive_gamma.roofline.calibrate.parameter import Parameter
from adaptive_gamma.roofline.moe import MoeStep
from adaptive_gamma.roofline.step_time import Combine, LinearStep, RooflineStep, StepTime

__all__ = ["LinearFamily", "MoeFamily", "RooflineFamily"]

_LOW_TOKENS = "steps of few tokens, where not all experts are read, and steps of many"
_EXPONENT = Parameter("exponent", 0.2, 1.5, 0.85, "", _LOW_TOKENS, held_at=1.0)


@dataclass(frozen=True, slots=True)
class _BoundLinear(Bound):
    def step(self, values: FloatArray) -> StepTime:
        fixed, token, kv = values.tolist()
        return LinearStep(fixed, token, kv)


@dataclass(frozen=True, slots=True)
class LinearFamily:
    """t = t0 + c x tokens + k x KV tokens."""

    name: str = field(default="linear", init=False)

    def bind(self, points: Points, weights: FloatArray) -> BoundFamily:
        least = Scales.of(points)
        return _BoundLinear(
            (
                _positive("fixed_seconds", 0.7 * least.step_seconds, TWO_LOADS),
                Parameter("token_seconds", 0.0, 0.05, 0.3 * least.step_seconds / least.tokens, "s/token", TWO_LOADS),
                _kv(least),
            ),
            ~points.taxed,
        )


@dataclass(frozen=True, slots=True)
class _BoundMoe(Bound):
    active_share: float | None
    combine: Combine

    def step(self, values: FloatArray) -> StepTime:
        shared, experts, exponent, token, kv, *share = values.tolist()
        return MoeStep(
            shared, experts, self.active_share or share[0], token, exponent, kv_token_seconds=kv, combine=self.combine
        )


@dataclass(frozen=True, slots=True)
class MoeFamily:
    """Shared weights, experts as tokens need them, tokens, KV tokens; in seconds, so that no hardware need be known.

    Where nothing tells the experts from the rest, it is a straight line.
    """

    active_share: float | None = None
    """Experts a token uses, of those of a layer; None fits it too."""
    combine: Combine = 1.0
    name: str = field(default="moe", init=False)

    def bind(self, points: Points, weights: FloatArray) -> BoundFamily:
        least = Scales.of(points)
        parameters = [
            _positive("shared_seconds", 0.6 * least.step_seconds, _LOW_TOKENS),
            Parameter("experts_seconds", 0.0, 5.0, least.step_seconds, "s", _LOW_TOKENS, held_at=0.0),
            _EXPONENT,
            Parameter("token_seconds", 0.0, 0.05, 0.2 * least.step_seconds / least.tokens, "s/token", TWO_LOADS),
            _kv(least),
        ]
        if self.active_share is None:
            parameters.append(Parameter("active_share", 1e-3, 0.5, 0.03, "of the experts", _LOW_TOKENS, held_at=0.03))
        return _BoundMoe(tuple(parameters), ~points.taxed, self.active_share, self.combine)


@dataclass(frozen=True, slots=True)
class _BoundRoofline(Bound):
    machine: Machine
    numbers: ModelNumbers
    combine: Combine

    def step(self, values: FloatArray) -> StepTime:
        memory, compute, launch, *exponent = values.tolist()
        experts = self.numbers.experts
        if experts is None:
            return RooflineStep(
                weight_bytes=self.numbers.weight_bytes,
                flops_per_token=self.numbers.flops_per_token,
                kv_bytes_per_token=self.numbers.kv_bytes_per_token,
                bandwidth=self.machine.bandwidth,
                compute=self.machine.compute,
                memory_efficiency=memory,
                compute_efficiency=compute,
                combine=self.combine,
                launch_seconds=launch,
            )
        return MoeStep.from_sizes(
            shared_bytes=self.numbers.weight_bytes - experts.bytes_of_all,
            expert_bytes=experts.bytes_of_all,
            experts=experts.count,
            active_experts=experts.active,
            flops_per_token=self.numbers.flops_per_token,
            kv_bytes_per_token=self.numbers.kv_bytes_per_token,
            bandwidth=self.machine.bandwidth,
            compute=self.machine.compute,
            memory_efficiency=memory,
            compute_efficiency=compute,
            exponent=exponent[0],
            launch_seconds=launch,
            combine=self.combine,
        )


@dataclass(frozen=True, slots=True)
class RooflineFamily:
    """Known peaks and sizes; what is fitted is how much of the peaks is achieved, and the time of launching."""

    machine: Machine
    numbers: ModelNumbers
    combine: Combine = 2.0
    compute_efficiency: float = 0.65
    """Taken where the observations do not tell it, all of them being of steps that wait for memory."""
    name: str = field(default="roofline", init=False)

    def bind(self, points: Points, weights: FloatArray) -> BoundFamily:
        many = "steps of many tokens, where computing takes longer than reading"
        parameters = [
            Parameter("memory_efficiency", 0.02, 1.0, 0.7, "of the peak bandwidth", "steps of few tokens"),
            Parameter(
                "compute_efficiency", 0.02, 1.0, 0.6, "of the peak FLOP/s", many, held_at=self.compute_efficiency
            ),
            Parameter("launch_seconds", 0.0, 1.0, 0.1 * Scales.of(points).step_seconds, "s", TWO_LOADS, held_at=0.0),
        ]
        if self.numbers.experts is not None:
            parameters.append(_EXPONENT)
        return _BoundRoofline(tuple(parameters), ~points.taxed, self.machine, self.numbers, self.combine)


def _positive(name: str, start: float, told_by: str) -> Parameter:
    return Parameter(name, 1e-6 * start, 5.0, start, "s", told_by)


def _kv(least: Scales) -> Parameter:
    start = 0.1 * least.step_seconds / least.kv_tokens
    return Parameter("kv_token_seconds", 0.0, 1e-4, min(start, 5e-5), "s/KV token", TWO_CONTEXTS, held_at=0.0)
