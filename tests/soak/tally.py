"""All judgements of a run together, and the proxy's own count of its requests held against them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.soak.judge import Judge, Judgement
from tests.soak.seen import Seen

__all__ = ["Tally", "outcome_faults", "tally"]


@dataclass
class Tally:
    """What became of the requests, by label of the case."""

    requests: int = 0
    verdicts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    excuses: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    """Each lost response, in words."""
    broken: Counter[str] = field(default_factory=Counter)
    """Broken invariants by kind, with an example each in ``examples``."""
    examples: dict[str, str] = field(default_factory=dict)
    noticed_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """From a client's leaving to its engine's noticing, by where the client left."""
    forwarded_late: int = 0
    """Requests that reached an engine after their client had left."""
    bytes_checked: int = 0
    reused: int = 0
    hidden: int = 0
    """Requests whose count may have vanished with the series of a replica that was removed."""
    certain: Counter[str] = field(default_factory=Counter)
    """Requests that the proxy can only have counted under this outcome."""
    possible: Counter[str] = field(default_factory=Counter)
    """Requests that it may have counted under it, the certain ones included."""


def tally(seen: list[Seen], judge: Judge) -> Tally:
    """Judge all requests."""
    sums = Tally(requests=len(seen))
    for one in seen:
        _add(sums, one, judge.judge(one))
    return sums


def _add(sums: Tally, seen: Seen, judgement: Judgement) -> None:
    label, request_id = seen.case.label, seen.case.request_id
    sums.verdicts[label][judgement.verdict] += 1
    sums.bytes_checked += seen.length
    sums.reused += seen.reused
    if judgement.verdict == "excused":
        sums.excuses[judgement.why.translate(str.maketrans("", "", "0123456789"))] += 1
    if judgement.verdict == "lost":
        when = f"{seen.began:.3f} to {seen.ended_at:.3f}"
        sums.lost.append(f"{request_id} ({label}, {seen.replica}, {when}): {judgement.why}")
    for text in judgement.broken:
        kind = " ".join(word for word in text.split() if not any(c.isdigit() for c in word))
        sums.broken[kind] += 1
        sums.examples.setdefault(kind, f"{request_id} ({label}): {text}")
    if seen.case.leave is not None:
        sums.noticed_s[seen.case.leave.at] += judgement.noticed_s
        sums.forwarded_late += judgement.forwarded_late
    sums.hidden += judgement.hidden
    for outcome in judgement.outcomes:
        sums.possible[outcome] += 1
        if len(judgement.outcomes) == 1 and not judgement.hidden:
            sums.certain[outcome] += 1


def outcome_faults(sums: Tally, counted: dict[str, float]) -> list[str]:
    """Where the proxy's count by outcome cannot be that of these requests."""
    faults = []
    total = sum(counted.values())
    if not sums.requests - sums.hidden <= total <= sums.requests:
        faults.append(
            f"requests_total adds up to {total:g}, the clients sent {sums.requests}, of which at most {sums.hidden} "
            "can have vanished with the series of removed replicas"
        )
    for outcome in sorted({*counted, *sums.certain}):
        count = counted.get(outcome, 0.0)
        least, most = sums.certain[outcome], sums.possible[outcome]
        if not least <= count <= most:
            faults.append(f"outcome {outcome}: counted {count:g}, must lie in {least}..{most}")
    return faults
