"""What the decision knows of one replica: plain data, filled in by whoever watches the engines."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = ["GammaSchedule", "GammaSetting", "Pool", "ReplicaState"]

Pool: TypeAlias = Literal["speculative", "plain"]

LARGEST_GAMMA = 64
"""Draft tokens per step, as in the configuration and in what is believed of an engine."""
_LARGEST_BATCH = 1_000_000
_ENDLESS = 2**31 - 1
"""The last batch of a range that is written without an end."""


class GammaSchedule:
    """Gamma by batch size, as an engine's start-up schedule sets it.

    Built from ranges ``(first batch, last batch, gamma)``; a gap keeps the gamma before it, and so does every batch
    beyond the last range, as in vLLM's ``num_speculative_tokens_per_batch_size``.

    Raises ValueError when the ranges do not start at batch 1, overlap, or hold a gamma outside 0..64 or a batch above
    1 000 000. Only a last batch may be 2**31 - 1, which stands for no end.
    """

    __slots__ = ("_gammas", "_starts", "ranges")

    def __init__(self, ranges: Sequence[tuple[int, int, int]]) -> None:
        ordered = tuple(sorted((int(a), int(b), int(k)) for a, b, k in ranges))
        if not ordered or ordered[0][0] != 1:
            raise ValueError("the first batch range must start at 1")
        last = 0
        for start, end, gamma in ordered:
            if gamma > LARGEST_GAMMA:
                raise ValueError(f"a gamma is above {LARGEST_GAMMA}")
            if start > _LARGEST_BATCH or (end > _LARGEST_BATCH and end != _ENDLESS):
                raise ValueError(f"a batch range reaches beyond batch {_LARGEST_BATCH}")
            if start <= last:
                raise ValueError(f"batch ranges overlap at {start}")
            if end < start:
                raise ValueError(f"batch range {start}..{end} is empty")
            if gamma < 0:
                raise ValueError(f"gamma {gamma} is negative")
            last = end
        self.ranges = ordered
        self._starts = [r[0] for r in ordered]
        self._gammas = [r[2] for r in ordered]

    def at(self, batch: int) -> int:
        """The gamma in force when ``batch`` sequences share a step (a batch below 1 counts as 1)."""
        return self._gammas[bisect_right(self._starts, batch) - 1 if batch > 0 else 0]

    @property
    def largest(self) -> int:
        return max(self._gammas)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GammaSchedule) and self.ranges == other.ranges

    def __hash__(self) -> int:
        return hash(self.ranges)

    def __repr__(self) -> str:
        return f"GammaSchedule({list(self.ranges)!r})"


GammaSetting: TypeAlias = int | GammaSchedule


@dataclass(slots=True)
class ReplicaState:
    """The live state of one replica, as the decision reads it. Unknown is None, never 0.

    Its owner changes it in place between decisions; ``decide`` only reads it.
    """

    name: str
    speculative: bool | None = None
    """Whether the engine was started with a drafter; None until the engine has been asked."""
    gamma: GammaSetting | None = None
    """Draft tokens per step, or its schedule. 0 on a speculative replica is not the same as plain."""
    healthy: bool = True
    draining: bool = False
    running: int | None = None
    """Sequences in the engine's batch at the last scrape."""
    waiting: int | None = None
    """Requests queued in the engine at the last scrape."""
    kv_usage: float | None = None
    """Share of the KV cache in use, 0..1."""
    fresh_until: float = float("-inf")
    """Monotonic seconds until which ``running``, ``waiting`` and ``kv_usage`` may be believed."""
    in_flight: int = 0
    """Requests this process has open on the replica now."""
    in_flight_at_scrape: int = 0
    """What ``in_flight`` was when ``running`` and ``waiting`` were read."""
    models: frozenset[str] | None = None
    """Model names the engine lists; None until known."""
    refused_parameters: frozenset[str] = field(default=frozenset())
    """Request parameters this replica answers with an error (a speculative vLLM: min_p, logit_bias)."""
    context_limit: int | None = None
    """Tokens of prompt and output from which on a request is too near the end of its drafter's context; None sets no
    limit."""
    acceptance_ratio: float | None = None
    """Accepted draft tokens per draft seen lately, over what the policy predicts for the same mix of classes."""
    step_time_ratio: float | None = None
    """Observed over predicted step time, bounded, where the prediction has been found wrong: multiplies the replica's
    predicted seconds. None believes the policy."""
    max_in_flight: int | None = None
    """Open requests of this process at which the replica takes no further one; None sets no cap."""
    ramp_until: float = float("-inf")
    """Monotonic seconds until which a replica that has just joined is eased into service."""
    ramp_s: float = 0.0
    """How long that takes in all, in seconds."""

    @property
    def pool(self) -> Pool:
        """``speculative`` where a drafter is known to run, else ``plain``."""
        return "speculative" if self.speculative else "plain"
