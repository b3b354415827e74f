"""What a schedule must be before the running scheduler may have it."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

__all__ = ["Schedule", "ScheduleError", "parse_schedule"]

Schedule: TypeAlias = tuple[tuple[int, int, int], ...]
"""(first batch, last batch, gamma), both ends included; a gap and the tail carry the gamma before them."""

_MOST_RANGES = 4096


class ScheduleError(ValueError):
    """A schedule that is not one. The text says what is wrong, for the one who wrote it."""


def parse_schedule(value: object, *, max_gamma: int) -> Schedule:
    """Check a schedule as vLLM does at its start, and more strictly: a gamma above the largest is refused, not clamped.

    Args:
        value: what JSON held: a list of ``[first batch, last batch, gamma]``, in any order.
        max_gamma: the engine's ``num_speculative_tokens``.

    Returns:
        The ranges, sorted.

    Raises:
        ScheduleError: it is no list of such ranges, they overlap, the first does not start at 1, or a gamma is out of
            0..max_gamma.
    """
    if not isinstance(value, list) or not value:
        raise ScheduleError("a schedule is a list of [first batch, last batch, gamma]")
    if len(value) > _MOST_RANGES:
        raise ScheduleError(f"a schedule has {_MOST_RANGES} ranges at most")
    ranges = sorted(_range(each, max_gamma) for each in value)
    if ranges[0][0] != 1:
        raise ScheduleError(f"the first range must start at batch 1, not at {ranges[0][0]}")
    for (_, end, _), (start, _, _) in pairwise(ranges):
        if start <= end:
            raise ScheduleError(f"two ranges hold batch {start}")
    return tuple(ranges)


def _range(value: object, max_gamma: int) -> tuple[int, int, int]:
    if not isinstance(value, list) or len(value) != 3:
        raise ScheduleError(f"a range is [first batch, last batch, gamma], not {value!r:.60}")
    numbers = [each for each in value if isinstance(each, int) and not isinstance(each, bool)]
    if len(numbers) != 3:
        raise ScheduleError(f"a range is three whole numbers, not {value!r:.60}")
    first, last, gamma = numbers
    if not 1 <= first <= last:
        raise ScheduleError(f"a range goes from a batch of 1 or more to one no smaller, not from {first} to {last}")
    if not 0 <= gamma <= max_gamma:
        raise ScheduleError(f"gamma {gamma} is not within 0 to {max_gamma}, what the engine was started with")
    return first, last, gamma
