"""Drafts that are too long, or too short, by their acceptance."""

from __future__ import annotations

import math
from collections.abc import Iterator

from adaptive_gamma.doctor.case import Acceptance, Case, Replica
from adaptive_gamma.doctor.checks.check import Check, Said
from adaptive_gamma.doctor.cost import DRAFT_PASS_SHARE, best_gamma, expected_tokens
from adaptive_gamma.doctor.engines import ENGINES
from adaptive_gamma.doctor.finding import Cost, Evidence, Finding, Fix, Unseen

__all__ = ["GAMMA_LENGTH"]

_TOO_FEW = 0.5
_LEAST_TRIES = 30.0
_SELDOM = 0.05
_CHANCE = 1.645
"""Standard errors: one time in twenty a rate of a half looks this low."""
_HIGH = 0.8
_WORTH_IT = 1.05
_COSTLY_PASS_SHARE = 0.15
"""What a pass is held to cost where it is to be bought; ``DRAFT_PASS_SHARE`` where it is to be saved."""
_LOW_LOAD = 8.0


def _look(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        if not replica.is_speculative:
            continue
        seen = replica.acceptance
        if seen is None:
            if (why := _why_not(replica)) is not None:
                yield Unseen(GAMMA_LENGTH.name, replica.name, why)
            continue
        if (found := _too_long(replica, seen)) is not None:
            yield found
        elif (short := _too_short(replica, seen)) is not None:
            yield short


def _why_not(replica: Replica) -> str | None:
    if replica.adaptive_verification is not None and replica.adaptive_verification.value:
        return "with adaptive verification the counters count what was drafted, not what was verified"
    if replica.drafts_vary:
        return (
            "drafts are of several lengths, so rates by position read low; ask for "
            "--per-request-spec-decode-metrics detailed "
            "and let adaptive-gamma learn from answers"
        )
    return "fewer than 200 drafts were counted by position"


def _too_few(seen: Acceptance, position: int) -> bool:
    """Whether fewer than half of the drafts that come to a position (from 1) are accepted there, chance left out."""
    reach = seen.unconditional[position - 2] if position > 1 else 1.0
    tries = reach * seen.drafts
    if tries < _LEAST_TRIES:
        return reach < _SELDOM
    return seen.conditional[position - 1] + _CHANCE * math.sqrt(0.25 / tries) < _TOO_FEW


def _too_long(replica: Replica, seen: Acceptance) -> Finding | None:
    rates, conditional = seen.unconditional, seen.conditional
    gamma = len(rates)
    kept = gamma
    # Positions at the end that were never reached have no conditional rate, and are as useless as a low one.
    while kept > 0 and _too_few(seen, kept):
        kept -= 1
    if kept == 0 and gamma:
        # Low from the first position on: what the first tokens bring at the least load is weighed against their passes.
        share = _COSTLY_PASS_SHARE if replica.passes == gamma else 0.0
        kept = max(best_gamma(rates, share)[0], 1)
    reasons = []
    if kept < gamma:
        shown = ", ".join(f"{rate:.0%}" for rate in conditional[kept:]) or "never reached"
        reasons.append(f"conditional acceptance at the last positions is under 50 % ({shown})")
    if replica.autoregressive:
        best, gain = best_gamma(rates, DRAFT_PASS_SHARE)
        if best < gamma and gain > _WORTH_IT - 1.0:
            reasons.append(
                f"each of the drafter's {gamma} passes costs a tenth of a step, and gamma {best} is {gain:.0%} faster"
            )
            kept = min(kept, best)
    if not reasons:
        return None
    lost = expected_tokens(rates, gamma) - expected_tokens(rates, kept)
    words, version = ENGINES.get(replica.engine or ""), replica.version.value if replica.version is not None else None
    advice = f"draft {kept}" if kept else "draft nothing for this traffic: send it to plain replicas"
    if kept and conditional and conditional[0] < _TOO_FEW:
        advice += ", and send this traffic to plain replicas where there are some"
    return Finding(
        "gamma_too_long",
        "warning",
        replica.name,
        f"gamma {gamma} is longer than the drafts hold; {kept} would do",
        (
            seen.evidence,
            Evidence(
                "figure", seen.evidence.where, "conditional by position " + ", ".join(f"{r:.0%}" for r in conditional)
            ),
        ),
        "; ".join(reasons),
        Cost(
            f"{lost:.2f} tokens a step are what {_drafts(gamma - kept)} brings, verified like any other and, by an "
            f"autoregressive drafter, made in a pass of 10-15 % of a step each",
            "here; vLLM issue #20780",
        ),
        Fix(advice, words.gamma_flags(kept, version) if words is not None and kept else ()),
    )


def _drafts(count: int) -> str:
    return "the last drafted token" if count == 1 else f"the row of the last {count} drafted tokens"


def _too_short(replica: Replica, seen: Acceptance) -> Finding | None:
    rates, conditional = seen.unconditional, seen.conditional
    gamma = len(rates)
    if len(conditional) < gamma or conditional[-1] < _HIGH or replica.passes is None:
        return None
    share = _COSTLY_PASS_SHARE if replica.passes else 0.0
    more = [*rates, rates[-1] * conditional[-1]]
    now = expected_tokens(rates, gamma) / (1 + gamma * share)
    then = expected_tokens(more, gamma + 1) / (1 + (gamma + 1) * share)
    if then < _WORTH_IT * now:
        return None
    batch = replica.pace.batch if replica.pace is not None else None
    low = batch is not None and batch <= _LOW_LOAD
    words, version = ENGINES.get(replica.engine or ""), replica.version.value if replica.version is not None else None
    return Finding(
        "gamma_too_short",
        "warning" if low else "note",
        replica.name,
        f"gamma {gamma} is short: {conditional[-1]:.0%} of the drafts that come to its last token are accepted "
        "there too",
        (
            seen.evidence,
            *(() if batch is None else (Evidence("figure", replica.pace_where, f"{batch:.3g} requests in a step"),)),
        ),
        "acceptance does not fall off with position, so another token would be accepted nearly as often",
        Cost(
            f"gamma {gamma + 1} is {then / now - 1:.0%} faster while verifying is free, which it is at low load only",
            "here",
        ),
        Fix(
            "try longer drafts at this load" if low else "try longer drafts where few requests run at once",
            words.gamma_flags(gamma + 1, version) if words is not None else (),
        ),
    )


GAMMA_LENGTH = Check(
    "gamma", "Is gamma too long, or too short, for what is accepted?", ("gamma_too_long", "gamma_too_short"), _look
)
