"""What an engine's counters gained during a run: its acceptance, and whether the run was alone on the engine. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_gamma.bench.row import SpeculationSeen
from adaptive_gamma.engines import EngineReading, SpeculationCounters

__all__ = ["CounterGain", "counter_gain", "fell"]

_SHORTFALL = 0.06
"""How far the mean length of drafts may lie below the number of position labels: the drafts at the end of an answer
are cut. Beyond it their length varies by design, and acceptance by position reads low."""


@dataclass(frozen=True, slots=True)
class CounterGain:
    """The difference of two readings of one engine."""

    acceptance: SpeculationSeen | None
    """None where the engine drafts nothing, or does not tell."""
    draft_length: float | None
    """Mean number of draft tokens of a draft."""
    varies: bool
    """Whether the length of drafts varies, so that acceptance by position is left out."""
    generated_tokens: float | None
    """Tokens that the engine says it generated, for whomever."""
    step_s: float | None
    """Mean time between two output events of a sequence, by the engine's own clock."""


def fell(before: EngineReading, after: EngineReading) -> bool:
    """Whether any total is smaller than before: the engine started anew in between."""
    pairs = [(before.generation_tokens, after.generation_tokens), (before.prompt_tokens, after.prompt_tokens)]
    old, new = before.speculation, after.speculation
    if old is not None and new is not None:
        pairs += [
            (old.drafts, new.drafts),
            (old.draft_tokens, new.draft_tokens),
            (old.accepted_tokens, new.accepted_tokens),
        ]
        if len(new.accepted_per_position) < len(old.accepted_per_position):
            return True
        pairs += list(zip(old.accepted_per_position, new.accepted_per_position, strict=False))
    return any(first is not None and last is not None and last < first for first, last in pairs)


def counter_gain(before: EngineReading, after: EngineReading) -> CounterGain:
    """What was gained from ``before`` to ``after``, which must not have fallen."""
    acceptance, draft_length, varies = _acceptance(before.speculation, after.speculation)
    generated = None
    if before.generation_tokens is not None and after.generation_tokens is not None:
        generated = after.generation_tokens - before.generation_tokens
    step_s = None
    old, new = before.inter_token_latency, after.inter_token_latency
    if old is not None and new is not None and new.count > old.count:
        step_s = (new.seconds - old.seconds) / (new.count - old.count)
    return CounterGain(acceptance, draft_length, varies, generated, step_s)


def _acceptance(
    before: SpeculationCounters | None, after: SpeculationCounters | None
) -> tuple[SpeculationSeen | None, float | None, bool]:
    if after is None or after.drafts is None:
        return None, None, False
    # Some engines have no such series before their first draft: they counted from 0.
    old = before if before is not None else SpeculationCounters(0.0, 0.0, 0.0)
    drafts = after.drafts - (old.drafts or 0.0)
    if drafts <= 0:
        return None, None, False
    accepted = after.accepted_tokens - old.accepted_tokens
    length = (after.draft_tokens - old.draft_tokens) / drafts
    labels = after.accepted_per_position
    varies = bool(labels) and length < len(labels) * (1.0 - _SHORTFALL)
    per_position: tuple[float, ...] | None = None
    if labels and not varies:
        earlier = old.accepted_per_position + (0.0,) * len(labels)
        per_position = tuple(min((new - was) / drafts, 1.0) for new, was in zip(labels, earlier, strict=False))
    seen = SpeculationSeen(drafts=round(drafts), mean_length=1.0 + accepted / drafts, per_position=per_position)
    return seen, length, varies
