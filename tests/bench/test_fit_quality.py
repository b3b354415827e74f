"""Which model is chosen, and what is said of how well it follows what was measured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from adaptive_gamma.bench import Source, SpeculationSeen, SweepRow, row_to_json
from adaptive_gamma.bench.build import BuiltPolicy, PolicyWishes, judged_sweep, policy_from_sweep
from adaptive_gamma.bench.importers import Sweep
from adaptive_gamma.cli.policy import command
from adaptive_gamma.errors import ConfigurationError, SweepError
from adaptive_gamma.policy import Policy, lint_policy, load_policy, policy_yaml
from adaptive_gamma.roofline import AcceptanceCurve
from adaptive_gamma.roofline.calibrate import UnderDetermined
from tests.bench.synthetic import drafted, measured, row

CURVE = AcceptanceCurve.from_conditional([0.78, 0.72, 0.68, 0.66, 0.65])
WISHES = PolicyWishes(prompts_cached=True, bootstrap=0)


def step_seconds(batch: int, gamma: int) -> float:
    """A step that waits for memory up to 173 tokens and computes beyond, and a drafter of 0.9 ms a pass."""
    tokens = batch * (gamma + 1)
    return 1e-3 * (max(7.2 + 0.012 * batch, 0.030 * tokens + 2.0) + 0.9 * gamma + 0.002 * gamma * batch)


def speedup(batch: int, gamma: int) -> float:
    return CURVE.expected_tokens(gamma) * step_seconds(batch, 0) / step_seconds(batch, gamma)


def bent_sweep(loads: Sequence[int] = (1, 8, 32, 64), gammas: Sequence[int] = (0, 3, 5)) -> Iterator[SweepRow]:
    """Twelve runs; the plain arm has 64 tokens in a step at most, the drafted ones up to 384."""
    line = 0
    for gamma in gammas:
        for load in loads:
            line += 1
            expected = CURVE.expected_tokens(gamma)
            tpot = step_seconds(load, gamma) / expected
            rates = tuple(float(rate) for rate in CURVE.unconditional(gamma)) if gamma else ()
            drafts = round(100 * 199 / expected)
            seen = SpeculationSeen(drafts, expected, rates, draft_tokens=drafts * gamma)
            common = {
                "source": Source("rows.jsonl", line), "concurrency_asked": load, "concurrency": float(load),
                "tpot_p50_s": tpot, "tpot_mean_s": tpot, "output_tokens_per_s": load / tpot * 200 / 199,
                "completed": 100,
            }  # fmt: skip
            yield drafted(gamma, **common, acceptance=seen) if gamma else row(**common)  # type: ignore[arg-type]  # as rows take them


def built(rows: Sequence[SweepRow], wishes: PolicyWishes = WISHES) -> BuiltPolicy:
    return policy_from_sweep(judged_sweep(Sweep(tuple(rows), ()), wishes), wishes)


def build(rows: Sequence[SweepRow], folder: Path, *arguments: str) -> Result:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row_to_json(one)) + "\n" for one in rows))
    whole = ["build", "--from", str(path), "--prompts-cached", *arguments, "-o", str(folder / "policy.yaml")]
    return CliRunner().invoke(command, whole)


@pytest.fixture(scope="module")
def chosen() -> BuiltPolicy:
    return built(list(bent_sweep()))


def test_the_default_choice_is_right_where_the_plain_arm_ends_before_the_drafted_ones(chosen: BuiltPolicy) -> None:
    policy = chosen.policy
    for batch in (1, 8, 32, 64):
        best = max([1.0, *(speedup(batch, gamma) for gamma in range(1, 6))])
        gamma = policy.best_gamma("all", batch)
        assert speedup(batch, gamma) >= 0.95 * best
        for seen in (3, 5):
            assert policy.speedup("all", batch, seen) == pytest.approx(speedup(batch, seen), rel=0.05)


def test_a_model_that_ends_before_measured_points_does_not_win_over_one_that_reaches_them(chosen: BuiltPolicy) -> None:
    reached = [one.calibration.reached for one in chosen.ranked if one.calibration is not None]
    assert set(reached) == {8, 12}
    assert reached == sorted(reached, reverse=True)
    assert chosen.calibration.reached == 12
    assert chosen.calibration.contradicted == ()


def test_the_error_is_that_over_all_observations() -> None:
    found = built(list(bent_sweep()), replace(WISHES, step_time="plain_pool")).calibration
    errors = [abs(one.relative_error) for one in found.residuals]
    assert len(errors) == 12
    assert found.reached == 8
    assert found.mean_error == pytest.approx(sum(errors) / 12)
    assert [one.relative_error for one in found.contradicted] == sorted(
        (one.relative_error for one in found.residuals if abs(one.relative_error) > 0.1), key=abs, reverse=True
    )


def test_the_report_and_the_file_tell_where_the_model_contradicts_a_measurement(tmp_path: Path) -> None:
    said = build(list(bent_sweep()), tmp_path, "--step-time", "plain_pool").output
    assert "over all observations (8 of 12 fitted)" in said
    assert "warning: the time per token is more than 10% off " in said
    policy = load_policy(str(tmp_path / "policy.yaml"))
    assert "over all observations (8 of 12 fitted)" in policy.document.measured[0]
    assert "more than 10% off" in policy.document.measured[1]
    assert "at batch 64, gamma 5" in policy.document.measured[1]
    assert policy.inputs.step_time.source == "fitted to 8 of 12 observations"


def test_a_model_that_follows_its_measurements_gives_no_warning(tmp_path: Path) -> None:
    said = build(list(bent_sweep()), tmp_path).output
    assert "(12 of 12 fitted)" in said
    assert "warning" not in said
    assert "beware" not in (tmp_path / "policy.yaml").read_text()


def test_a_poor_fit_is_refused_unless_asked_for(tmp_path: Path) -> None:
    # The gammas are swapped: what is called 5 was plain and the other way round.
    wrong = [
        replace(one, tpot_p50_s=factor * (one.tpot_p50_s or 0), tpot_mean_s=factor * (one.tpot_mean_s or 0),
                output_tokens_per_s=(one.output_tokens_per_s or 0) / factor)
        for one, factor in zip(bent_sweep(), (1, 9, 1, 9, 9, 1, 9, 1, 1, 9, 1, 9), strict=True)
    ]  # fmt: skip
    with pytest.raises(SweepError, match=r"off the measurements in the mean, more than 30%.*--allow-poor-fit"):
        built(wrong, replace(WISHES, step_time="linear"))
    refused = build(wrong, tmp_path, "--step-time", "linear")
    assert refused.exit_code != 0
    assert not (tmp_path / "policy.yaml").exists()
    allowed = build(wrong, tmp_path, "--step-time", "linear", "--allow-poor-fit")
    assert allowed.exit_code == 0
    assert "warning: the time per token is more than 10% off" in allowed.output


def test_what_the_search_leaves_of_a_zero_is_zero(chosen: BuiltPolicy) -> None:
    numbers = [
        number
        for one in chosen.calibration.parameters
        for number in (one.value, one.low, one.high)
        if number is not None
    ]
    assert 0.0 in numbers
    assert all(number == 0.0 or abs(number) > 1e-12 for number in numbers)


@pytest.mark.parametrize("step_time", [None, "linear"])
def test_too_few_rows_say_first_what_to_measure(step_time: str | None) -> None:
    with pytest.raises(UnderDetermined) as caught:
        built([row(), drafted()], replace(WISHES, step_time=step_time))
    first, _, details = str(caught.value).partition(" In detail:")
    assert "measure the plain engine (without a drafter) at two loads or more" in first
    assert "a second gamma" in first
    assert "fixed_seconds" not in first
    assert "fixed_seconds" in details


def test_only_what_is_missing_is_asked_for() -> None:
    rows = [one for one in measured(gammas=(None, 3), classes=["chat"], runs=1) if one.gamma or one.concurrency == 1]
    with pytest.raises(UnderDetermined, match="measure the plain engine") as caught:
        built(rows, replace(WISHES, step_time="plain_pool"))
    assert "with its drafter at two loads" not in str(caught.value)


def test_a_roofline_without_peaks_and_sizes_names_the_flags(tmp_path: Path) -> None:
    result = build(list(bent_sweep()), tmp_path, "--step-time", "roofline")
    assert result.exit_code == 2
    assert "--step-time roofline needs --gpu and --model" in result.output
    with pytest.raises(ConfigurationError, match="roofline needs --gpu and --model"):
        built(list(bent_sweep()), replace(WISHES, step_time="roofline"))


def test_points_that_the_table_is_far_from_are_remarked(chosen: BuiltPolicy) -> None:
    assert not any(one.key.startswith("evidence") for one in lint_policy(chosen.policy))
    data = yaml.safe_load(policy_yaml(chosen.policy))
    for point in data["evidence"]["points"]["all"][5][:2]:
        point[3:6] = [1.3 * seconds for seconds in point[3:6]]
    (remark,) = [one for one in lint_policy(Policy.from_mapping(data, "p.yaml")) if one.key.startswith("evidence")]
    assert remark.key == "evidence.points.all.5"
    assert "-2" in remark.message
    assert "from the 4.854 ms a token measured at batch 1, and 1 more of this arm" in remark.message


def test_a_table_of_a_model_that_contradicts_its_points_is_remarked() -> None:
    policy = built(list(bent_sweep()), replace(WISHES, step_time="plain_pool")).policy
    assert any(one.key == "evidence.points.all.5" for one in lint_policy(policy))
