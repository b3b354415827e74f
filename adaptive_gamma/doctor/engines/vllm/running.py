"""What a running vLLM logs every ten seconds, and every step where it was told to: sums, not lists."""

from __future__ import annotations

import re

from adaptive_gamma.doctor.evidence import DraftsSeen, LoadSeen, StepsSeen
from adaptive_gamma.doctor.finding import Evidence
from adaptive_gamma.engines import LARGEST_GAMMA

__all__ = ["RunningLines"]

_VARIES = 0.06
"""Mean draft length this far below the number of positions: drafts were of several lengths."""
_SEVERAL = 1.06
_ROUNDING = 0.005
"""The mean acceptance length has two decimals."""


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


class RunningLines:
    """Adds up lines of a server's life."""

    def __init__(self) -> None:
        self._steps = 0
        self._step_s = 0.0
        self._sequences = 0.0
        self._tokens = 0.0
        self._step_evidence: Evidence | None = None
        self._drafts = self._drafted = self._accepted = 0.0
        self._positions: list[float] = []
        self._lines = self._varying = 0
        self._drafts_evidence: Evidence | None = None
        self._load_lines = 0
        self._generation = self._running = 0.0
        self._lengths = 0.0
        self._lengths_known = 0
        self._most = 0
        self._load_evidence: Evidence | None = None
        self._last_running: int | None = None
        self._steady = False

    @property
    def seen(self) -> bool:
        """Whether there was any such line."""
        return self._last_running is not None or bool(self._steps) or self._drafts_evidence is not None

    def add_step(self, found: re.Match[str], at: Evidence) -> None:
        """An iteration; those with prompt tokens are left out."""
        sequences, tokens, milliseconds = int(found["sequences"]), int(found["tokens"]), float(found["ms"])
        if int(found["context"]) or not sequences or tokens < sequences or not 0 < milliseconds < 1e9:
            return
        self._steps += 1
        self._step_s += milliseconds / 1e3
        self._sequences += sequences
        self._tokens += tokens
        self._step_evidence = at

    def add_load(self, found: re.Match[str], at: Evidence) -> None:
        """A line on throughput: counted where as many requests ran at its end as at its beginning, and no prompts."""
        running, generation = int(found["running"]), _number(found["generation"])
        self._most = max(self._most, running)
        prompt = _number(found["prompt"])
        self._steady = running > 0 and running == self._last_running and bool(generation) and prompt is not None
        self._last_running = running
        if self._steady and generation is not None and prompt is not None and prompt <= generation:
            self._load_lines += 1
            self._generation += generation
            self._running += running
            self._load_evidence = at
        else:
            self._steady = False

    def add_drafts(self, found: re.Match[str], at: Evidence) -> None:
        """A line on drafts. It lacks their number, which follows from the mean acceptance length."""
        length = _number(found["length"])
        rates = [_number(rate) for rate in found["rates"].split(",")]
        accepted, drafted = int(found["accepted"]), int(found["drafted"])
        if length is None or not 1.0 <= length <= LARGEST_GAMMA + 1 or None in rates or len(rates) > LARGEST_GAMMA:
            return
        known = [rate for rate in rates if rate is not None]
        if self._steady:
            self._lengths += length
            self._lengths_known += 1
        gain = length - 1.0
        if gain < 4 * _ROUNDING or not accepted or not drafted or any(not 0 <= rate <= 1 for rate in known):
            return
        drafts = accepted / gain
        error = _ROUNDING / gain
        mean = drafted / drafts
        if mean < len(known) * (1 - _VARIES - error) or mean > len(known) * (_SEVERAL + error):
            self._varying += 1
            self._drafts_evidence = self._drafts_evidence or at
            return
        if len(self._positions) < len(known):
            self._positions += [0.0] * (len(known) - len(self._positions))
        for position, rate in enumerate(known):
            self._positions[position] += rate * drafts
        self._drafts += drafts
        self._drafted += drafted
        self._accepted += accepted
        self._lines += 1
        self._drafts_evidence = at

    def steps(self) -> StepsSeen | None:
        """None where no step was listed."""
        if not self._steps or self._step_evidence is None:
            return None
        return StepsSeen(self._steps, self._step_s, self._sequences, self._tokens, self._step_evidence)

    def drafts(self) -> DraftsSeen | None:
        """None where no drafts were told of."""
        if self._drafts_evidence is None:
            return None
        rates = tuple(min(count / self._drafts, 1.0) for count in self._positions) if self._drafts else ()
        return DraftsSeen(
            self._drafts, self._drafted, self._accepted, rates, self._lines, self._varying, self._drafts_evidence
        )

    def load(self) -> LoadSeen | None:
        """None where the log has no steady load."""
        if not self._load_lines or self._load_evidence is None:
            return None
        whole = self._lengths_known == self._load_lines
        return LoadSeen(
            lines=self._load_lines,
            tokens_per_s=self._generation,
            running=self._running,
            acceptance_length=self._lengths / self._lengths_known if whole and self._lengths_known else None,
            most_running=self._most,
            evidence=self._load_evidence,
        )
