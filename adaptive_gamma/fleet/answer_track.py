"""What answers have told of a replica's acceptance lately, whatever gamma each request had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from adaptive_gamma.engines.reading import RequestAcceptance

__all__ = ["AnswerTrack"]

_LEAST_STEPS = 100.0
_BOUNDS = (0.0, 2.0)


class _Expectations(Protocol):
    def class_for(self, name: str) -> str: ...

    def expected_tokens(self, request_class: str, gamma: int) -> float: ...


class AnswerTrack:
    """Decayed sums over answers, by class and gamma.

    A window over the engine's counters cannot do this where gamma goes with each request: the counters mix drafts of
    all lengths.

    Args:
        half_life_s: half-life of the sums, in seconds.
    """

    def __init__(self, half_life_s: float) -> None:
        self.half_life_s = half_life_s
        self._sums: dict[tuple[str, int], tuple[float, float]] = {}
        """(class, gamma): (steps, accepted)."""
        self._at: float | None = None

    def saw(self, request_class: str, gamma: int, acceptance: RequestAcceptance, at: float) -> None:
        """An answer to a request of that class, drafted for with that gamma, came at a moment (monotonic seconds)."""
        steps = acceptance.drafts
        if steps is None:
            # The prompt's pass, which verifies nothing, is in the bound.
            steps = (acceptance.most_drafts or 0) - 1
        if gamma < 1 or steps < 1:
            return
        self._decay(at)
        before = self._sums.get((request_class, gamma), (0.0, 0.0))
        accepted = min(acceptance.accepted_tokens, gamma * steps)
        self._sums[request_class, gamma] = (before[0] + steps, before[1] + accepted)

    def ratio(self, expectations: _Expectations) -> float | None:
        """Accepted tokens seen over those expected, at most 2; None before there was enough to go by."""
        steps = accepted = expected = 0.0
        for (name, gamma), (those, taken) in self._sums.items():
            steps += those
            accepted += taken
            expected += those * (expectations.expected_tokens(expectations.class_for(name), gamma) - 1.0)
        if steps < _LEAST_STEPS or expected <= 0:
            return None
        low, high = _BOUNDS
        return min(max(accepted / expected, low), high)

    def by_class(self) -> Mapping[str, float]:
        """Decayed steps by class."""
        steps: dict[str, float] = {}
        for (name, _), (those, _) in self._sums.items():
            steps[name] = steps.get(name, 0.0) + those
        return steps

    def forget(self) -> None:
        self._sums.clear()

    def _decay(self, at: float) -> None:
        if self._at is not None and at > self._at:
            kept = 0.5 ** ((at - self._at) / self.half_life_s)
            self._sums = {
                key: (steps * kept, taken * kept) for key, (steps, taken) in self._sums.items() if steps > 0.01
            }
        self._at = at if self._at is None else max(self._at, at)
