"""What was counted of drafts, and what that tells of acceptance by position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest

__all__ = ["DraftCounts"]


@dataclass(slots=True)
class DraftCounts:
    """Weighted counts of a part of the window, or of what one look brought."""

    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted: float = 0.0
    per_position: list[float] = field(default_factory=list)
    by_class: dict[str | None, float] = field(default_factory=dict)
    """Drafts by the class of the requests they were made for, None where it is not known."""
    weight: float = 0.0
    """Drafts, or draft tokens on an engine that does not count drafts."""
    drafted: list[float] | None = None
    """Drafts that had a token at a position; None where the engine does not count them."""

    def copy(self) -> DraftCounts:
        """An independent copy."""
        drafted = None if self.drafted is None else list(self.drafted)
        return replace(self, per_position=list(self.per_position), by_class=dict(self.by_class), drafted=drafted)

    def scale(self, factor: float) -> None:
        self.drafts *= factor
        self.draft_tokens *= factor
        self.accepted *= factor
        self.weight *= factor
        self.per_position = [value * factor for value in self.per_position]
        self.drafted = None if self.drafted is None else [value * factor for value in self.drafted]
        self.by_class = {name: value * factor for name, value in self.by_class.items() if value * factor > 1e-6}

    def add(self, other: DraftCounts) -> None:
        self.drafted = self._drafted_with(other)
        self.drafts += other.drafts
        self.draft_tokens += other.draft_tokens
        self.accepted += other.accepted
        self.weight += other.weight
        self.per_position += [0.0] * (len(other.per_position) - len(self.per_position))
        for position, value in enumerate(other.per_position):
            self.per_position[position] += value
        for name, value in other.by_class.items():
            self.by_class[name] = self.by_class.get(name, 0.0) + value

    def full_drafts(self) -> tuple[list[float], float]:
        """Acceptance by position and draft tokens, as were all drafts as long as half of them and more are.

        Without bias, as :meth:`trials`; as it was counted where the engine does not count drafts by position.
        """
        if self.drafted is None or self.drafts <= 0:
            return self.per_position, self.draft_tokens
        scaled, before = [], self.drafts
        for accepted, drafted in zip(self.per_position, self.drafted, strict=False):
            if drafted < self.drafts / 2.0:
                break
            before = min(accepted * (self.drafts / drafted), before)
            scaled.append(before)
        return scaled, self.drafts * len(scaled)

    def trials(self) -> Iterator[tuple[float, float]]:
        """(successes, trials) of each proportion that describes acceptance.

        Where drafts are counted by position, the share of those with a token at position i that got so far is taken to
        be the share of all that did or would have: the length of a draft does not depend on how it fares. That holds
        for a schedule, whose gamma follows the load. Of other drafters it is assumed, within the bounds that the
        counts themselves set.
        """
        if self.drafted is not None and self.per_position:
            survived, accepted_before, drafted_before = 1.0, self.drafts, self.drafts
            for accepted, drafted in zip(self.per_position, self.drafted, strict=False):
                least = max(accepted, accepted_before - max(drafted_before - drafted, 0.0))
                most = min(accepted_before, drafted)
                reached = max(min(survived * drafted, most), min(least, most))
                yield min(accepted, reached), reached
                survived = min(accepted / drafted, 1.0) if drafted > 0 else 0.0
                accepted_before, drafted_before = accepted, drafted
        elif self.per_position:
            reached = self.drafts
            for accepted in self.per_position:
                yield min(accepted, reached), reached
                reached = accepted
        elif self.drafts <= 0:
            yield min(self.accepted, self.draft_tokens), self.draft_tokens

    def _drafted_with(self, other: DraftCounts) -> list[float] | None:
        """Known of a sum where it is known of both."""
        if self.weight <= 0:
            return None if other.drafted is None else list(other.drafted)
        if other.weight <= 0:
            return self.drafted
        if self.drafted is None or other.drafted is None:
            return None
        return [ours + theirs for ours, theirs in zip_longest(self.drafted, other.drafted, fillvalue=0.0)]
