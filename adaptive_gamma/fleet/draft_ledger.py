"""Whose the drafts were that a replica counted, out of what its requests reported."""

from __future__ import annotations

from collections.abc import Mapping

from adaptive_gamma.engines.reading import RequestAcceptance
from adaptive_gamma.fleet.window import DraftCounts

__all__ = ["DraftLedger", "drafts_behind"]

_AGREE = 0.02
"""Relative difference of reported and counted draft tokens that is none."""
_LONGEST = 5
"""Looks after which reports that do not add up to the counters are given up."""


class DraftLedger:
    """Brings the reports of one replica's requests and its counters together.

    On engines that count a request when it ends, reports and counters tell of the same drafts, but not at the same
    moment: a scrape may fall between the two. So both are kept until they agree, and then the reports tell exactly
    whose the counted drafts were. Where they never do, as when somebody else uses the engine too or it counts each
    step, the time that requests of each class were open tells it about as well as can be.
    """

    __slots__ = ("_counts", "_looks", "_reported")

    def __init__(self) -> None:
        self._reported: dict[str, float] = {}
        self._counts = DraftCounts()
        self._looks = 0

    def report(self, request_class: str, draft_tokens: float) -> None:
        """A request reported so many draft tokens."""
        self._reported[request_class] = self._reported.get(request_class, 0.0) + draft_tokens

    def count(self, counts: DraftCounts) -> tuple[DraftCounts, Mapping[str | None, float]] | None:
        """A scrape counted so much more.

        Returns all that was counted since the last answer, and the share of each class in it on any scale (None: not
        known whose), or None to wait for reports that are under way.
        """
        if not self._reported and not self._looks:
            return counts, counts.by_class
        self._counts.add(counts)
        self._looks += 1
        whole, reported = self._counts, sum(self._reported.values())
        if abs(reported - whole.draft_tokens) <= _AGREE * whole.draft_tokens:
            shares: Mapping[str | None, float] = dict[str | None, float](self._reported.items())
        elif self._looks < _LONGEST:
            return None
        else:
            shares = whole.by_class
        self._reported, self._counts, self._looks = {}, DraftCounts(), 0
        return whole, shares


def drafts_behind(acceptance: RequestAcceptance, gamma: int) -> float:
    """How many drafts a request's totals come from, estimated where its engine does not tell: not fewer than full
    drafts would be, and as many as there were passes, but for the prompt's, which verifies nothing."""
    if acceptance.drafts is not None:
        return float(acceptance.drafts)
    return max(acceptance.draft_tokens / gamma, (acceptance.most_drafts or 0) - 1.0)
