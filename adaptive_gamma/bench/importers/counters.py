"""An engine's counters of one run as ``SpeculationSeen``, with what contradicts itself refused or noted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from adaptive_gamma.bench.fields import Fields
from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.row import SpeculationSeen
from adaptive_gamma.roofline import draft_length_varies

__all__ = ["CounterKeys", "speculation_from_counters", "speculation_from_histogram"]

TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class CounterKeys:
    """What the file calls each counter; a finding names the one that is wrong."""

    drafts: str
    accepted: str
    per_position: str
    mean_length: str


def speculation_from_counters(
    fields: Fields,
    keys: CounterKeys,
    findings: Findings,
    *,
    drafts: int,
    draft_tokens: int | None,
    accepted: float | None,
    per_position: Sequence[float] | None,
    mean_length: float | None,
) -> SpeculationSeen | None:
    """What the counters of a run say. None where nothing was drafted: such counters tell nothing of acceptance.

    Rates by position are left out where drafts differed in length (n-gram drafting, a schedule, adaptive verification):
    a short draft counts against positions it never had. A schedule that stood at one length all the run is no such
    case; its unused positions are cut off.

    Raises SweepError for counts that contradict each other.
    """
    if drafts == 0:
        findings.note(fields.source, "the engine drafted nothing in this run; that does not make it plain", keys.drafts)
        return None
    if accepted is not None and draft_tokens is not None and accepted > draft_tokens:
        raise fields.error(keys.accepted, f"more tokens accepted ({accepted:g}) than drafted ({draft_tokens})")
    if mean_length is None and accepted is not None:
        mean_length = 1.0 + accepted / drafts
    if mean_length is not None and accepted is not None and abs(mean_length - 1.0 - accepted / drafts) > TOLERANCE:
        counted = f"the counts give {1.0 + accepted / drafts:g}"
        raise fields.error(keys.mean_length, f"{mean_length:g} tokens a step, but {counted}")
    rates = None if per_position is None else tuple(per_position)
    if rates is not None:
        if max(rates, default=0.0) > 1.0:
            raise fields.error(keys.per_position, f"a rate by position is above 1: {max(rates):g}")
        if any(later > earlier * (1 + 1e-9) for earlier, later in pairwise(rates)):
            raise fields.error(
                keys.per_position, "rates by position rise, so they are not accepted / drafts at each position"
            )
        if mean_length is not None and abs(1.0 + sum(rates) - mean_length) > TOLERANCE * mean_length:
            raise fields.error(
                keys.per_position,
                f"rates by position add up to {1.0 + sum(rates):.3f} tokens a step, not to {mean_length:.3f}",
            )
        rates = _unbiased(fields, keys.per_position, findings, drafts, draft_tokens, rates)
    return SpeculationSeen(
        drafts=drafts, mean_length=mean_length, per_position=rates or None, draft_tokens=draft_tokens
    )


def speculation_from_histogram(
    fields: Fields, key: str, histogram: Sequence[int], draft_tokens: int | None, findings: Findings
) -> SpeculationSeen | None:
    """What a histogram of accepted counts says; the same rules."""
    drafts = sum(histogram)
    if drafts == 0:
        findings.note(fields.source, "the engine drafted nothing in this run; that does not make it plain", key)
        return None
    accepted = sum(count * steps for count, steps in enumerate(histogram))
    if draft_tokens is not None and accepted > draft_tokens:
        raise fields.error(key, f"more tokens accepted ({accepted}) than drafted ({draft_tokens})")
    return SpeculationSeen(
        drafts=drafts, mean_length=1.0 + accepted / drafts, histogram=tuple(histogram), draft_tokens=draft_tokens
    )


def _unbiased(
    fields: Fields, key: str, findings: Findings, drafts: int, draft_tokens: int | None, rates: tuple[float, ...]
) -> tuple[float, ...] | None:
    if not draft_length_varies(drafts, draft_tokens, len(rates)):
        return rates
    assert draft_tokens is not None  # draft_length_varies is None without it
    length = draft_tokens / drafts
    whole = round(length)
    fixed = 0 < whole < len(rates) and not any(rates[whole:])
    if fixed and draft_length_varies(drafts, draft_tokens, whole) is False and length <= whole:
        findings.note(fields.source, f"all drafts had {whole} of at most {len(rates)} tokens", key)
        return rates[:whole]
    findings.note(
        fields.source,
        f"drafts differed in length ({length:.2f} of {len(rates)} tokens on average), so acceptance by position reads "
        "too low and is left out",
        key,
    )
    return None
