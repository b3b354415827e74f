"""``make control`` in small: every unit is done, the page says what the claims say, and says it again."""

from __future__ import annotations

import pytest

from benchmarks.control import cases
from benchmarks.control.__main__ import run
from benchmarks.control.claims import claims_of
from benchmarks.control.page import page_of
from benchmarks.control.results import Results


def small_plan() -> cases.Plan:
    case = cases.TraceCase("swing", "Load-swinging trace", "some seconds of it", duration_s=15.0)
    absent = cases.TraceCase("away", "A trace that is away", "nothing", (("no-such-trace", "chat"),))
    return cases.Plan((case, absent), (1,), 4.0, ((101, 0.8),), 10.0, (1,), 4.0)


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
    for row in results.rows["swing"]:
        assert f"{row['latency_s']:.3f}" in page
    assert "Left out, because the public file is not beside the checkout: A trace that is away." in page
    assert [case.key for case in results.cases] == ["swing"]


def test_a_claim_is_met_by_the_figures_alone(results: Results) -> None:
    loop = results.loop(results.cases[0])
    for latency, met in ((1e-6, True), (1e9, False)):
        loop["latency_s"] = latency
        claims = [claim for claim in claims_of(results) if claim.text.startswith("better mean latency")]
        assert len(claims) == 5
        assert all(claim.met is met for claim in claims)


def test_the_plans_name_known_kinds_of_work_only() -> None:
    for plan in (cases.full_plan(), cases.quick_plan()):
        keys = [case.key for case in plan.traces]
        assert len(set(keys)) == len(keys)
        assert {unit[0] for unit in plan.units()} == set(cases._KINDS)
