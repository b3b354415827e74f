"""What is kept of a run, and what others are told of it while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

__all__ = ["DraftRun", "ReplicaTotals", "Report", "RunLog", "StepRecord"]


class DraftRun(NamedTuple):
    """Successive steps of one sequence with one gamma."""

    gamma: int
    first: int
    """Position of the first one's draw (``AcceptanceDraws.start``)."""
    steps: int


Report: TypeAlias = Callable[[int, Sequence[DraftRun], float], None]
"""Told of each finished request: its number, its steps that drafted, and when."""


StepRecord: TypeAlias = Callable[[float, float, int, int], None]
"""Told of steps that are all alike: when they began and ended, in seconds, their decoding sequences and their gamma."""


@dataclass(slots=True)
class RunLog:
    """When each request's first and last token came, in seconds; NaN while it has not."""

    first_token_s: list[float]
    finished_s: list[float]
    decode_steps: list[int]
    """Steps each request took part in after its first token."""

    @classmethod
    def empty(cls, requests: int) -> RunLog:
        return cls([float("nan")] * requests, [float("nan")] * requests, [0] * requests)


@dataclass(slots=True)
class ReplicaTotals:
    """What a replica did so far."""

    busy_s: float = 0.0
    steps: int = 0
    sequence_steps: int = 0
    """Decoding sequences, summed over steps."""
    sequence_s: float = 0.0
    """Seconds of steps, each counted for every decoding sequence in it."""
    drafted: int = 0
    """Draft tokens proposed."""
    predicted_accepted: float = 0.0
    """Draft tokens the policy expected to be accepted, for the mix of the classes of open requests."""
    requests: int = 0
    prompt_tokens: int = 0
    """Of prompts that have been read."""
    output_tokens: int = 0
    """Of finished requests."""
