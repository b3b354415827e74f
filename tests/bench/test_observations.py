from __future__ import annotations

from dataclasses import replace

import pytest

from adaptive_gamma.bench import SpeculationSeen, StepSeen, SweepRow
from adaptive_gamma.bench.cells import sweep_cells
from adaptive_gamma.bench.curves import class_curves
from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.observations import STEP_CLASS, SweepObservations, decoding_batch, sweep_observations
from adaptive_gamma.roofline.calibrate import calibrate
from tests.bench.synthetic import COST, CURVES, at_line, drafted, measured, row


def observed(*rows: SweepRow, **options: bool) -> SweepObservations:
    return sweep_observations(sweep_cells(at_line(one, i) for i, one in enumerate(rows, 1)), **options)


def problems(seen: SweepObservations) -> str:
    return " | ".join(f.problem for f in seen.findings if f.kind == "refused")


def test_a_run_becomes_an_observation() -> None:
    plain, spec = observed(row(), drafted()).observations
    assert spec.tokens_per_step is not None
    assert plain.batch == pytest.approx(1 + 2.9 * 380.0 * 199 / 200 * 0.0101 / 3.9, rel=1e-5)
    assert (plain.gamma, plain.speculative, plain.tokens_per_step) == (0, False, None)
    assert plain.context_tokens == 400
    assert plain.prefill_tokens == pytest.approx((plain.batch - 1) * 1.5)
    assert (plain.seconds_per_token, plain.load, plain.label) == (0.010, 4.0, "rows.jsonl:1")
    assert (spec.gamma, spec.speculative) == (3, True)
    assert spec.tokens_per_step == pytest.approx(1 + 0.8 + 0.64 + 0.512)
    assert spec.prefill_tokens == pytest.approx((spec.batch - 1) * spec.tokens_per_step * 1.5)


def test_prompts_in_the_prefix_cache_cost_no_step() -> None:
    assert observed(row(), prompts_cached=True).observations[0].prefill_tokens == 0


def test_the_batch_is_what_decodes_and_not_what_waits() -> None:
    assert decoding_batch(row(concurrency=64.0, concurrency_asked=64)) == pytest.approx(1 + 63 * 3.82 / 64, abs=0.01)
    assert decoding_batch(row(concurrency=1.0, output_tokens_per_s=70.0)) == 1.0
    assert decoding_batch(row(concurrency=None)) == pytest.approx(1 + 3 * 3.82 / 4, abs=0.01)
    assert decoding_batch(row(output_tokens_per_s=1e6)) == 3.9
    assert decoding_batch(row(output_tokens_per_s=None)) == 3.9
    assert decoding_batch(row(output_tokens_per_s=None, concurrency=None)) == 4
    assert decoding_batch(row(concurrency=None, concurrency_asked=None)) == pytest.approx(3.82, abs=0.01)
    assert decoding_batch(row(output_tokens_per_s=None, concurrency=None, concurrency_asked=None)) is None


def test_a_speculative_run_without_acceptance_may_have_drafted_nothing() -> None:
    seen = observed(row(), drafted(acceptance=None))
    assert len(seen.observations) == 1
    assert "may have drafted nothing" in problems(seen)
    forced = observed(row(), drafted(acceptance=None), fit_acceptance=True)
    assert forced.observations[1].tokens_per_step is None


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (SpeculationSeen(mean_length=4.5), "more than gamma 3 can give"),
        (SpeculationSeen(4000, 2.0, draft_tokens=8000), "drafts had 2.00 of 3 tokens"),
        (SpeculationSeen(400, 2.9, draft_tokens=1200), "only 15% of the output came from steps with drafts"),
    ],
)
def test_what_does_not_tell_a_steps_time_is_refused(seen: SpeculationSeen, words: str) -> None:
    result = observed(row(), drafted(acceptance=seen))
    assert len(result.observations) == 1
    assert words in problems(result)


def test_drafts_cut_off_at_the_end_of_requests_are_no_reason() -> None:
    seen = SpeculationSeen(4000, 2.9, draft_tokens=11_000)
    assert len(observed(row(), drafted(acceptance=seen)).observations) == 2


def test_a_servers_running_total_is_one_arms_only_on_one_kind_of_traffic() -> None:
    total = SpeculationSeen(mean_length=2.9, cumulative=True)
    same = [drafted(acceptance=total, dataset="sharegpt", concurrency_asked=load) for load in (4, 8)]
    assert len(observed(*same).observations) == 2
    mixed = [drafted(acceptance=total, dataset=name, concurrency_asked=load) for name, load in (("a", 4), ("b", 8))]
    assert not observed(*mixed).observations
    assert "total over several" in problems(observed(*mixed))


def test_made_up_prompts_tell_the_time_and_no_curve() -> None:
    one = drafted()
    assert one.acceptance is not None
    seen = observed(row(), replace(one, acceptance=replace(one.acceptance, made_up_prompts=True)))
    assert len(seen.observations) == 2
    assert not seen.curves


def test_single_steps_are_observations_of_their_own_class() -> None:
    step = StepSeen(0.012, 16, 4.0, 80, 4096.0, True, prefill_tokens=16)
    other = StepSeen(0.010, 16, 1.0, 16, 4096.0, False)
    wrong = StepSeen(0.010, 16, 2.0, 32, 4096.0, False)
    unknown = StepSeen(0.010, 16, 1.0, 16, None, False)
    seen = observed(drafted(step=step), row(step=other), drafted(step=wrong), row(step=unknown))
    first, second = seen.observations
    assert (first.batch, first.gamma, first.seconds_per_token, first.tokens_per_step) == (16, 3, 0.012, 1.0)
    assert (first.prefill_tokens, first.context_tokens, first.request_class) == (16, 4096, STEP_CLASS)
    assert not second.includes_drafter
    assert "are not those of gamma 3" in problems(seen)
    assert "no context length" in problems(seen)


def test_curves_pool_counts_over_gammas() -> None:
    short = drafted(1, acceptance=SpeculationSeen(1000, 1.5, (0.5,), draft_tokens=1000))
    long = drafted(3, acceptance=SpeculationSeen(3000, 2.8, (0.9, 0.54, 0.36), draft_tokens=9000))
    curve = class_curves([short, long], Findings())["all"]
    assert curve.by_position
    assert (curve.positions, curve.drafts) == (3, 4000)
    assert curve.curve.conditional[0] == pytest.approx((500 + 2700) / 4000)
    assert curve.curve.conditional[1] == pytest.approx(0.6)
    assert curve.curve.plateau == pytest.approx((1620 + 1080) / (2700 + 1620))


def test_positions_that_few_drafts_reach_are_left_to_the_plateau() -> None:
    few = drafted(3, acceptance=SpeculationSeen(200, 1.9, (0.5, 0.3, 0.1), draft_tokens=600))
    assert len(class_curves([few], Findings())["all"].curve.conditional) == 2


def test_curves_from_histograms() -> None:
    seen = SpeculationSeen(1000, 2.4, histogram=(200, 400, 200, 200), draft_tokens=3000)
    curve = class_curves([drafted(acceptance=seen)], Findings())["all"].curve
    assert curve.conditional == pytest.approx((0.8, 0.5, 0.5))
    short = SpeculationSeen(1000, 1.8, histogram=(200, 800), draft_tokens=3000)
    assert class_curves([drafted(acceptance=short)], Findings())["all"].curve.conditional == pytest.approx((0.8, 0.0))


def test_curves_from_mean_lengths_are_two_numbers() -> None:
    findings = Findings()
    rows = [drafted(g, acceptance=SpeculationSeen(mean_length=CURVES["chat"].expected_tokens(g))) for g in (1, 3, 5)]
    curve = class_curves(rows, findings)["all"]
    assert not curve.by_position
    assert curve.curve.expected_tokens(4) == pytest.approx(CURVES["chat"].expected_tokens(4), rel=1e-3)
    assert "two numbers are fitted" in findings.items[0].problem


def test_classes_have_curves_of_their_own() -> None:
    seen = observed(*measured())
    assert set(seen.curves) == {"chat", "structured"}
    for name, curve in seen.curves.items():
        assert curve.curve.expected_tokens(5) == pytest.approx(CURVES[name].expected_tokens(5), rel=0.01)


def test_a_known_engine_is_found_again() -> None:
    """The whole way: rows of an engine of known step time, cells, observations, calibration."""
    seen = observed(*measured())
    assert len(seen.observations) == 96
    found = calibrate(seen.observations, model="linear", drafter="autoregressive", bootstrap=0)
    for batch, gamma in ((2, 3), (32, 5), (64, 1)):
        wanted = COST.speculative_seconds(batch, gamma, 400.0)
        assert found.cost().speculative_seconds(batch, gamma, 400.0) == pytest.approx(wanted, rel=0.04)
        assert found.cost().plain_seconds(batch, 400.0) == pytest.approx(COST.plain_seconds(batch, 400.0), rel=0.04)
