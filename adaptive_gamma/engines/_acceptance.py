"""Believing or not what an answer says of its own drafts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from adaptive_gamma.engines.reading import RequestAcceptance

__all__ = ["believed_acceptance", "count", "counts"]

_MOST_TOKENS = 1 << 32
"""Draft tokens of one request. Beyond it nothing is believed."""


def count(value: object) -> int | None:
    """``value`` where it is a number of things, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS else None


def counts(value: object) -> tuple[int, ...] | None:
    """``value`` where it is a list of numbers of things, else None."""
    if not isinstance(value, list):
        return None
    found = [count(item) for item in value]
    return tuple(item for item in found if item is not None) if None not in found else None


def believed_acceptance(
    drafts: int,
    draft_tokens: int,
    accepted_tokens: int,
    gamma: int,
    histogram: Sequence[int] | None,
    steps: tuple[Sequence[int], Sequence[int]] | None = None,
) -> RequestAcceptance | None:
    """A report of verify steps with a draft, of at most ``gamma`` tokens each; None where its sums contradict.

    Args:
        histogram: steps by the number of tokens they accepted; may end early, the rest being 0. None where the engine
            gives none. One whose sums are others than the totals voids the report.
        steps: draft and accepted tokens of each step, where the engine gives them. Dropped where they contradict.
    """
    if not 0 < drafts <= draft_tokens <= drafts * gamma or accepted_tokens > draft_tokens:
        return None
    if histogram is not None:
        if len(histogram) > gamma + 1:
            if any(histogram[gamma + 1 :]):
                return None
            histogram = histogram[: gamma + 1]
        if sum(histogram) != drafts or sum(j * n for j, n in enumerate(histogram)) != accepted_tokens:
            return None
        histogram = (*histogram, *(0,) * (gamma + 1 - len(histogram)))
    trials = None
    if steps is not None:
        drafted, accepted = steps
        agree = len(drafted) == len(accepted) == drafts and sum(drafted) == draft_tokens
        if agree and sum(accepted) == accepted_tokens and max(drafted) <= gamma:
            trials = _trials(drafted, accepted, gamma)
    return RequestAcceptance(
        drafts=drafts,
        draft_tokens=draft_tokens,
        accepted_tokens=accepted_tokens,
        histogram=histogram,
        gamma=gamma,
        trials=trials,
    )


def _trials(drafted: Sequence[int], accepted: Sequence[int], gamma: int) -> tuple[tuple[int, int], ...] | None:
    """(accepted, tried) by position: a step tries the positions it accepted, and the next where its draft has one."""
    passed, refused = [0] * (gamma + 1), [0] * gamma
    for length, taken in zip(drafted, accepted, strict=True):
        if taken > length:
            return None
        passed[taken] += 1
        if taken < length:
            refused[taken] += 1
    # Position i was accepted by every step that accepted more than i tokens.
    beyond = list(accumulate(reversed(passed[1:])))[::-1]
    return tuple((more, more + none) for more, none in zip(beyond, refused, strict=True))
