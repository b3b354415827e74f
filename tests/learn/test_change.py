"""The acceptance of one class falls from 0.85 to 0.45: how soon that is known, from what kind of evidence."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from adaptive_gamma.roofline import AcceptanceCurve
from adaptive_gamma.routing.learn import AcceptanceLearner
from tests.learn.traffic import Finished, Scenario, Scraped, run

FALLS_AT, GAMMA = 60.0, 4
BEFORE = {"falling": 0.85, "steady": 0.75, "low": 0.60}
AFTER = 0.45


def truth(request_class: str, at: float) -> AcceptanceCurve:
    fallen = request_class == "falling" and at >= FALLS_AT
    return AcceptanceCurve.independent(AFTER if fallen else BEFORE[request_class])


def watch(kind: str, mix: Mapping[str, float], seed: int, spread: float = 0.0) -> list[tuple[float, AcceptanceLearner]]:
    """The first rate of the falling class each second, and the learner at the end."""
    learner = AcceptanceLearner({name: AcceptanceCurve.independent(rate) for name, rate in BEFORE.items()})
    seen, due = [], 1.0
    for told in run(Scenario(truth, mix, gamma=GAMMA, spread=spread), FALLS_AT + 30.0, seed):
        while told.at >= due:
            seen.append((learner.curve("falling", due).curve.conditional_at(1), learner))
            due += 1.0
        if isinstance(told, Finished):
            if kind == "histograms":
                learner.observe_histogram(told.request_class, told.histogram, told.at)
            elif kind == "means" and told.drafts:
                learner.observe_mean(told.request_class, told.drafts, told.accepted, GAMMA, told.at)
        elif isinstance(told, Scraped) and kind == "counters":
            learner.observe_counters(told.seconds, told.drafts, told.accepted_per_position, told.at)
    seen.append((learner.curve("falling", FALLS_AT + 30.0).curve.conditional_at(1), learner))
    return seen


@pytest.mark.parametrize("mix", [{"falling": 1.0}, {"falling": 1.0, "steady": 1.0, "low": 1.0}], ids=["alone", "mixed"])
@pytest.mark.parametrize("kind", ["histograms", "means", "counters"])
def test_a_fall_is_known_within_30_s_at_5_requests_a_second(kind: str, mix: Mapping[str, float]) -> None:
    for seed in range(3):
        seen = watch(kind, mix, seed)
        rates = [rate for rate, _ in seen]
        learned = seen[-1][1].curve("falling", FALLS_AT + 30.0)
        after = rates[int(FALLS_AT) :]
        soon = next(second for second, rate in enumerate(after) if abs(rate - AFTER) <= 0.05)
        quiet = max(abs(rate - BEFORE["falling"]) for rate in rates[20 : int(FALLS_AT) - 1])
        conditional = [learned.curve.conditional_at(i + 1) for i in range(GAMMA)]
        tokens, true_tokens = learned.curve.expected_tokens(GAMMA), truth("falling", 99.0).expected_tokens(GAMMA)
        print(
            f"{kind}, {len(mix)} class(es), seed {seed}: within 0.05 after {soon} s; after 30 s "
            f"{' '.join(f'{rate:.3f}' for rate in conditional)} for {AFTER}, E({GAMMA}) {tokens:.2f} for "
            f"{true_tokens:.2f}; before the fall never more than {quiet:.3f} off"
        )
        assert abs(conditional[0] - AFTER) <= 0.05
        assert tokens == pytest.approx(true_tokens, rel=0.1)
        assert quiet <= 0.05
        assert learned.drifted
        assert learned.inferred == (kind == "counters")


@pytest.mark.parametrize("kind", ["histograms", "counters"])
def test_requests_that_differ_are_not_taken_for_a_change(kind: str) -> None:
    """Requests of one class with rates of their own, 0.1 apart as a standard deviation."""
    changes = []
    for seed in range(3):
        learner = watch(kind, {"falling": 1.0}, seed, spread=0.1)[int(FALLS_AT) - 1][1]
        changes.append(learner.changes)
    whole = watch(kind, {"falling": 1.0}, 0, spread=0.1)[-1][0]
    print(f"{kind}: changes seen in 90 s with one true one, requests 0.1 apart: {changes}; {whole:.3f} at the end")
    assert abs(whole - AFTER) <= 0.06
