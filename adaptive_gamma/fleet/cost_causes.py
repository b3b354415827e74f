"""Why an engine's steps may take another time than the policy predicts, in words."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StepEvidence", "likely_causes"]

_SMALL_BATCH = 8.0
_LAUNCH_BOUND = 1.5
"""From this ratio on a small batch is likely to wait for kernels to be launched one by one."""
_FULL_KV = 0.95


@dataclass(frozen=True, slots=True)
class StepEvidence:
    """What was seen of a replica while its steps were timed."""

    batch: float
    """Mean number of sequences in a step."""
    gamma: int | None
    """None on a plain replica."""
    largest_captured: int | None
    """The largest gamma whose step is captured at that batch; None where the policy has no capture limit."""
    prefill_ratio: float
    """Predicted seconds of the prompts in a step over those of the step itself."""
    prompt_tokens_per_step: float
    kv_usage: float | None
    waiting: int | None
    step_time_ratio: float = 1.0
    tokens_ratio: float | None = None


def likely_causes(seen: StepEvidence, limit: float) -> tuple[str, ...]:
    """The causes that what was seen speaks for, the likeliest first; never empty.

    Args:
        seen: with ``step_time_ratio`` off by more than ``limit``.
        limit: relative error that is still no error.
    """
    ratio = seen.step_time_ratio
    if ratio < 1.0:
        return ("the policy may be of slower hardware, a larger model or longer contexts than this replica's",)
    causes = []
    if seen.gamma and seen.largest_captured is not None and seen.gamma > seen.largest_captured:
        tokens = round(seen.batch * (seen.gamma + 1))
        causes.append(
            f"capture limit passed: {seen.batch:.0f} sequences with gamma {seen.gamma} are {tokens} tokens a step, and "
            f"gamma {seen.largest_captured} is the most that is captured"
        )
    if ratio - seen.prefill_ratio <= 1.0 + limit or seen.prefill_ratio >= 0.5 * (ratio - 1.0):
        causes.append(
            f"prefill heavy: some {seen.prompt_tokens_per_step:.0f} prompt tokens share a step, by themselves about "
            f"{seen.prefill_ratio:.0%} of its predicted time"
        )
    if seen.kv_usage is not None and seen.kv_usage >= _FULL_KV and seen.waiting:
        causes.append(f"KV cache full ({seen.kv_usage:.0%}) with {seen.waiting} waiting: sequences may be preempted")
    if not causes and ratio >= _LAUNCH_BOUND and seen.batch <= _SMALL_BATCH:
        causes.append(
            f"graphs may be off (enforce_eager, a cudagraph mode of NONE or PIECEWISE): steps of {seen.batch:.0f} "
            f"sequences take {ratio:.1f} times the predicted time"
        )
    if not causes:
        causes.append("the policy may be of faster hardware, a smaller model or shorter contexts than this replica's")
    return tuple(causes)
