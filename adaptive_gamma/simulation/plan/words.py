"""A plan as plain data, and in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adaptive_gamma.simulation.plan.search import ALIKE, Plan
from adaptive_gamma.simulation.plan.start_up import PLAIN
from adaptive_gamma.simulation.plan.trial import ServiceLimits, Trial

__all__ = ["fleet_words", "plan_page", "verdicts"]


def fleet_words(parts: Mapping[str, int]) -> str:
    """Such as ``3 x gamma-4 + 1 x plain``."""
    return " + ".join(f"{count} x {name}" for name, count in parts.items() if name != PLAIN) + (
        (" + " if len(parts) > 1 else "") + f"{parts[PLAIN]} x plain" if PLAIN in parts else ""
    )


def verdicts(plan: Plan, limits: ServiceLimits) -> list[str]:
    """What a reader should take from a plan: whether the limits hold, whether to speculate, what plain replicas are
    worth, and how far the figures can be trusted."""
    said = [_of_limits(plan, limits), _of_speculation(plan), _of_plain(plan), _of_one_gamma(plan)]
    if plan.luck is not None:
        said.append(
            f"With other luck of the drafts the same fleet's mean latency moves by {plan.luck:.2%}; fleets within "
            f"{max(plan.luck, ALIKE):.1%} of each other are alike."
        )
    return [text for text in said if text is not None]


def _of_limits(plan: Plan, limits: ServiceLimits) -> str | None:
    if not limits.any:
        return None
    chosen = plan.chosen
    at = f"p{limits.percentile:g}"
    if not chosen.within:
        return (
            f"No fleet of {chosen.replicas} tried keeps within the limits at {at}; the one proposed keeps the most "
            f"requests within both, {chosen.within_share:.1%}. More replicas or less load are needed."
        )
    kept = f"The fleet keeps within the limits at {at}; {chosen.within_share:.1%} of the requests are within both."
    if plan.fewest is not None:
        kept += (
            f" {plan.fewest.replicas} of the {chosen.replicas} replicas would do ({fleet_words(plan.fewest.parts)})."
        )
    return kept


def _of_speculation(plan: Plan) -> str | None:
    chosen, plain = plan.chosen, plan.plain
    if chosen.plain == chosen.replicas:
        best = min((t for t in plan.tried if t.plain < t.replicas), key=lambda trial: trial.rank, default=None)
        if best is None:
            return "Speculation should be off: the policy knows no gamma above 0 that ever wins."
        return (
            f"Speculation should be off: the best fleet that drafts ({fleet_words(best.parts)}) has "
            f"{_against(best, plain)} mean latency than plain replicas."
        )
    return f"Against {plain.replicas} plain replicas: {_against(chosen, plain)} mean latency."


def _of_plain(plan: Plan) -> str | None:
    chosen = plan.chosen
    if chosen.plain == chosen.replicas:
        return None
    if not chosen.plain:
        if plan.plain_instead is None:
            return None
        return (
            "Plain replicas would be lost capacity: with one in place of a replica that drafts, mean latency is "
            f"{_against(plan.plain_instead, chosen)}."
        )
    without = plan.without_plain
    if without is None:
        return None
    if without.latency_s < chosen.latency_s:
        return (
            f"Without plain replicas the best fleet ({fleet_words(without.parts)}) has {_against(without, chosen)} "
            f"mean latency, but keeps {without.within_share:.1%} of the requests within the limits, not "
            f"{chosen.within_share:.1%}."
        )
    return (
        f"The plain replicas earn their place: without them the best fleet ({fleet_words(without.parts)}) has "
        f"{_against(without, chosen)} mean latency."
    )


def _of_one_gamma(plan: Plan) -> str | None:
    if not plan.uniform or plan.chosen.plain == plan.chosen.replicas or len(plan.chosen.parts) == 1:
        return None
    best, worst = plan.uniform[0], plan.uniform[-1]
    if best is worst:
        return None
    return (
        f"All replicas alike: {fleet_words(best.parts)} has {_against(best, plan.chosen)} mean latency than the fleet "
        f"proposed, {fleet_words(worst.parts)} {_against(worst, plan.chosen)}."
    )


def _against(one: Trial, other: Trial) -> str:
    """How much more or less mean latency."""
    change = one.latency_s / other.latency_s - 1.0
    if abs(change) < 0.0005:
        return "the same (0.0 %)"
    return f"{abs(change):.1%} {'more' if change > 0 else 'less'}"


def plan_page(plan: Plan, limits: ServiceLimits) -> dict[str, Any]:
    """A plan as plain data."""
    return {
        "limits": {
            "tpot_s": limits.tpot_s,
            "ttft_s": limits.ttft_s,
            "percentile": limits.percentile,
        },
        "proposed": _row(plan.chosen),
        "fewest_replicas": None if plan.fewest is None else _row(plan.fewest),
        "luck": plan.luck,
        "verdicts": verdicts(plan, limits),
        "alternatives": [
            {**_row(trial), "latency_against_proposed": trial.latency_s / plan.chosen.latency_s - 1.0}
            for trial in plan.tried
        ],
    }


def _row(trial: Trial) -> dict[str, Any]:
    return {
        "fleet": dict(trial.parts),
        "replicas": trial.replicas,
        "plain": trial.plain,
        "within_limits": trial.within,
        "within_share": trial.within_share,
        "tpot_at_percentile_s": trial.tpot_s,
        "ttft_at_percentile_s": trial.ttft_s,
        "figures": dict(trial.figures),
    }
