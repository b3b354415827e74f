"""The report: what acting would have changed for the requests that were observed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adaptive_gamma.observe.estimate import (
    MEASURED_ENOUGH,
    Floats,
    Sums,
    error_ratios,
    resampling,
    usable,
    whole_sums,
)
from adaptive_gamma.observe.observation import Observation
from adaptive_gamma.observe.reading import Found

__all__ = ["UNKNOWABLE", "build_report"]

UNKNOWABLE = (
    "The times had it acted are predicted, not measured: each request went to one replica, and what another would have "
    "taken was never seen.",
    "Each request is priced with the loads as they were. Acting on all of them moves load, and with it every price: "
    "what many would have gained at once can be less than the sum of what each would have gained alone, or more.",
    "What changes the traffic itself is left out: clients that send more when answers come faster, queues that would "
    "have stayed short, caches that would have been warm elsewhere.",
    "The interval holds what chance in these requests can do. It does not hold an error of the policy that is the same "
    "for all of them, nor what other hours bring.",
)
_DIFFERENCE_S = 1e-12


def build_report(found: Found) -> dict[str, Any]:
    """The report as plain data; figures that cannot be given are None.

    Keys: ``requests`` and what was left out, ``period``, ``would_have_moved``, ``reasons``, ``overall``, ``classes``
    (each with the same figures), ``predictions`` (how far they held), ``resampling``, ``verdict``, ``unknowable``.
    """
    observations = [each for each in found.observations if usable(each)]
    left_out = Counter(each.outcome for each in found.observations if not usable(each))
    report: dict[str, Any] = {
        "requests": len(observations),
        "left_out": dict(left_out.most_common()),
        "unreadable_lines": found.unreadable,
        "dropped_lines": found.dropped,
        "earlier": found.earlier,
    }
    if not observations:
        return {**report, "verdict": "nothing_observed", "unknowable": list(UNKNOWABLE)}
    times = [each.time_s for each in observations]
    moved = [each for each in observations if each.sent.replica != each.decided.replica]
    whole, drawn = whole_sums(observations), resampling(observations)
    corrected = all(whole.measured(pool)[0] >= MEASURED_ENOUGH for pool in (0, 1))
    overall = _figures(whole, drawn.draws, corrected=corrected)
    classes = {
        name: _class_figures([each for each in observations if each.request_class == name], corrected)
        for name in sorted({each.request_class for each in observations})
    }
    return {
        **report,
        "period": {"first_s": min(times), "last_s": max(times)},
        "would_have_moved": {
            "requests": len(moved),
            "share": len(moved) / len(observations),
            "between": dict(Counter(f"{each.sent.pool} -> {each.decided.pool}" for each in moved).most_common()),
        },
        "reasons": dict(Counter(each.reason for each in observations).most_common()),
        "overall": overall,
        "classes": classes,
        "predictions": _predictions(observations, whole, corrected=corrected),
        "resampling": {"blocks": drawn.blocks, "block_s": drawn.block_s, "draws": len(drawn.draws.table)},
        "verdict": _verdict(overall, corrected=corrected),
        "unknowable": list(UNKNOWABLE),
    }


def _class_figures(observations: Sequence[Observation], corrected: bool) -> dict[str, Any]:
    whole = whole_sums(observations)
    corrected = corrected and all(whole.measured(pool)[0] >= MEASURED_ENOUGH for pool in (0, 1))
    drawn = resampling(observations).draws
    return {
        "requests": len(observations),
        "would_have_moved": int(whole.moved[0]),
        **_figures(whole, drawn, corrected=corrected),
    }


def _figures(whole: Sums, drawn: Sums, *, corrected: bool) -> dict[str, Any]:
    """Seconds of a request, seconds per output token, and predicted seconds with the delay to others."""
    request = _compared(whole, drawn, lambda s: (s.seconds, s.seconds_had_it_acted(corrected=False), s.requests))
    token = _compared(
        whole, drawn, lambda s: (s.decode_seconds, s.decode_seconds_had_it_acted(corrected=False), s.tokens)
    )
    fleet = _compared(whole, drawn, lambda s: (s.cost, s.cost_had_it_acted, s.requests))
    figures: dict[str, Any] = {"request_s": request, "tpot_s": token, "with_delay_to_others_s": fleet}
    figures["request_s_corrected"] = figures["tpot_s_corrected"] = None
    if corrected:
        figures["request_s_corrected"] = _compared(
            whole, drawn, lambda s: (s.seconds, s.seconds_had_it_acted(corrected=True), s.requests)
        )
        figures["tpot_s_corrected"] = _compared(
            whole, drawn, lambda s: (s.decode_seconds, s.decode_seconds_had_it_acted(corrected=True), s.tokens)
        )
    return figures


def _compared(
    whole: Sums, drawn: Sums, parts: Callable[[Sums], tuple[Floats, Floats, Floats]]
) -> dict[str, Any] | None:
    """Two means and their relative change with its interval; None where there is nothing to take a mean of."""
    (as_it_went,), (had_it_acted,), (count,) = (part[:1] for part in parts(whole))
    if count <= 0 or as_it_went <= 0 or not np.isfinite(had_it_acted):
        return None
    before, after, _ = parts(drawn)
    with np.errstate(invalid="ignore", divide="ignore"):
        changes = after / before - 1.0
    changes = changes[np.isfinite(changes)]
    if not len(changes):
        return None
    low, high = np.percentile(changes, [2.5, 97.5])
    return {
        "as_it_went": float(as_it_went / count),
        "had_it_acted": float(had_it_acted / count),
        "change": float(had_it_acted / as_it_went - 1.0),
        "low": float(low),
        "high": float(high),
    }


def _predictions(observations: Sequence[Observation], whole: Sums, *, corrected: bool) -> dict[str, Any]:
    """How observed times compare with what was predicted of where the requests went."""
    pools: dict[str, Any] = {}
    for pool, name in enumerate(("plain", "speculative")):
        ratios = error_ratios(observations, pool)
        if not len(ratios):
            pools[name] = {"measured": 0, "observed_over_predicted": None, "middle_80_percent": None}
            continue
        low, high = np.percentile(ratios, [10, 90])
        pools[name] = {
            "measured": len(ratios),
            "observed_over_predicted": float(whole.error(pool)[0]),
            "middle_80_percent": [float(low), float(high)],
        }
    return {
        "pools": pools,
        "corrected": corrected,
        "measured_needed_per_pool": MEASURED_ENOUGH,
        "priced_without_gamma": sum(each.sent.gamma is None or each.decided.gamma is None for each in observations),
    }


def _verdict(overall: dict[str, Any], *, corrected: bool) -> str:
    """``faster``, ``slower``, ``not_shown`` (the interval holds no change), ``the_same`` (none would have moved)."""
    figure = overall["request_s_corrected" if corrected else "request_s"]
    if figure is None:
        return "not_shown"
    if max(abs(figure["change"]), abs(figure["low"]), abs(figure["high"])) < _DIFFERENCE_S:
        return "the_same"
    if figure["high"] < 0:
        return "faster"
    return "slower" if figure["low"] > 0 else "not_shown"
