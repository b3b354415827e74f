"""Speculation counters in the shape vLLM gave them, which other engines copied."""

from __future__ import annotations

from itertools import pairwise

from adaptive_gamma.engines._bounds import LARGEST_GAMMA
from adaptive_gamma.engines._exposition import Exposition
from adaptive_gamma.engines.reading import SpeculationCounters

__all__ = ["contiguous_positions", "counter", "speculation_counters"]


def counter(stem: str) -> tuple[str, str]:
    """The sample names a counter may have: with ``_total``, as the format demands, or without."""
    return (stem + "_total", stem)


def contiguous_positions(page: Exposition, names: tuple[str, ...]) -> tuple[float, ...]:
    """Accepted drafts by position 0, 1, ... summed over all other labels.

    Empty when the page has no such series, when there are more than the largest gamma believed, or when the positions
    are not 0..n-1: with one missing, neither their number nor any ratio of neighbours means what it should.
    """
    by_position = page.totals_by("position", *names)
    if by_position is None or len(by_position) > LARGEST_GAMMA:
        return ()
    labels = [str(position) for position in range(len(by_position))]
    if any(label not in by_position for label in labels):
        return ()
    return tuple(by_position[label] for label in labels)


def speculation_counters(
    page: Exposition,
    *,
    drafts: tuple[str, ...],
    draft_tokens: tuple[str, ...],
    accepted_tokens: tuple[str, ...],
    accepted_per_position: tuple[float, ...],
    drafted_per_position: tuple[float, ...] = (),
) -> SpeculationCounters | None:
    """The counters of a page, or None where it lacks the two that every speculating engine has.

    Drafts by position that there are more positions of than of accepted ones, that rise, or that fall short of what
    was accepted are left out.
    """
    drafted, accepted = page.total(*draft_tokens), page.total(*accepted_tokens)
    if drafted is None or accepted is None:
        return None
    return SpeculationCounters(
        drafts=page.total(*drafts),
        draft_tokens=drafted,
        accepted_tokens=accepted,
        accepted_per_position=accepted_per_position,
        drafted_per_position=_believed_drafts(drafted_per_position, accepted_per_position),
    )


def _believed_drafts(drafted: tuple[float, ...], accepted: tuple[float, ...]) -> tuple[float, ...]:
    if not drafted or len(drafted) > len(accepted):
        return ()
    drafted += (0.0,) * (len(accepted) - len(drafted))  # a position that nothing was drafted at may have no series yet
    rises = any(after > before for before, after in pairwise(drafted))
    short = any(drafts < taken for drafts, taken in zip(drafted, accepted, strict=True))
    return () if rises or short else drafted
