"""``make control`` in small: every unit is done, the page says what the claims say, and says it again."""

from __future__ import annotations

import pytest

from adaptive_gamma.simulation.control import CONTROL
from benchmarks.control import plan, work
from benchmarks.control.__main__ import run
from benchmarks.control.claims import claims_of
from benchmarks.control.page import page_of
from benchmarks.control.results import Results


def small_plan() -> plan.Plan:
    case = plan.TraceCase("swing", "Load-swinging trace", "some seconds of it", seeds=(1, 2), duration_s=15.0)
    return plan.Plan((case,), (1,), 4.0, (11, 12), ((101, 0.8),), 10.0, (1, 2), 4.0)


@pytest.fixture(scope="module")
def results() -> Results:
    return run(small_plan(), 1)


def test_the_page_holds_every_claim_and_every_row(results: Results) -> None:
    page = page_of(results)
    assert page == page_of(results)
    claims = claims_of(results)
    assert f"## Claims: {sum(claim.met for claim in claims)} of {len(claims)} met" in page
    for claim in claims:
        assert f"| {claim.where} | {claim.text} | {'met' if claim.met else '**not met**'} |" in page
    (case,) = results.plan.traces
    for name in results.names(case):
        rows = results.runs(case, name)
        assert f"| {sum(row['latency_s'] for row in rows) / len(rows):.3f} |" in page
    assert [row["seed"] for row in results.runs(case, CONTROL)] == [1, 2]
    assert [row["seed"] for row in results.runs(case, "plain")] == [1]


def test_a_claim_is_met_by_the_figures_alone_and_by_those_of_every_seed(results: Results) -> None:
    (case,) = results.plan.traces
    one, other = (row for row in results.runs(case, CONTROL) if row["seed"] in (1, 2))
    mixed = results.runs(case, f"{CONTROL}, mixed fleet")
    for first, second, met in ((1e-6, 1e-6, True), (1e9, 1e9, False), (1e-6, 1e9, False)):
        one["latency_s"], other["latency_s"] = first, second
        for row, latency in zip(mixed, (first, second), strict=True):
            row["latency_s"] = latency
        claims = [claim for claim in claims_of(results) if claim.text.startswith(("better mean", "on spec"))]
        assert len(claims) == 6
        assert all(claim.met is met for claim in claims)


def test_the_plans_name_known_kinds_of_work_only() -> None:
    for each in (plan.full_plan(), plan.quick_plan()):
        keys = [case.key for case in each.traces]
        assert len(set(keys)) == len(keys)
        assert {unit[0] for unit in each.units()} == set(work._KINDS)
    headline = [case for case in plan.full_plan().traces if len(case.seeds) >= 3]
    assert [case.key for case in headline] == ["swing", "conv", "code"]


def test_where_a_public_trace_is_away_a_synthetic_one_stands_in_and_the_page_says_so(
    monkeypatch: pytest.MonkeyPatch, results: Results
) -> None:
    monkeypatch.setattr(plan, "trace_file", lambda name: None)
    away = [case for case in plan.full_plan().traces if case.sources]
    assert len(away) == 2
    assert all("not beside the checkout" in case.text and case.title.startswith("Synthetic") for case in away)
    assert len(work._workload(away[0], 1)) == 19_366
    assert work._workload(away[0], 1).arrival_s != work._workload(away[0], 2).arrival_s
