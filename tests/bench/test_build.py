from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from adaptive_gamma.bench import StepSeen, SweepRow, row_to_json
from adaptive_gamma.bench.build import BuiltPolicy, PolicyWishes, judged_sweep, policy_from_sweep
from adaptive_gamma.bench.importers import Sweep, read_sweep
from adaptive_gamma.errors import PolicyError, SweepError
from adaptive_gamma.policy import (
    Policy,
    family_named,
    lint_policy,
    load_policy,
    model_named,
    policy_yaml,
    provenance_at,
    rebuild_policy,
)
from adaptive_gamma.policy.export.prices import prices_of
from adaptive_gamma.roofline.calibrate import ModelNumbers, UnderDetermined
from tests.bench.shapes import DATA, bench_serve, write
from tests.bench.synthetic import COST, CURVES, at_line, drafted, measured, row

FAST = PolicyWishes(step_time="linear", family=family_named("eagle3"), bootstrap=0)


def from_sweep(sweep: Sweep, wishes: PolicyWishes) -> BuiltPolicy:
    return policy_from_sweep(judged_sweep(sweep, wishes), wishes)


def built(rows: Iterable[SweepRow], wishes: PolicyWishes = FAST) -> BuiltPolicy:
    return from_sweep(Sweep(tuple(rows), ()), wishes)


def through_a_file(policy: Policy, folder: Path) -> dict[str, Any]:
    path = folder / "policy.yaml"
    path.write_text(policy_yaml(policy))
    assert policy_yaml(load_policy(path)) == path.read_text()
    loaded: dict[str, Any] = yaml.safe_load(path.read_text())
    return loaded


@pytest.fixture(scope="module")
def whole() -> BuiltPolicy:
    return built(measured())


def test_a_sweep_becomes_the_policy_of_its_engine(whole: BuiltPolicy) -> None:
    policy = whole.policy
    assert set(policy.classes) == {"structured", "chat", "unsure"}
    assert policy.default_class == "unsure"
    assert (policy.max_gamma, policy.max_batch, policy.context_buckets) == (5, 64, (400,))
    assert policy.inputs.limits.capture_limit_tokens == 512
    assert policy.inputs.limits.prompt_tokens_per_output_token == 1.5
    assert policy.name == "qwen3-8b-eagle3-measured"
    for name, curve in CURVES.items():
        for batch in (1, 16, 64):
            for gamma in (1, 3, 5):
                expected = curve.expected_tokens(gamma)
                wanted = (
                    expected
                    * COST.plain_seconds(batch, 400.0, 1.5 * (batch - 1))
                    / COST.speculative_seconds(batch, gamma, 400.0, 1.5 * (batch - 1) * expected)
                )
                assert policy.speedup(name, batch, gamma) == pytest.approx(wanted, rel=0.04)


def test_what_was_measured_stands_in_the_file(whole: BuiltPolicy, tmp_path: Path) -> None:
    data = through_a_file(whole.policy, tmp_path)
    plain = data["evidence"]["points"]["chat"]["plain"]
    assert [point[:3] for point in plain] == [[load, load, 400.0] for load in (1.0, 4.0, 16.0, 64.0)]
    assert all(low <= middle <= high and runs == 3 for _, _, _, middle, low, high, runs in plain)
    assert data["sources"] == ["measured.jsonl"]
    assert any(text.startswith("step time and drafter: linear, mean error") for text in data["measured"])
    assert any("prefix cache" in text for text in data["assumed"])


def test_cells_say_what_they_rest_on(whole: BuiltPolicy) -> None:
    evidence = whole.policy.evidence
    assert evidence is not None
    at = [provenance_at(evidence, "chat", 400, gamma, batch) for gamma, batch in ((3, 16), (3, 30), (2, 16))]
    assert at == ["measured", "interpolated", "interpolated"]
    assert provenance_at(evidence, "unsure", 400, 3, 16) == "interpolated"
    assert provenance_at(evidence, "nobody", 400, 3, 16) == "extrapolated"


def test_beyond_the_sweep_all_is_extrapolated(whole: BuiltPolicy) -> None:
    wide = built(
        measured(), replace(FAST, max_batch=256, max_gamma=7, contexts=[400, 4000], no_capture_limit=True)
    ).policy
    evidence = wide.evidence
    assert evidence is not None
    for context, gamma, batch in ((400, 3, 200), (400, 7, 4), (4000, 3, 4), (400, 5, 128)):
        assert provenance_at(evidence, "chat", context, gamma, batch) == "extrapolated"
    assert provenance_at(evidence, "chat", 400, 3, 64) == "measured"
    remarks = [f.message for f in lint_policy(wide)]
    assert any("extrapolated at" in remark for remark in remarks)
    assert not any("extrapolated at" in f.message for f in lint_policy(whole.policy))


def test_a_table_is_proven_together_with_what_it_rests_on(whole: BuiltPolicy, tmp_path: Path) -> None:
    data = through_a_file(whole.policy, tmp_path)
    data["evidence"]["cells"]["chat"][400][2] = "1-64 measured"
    with pytest.raises(PolicyError, match=r"evidence.cells.chat.400.2.*the points give '1-64 interpolated'"):
        Policy.from_mapping(data, "p.yaml")
    repaired = rebuild_policy(data, "p.yaml")
    assert policy_yaml(repaired) == policy_yaml(whole.policy)
    data = through_a_file(whole.policy, tmp_path)
    data["evidence"]["points"]["chat"]["plain"][0][3] = 9.0
    with pytest.raises(PolicyError, match=r"evidence.points.chat.plain\[0\].*lowest <= median <= highest"):
        Policy.from_mapping(data, "p.yaml")
    data["evidence"]["points"]["chat"]["plain"][0] = [1.0]
    with pytest.raises(PolicyError, match=r"evidence\.points"):
        Policy.from_mapping(data, "p.yaml")
    data["evidence"]["points"]["chat"]["spec"] = []
    with pytest.raises(PolicyError, match=r"evidence\.points"):
        Policy.from_mapping(data, "p.yaml")


def test_the_time_per_token_asked_for_bounds_the_batch(tmp_path: Path) -> None:
    policy = built(measured(), replace(FAST, slo_tpot_seconds=0.005)).policy
    data = through_a_file(policy, tmp_path)
    cell = policy.table.classes["structured"][400]
    assert cell.within_slo is not None
    last, plain = cell.within_slo
    assert 16 < last < 64
    assert plain == 0
    gamma = policy.best_gamma("structured", last)
    expected = policy.expected_tokens("structured", gamma)
    seconds = [
        policy.cost.speculative_seconds(batch, gamma, 400, 1.5 * (batch - 1) * expected) / expected
        for batch in (last, last + 1)
    ]
    assert seconds[0] <= 0.005 < seconds[1]
    data["table"]["classes"]["structured"][400]["within_slo"] = [64, 64]
    with pytest.raises(PolicyError, match=r"structured.400.within_slo"):
        Policy.from_mapping(data, "p.yaml")


def test_words_of_a_class_go_to_the_policys_class() -> None:
    rows = [
        replace(one, request_class={"structured": "code", "chat": "prose"}[one.request_class or ""])
        for one in measured()
    ]
    policy = built(rows).policy
    assert set(policy.classes) == {"structured", "chat", "unsure"}
    assert policy.evidence is not None
    assert set(policy.evidence.points) == {"structured", "chat"}


def test_rows_without_a_class_give_one_class() -> None:
    policy = built(replace(one, request_class=None) for one in measured(classes=["chat"])).policy
    assert policy.classes == ("all",)
    assert policy.default_class == "all"


def test_a_plain_sweep_alone_needs_the_drafters_family() -> None:
    rows = list(measured(gammas=(None,)))
    with pytest.raises(SweepError, match="no row tells acceptance; name the drafter's family"):
        built(rows, replace(FAST, family=None))
    policy = built(rows).policy
    assert policy.evidence is not None
    assert provenance_at(policy.evidence, policy.default_class, 400, 1, 4) == "extrapolated"
    assert any("no speculative arm was measured" in text for text in policy.document.assumed)


def test_too_few_rows_are_refused_in_words() -> None:
    with pytest.raises(UnderDetermined, match=r"for any step-time model; measure the plain(?s:.*)\n  linear: 1 usable"):
        built([drafted()], PolicyWishes(bootstrap=0, without_plain=True))


def test_made_up_prompts_give_no_policy_without_a_word(tmp_path: Path) -> None:
    rows = [
        replace(one, acceptance=replace(one.acceptance, made_up_prompts=True)) if one.acceptance else one
        for one in measured()
    ]
    with pytest.raises(SweepError, match="no row tells acceptance"):
        built(rows, replace(FAST, family=None))
    policy = built(rows).policy
    assert any("priors of the drafter family eagle3" in text for text in policy.document.assumed)


def test_nothing_usable_says_why() -> None:
    with pytest.raises(SweepError, match="not known which gamma it ran with"):
        built([row(gamma=None, speculative=None)])
    with pytest.raises(SweepError, match="no file holds a result"):
        built([])


def test_single_steps_count_as_measured_steps_and_not_as_cells() -> None:
    steps: list[SweepRow] = []
    for gamma in (None, 2, 4):
        for batch in (1, 8, 32, 128):
            drafts = gamma or 0
            seconds = (
                COST.plain_seconds(batch, 400.0) if gamma is None else COST.speculative_seconds(batch, gamma, 400.0)
            )
            step = StepSeen(
                seconds=float(seconds),
                sequences=batch,
                tokens_per_sequence=drafts + 1.0,
                scheduled_tokens=batch * (drafts + 1),
                context_tokens=400.0,
                includes_drafter=gamma is not None,
            )
            one = row(gamma=drafts, speculative=gamma is not None, step=step)
            steps.append(at_line(one, 1000 + len(steps)))
    policy = built([*steps, at_line(drafted(3), 1)]).policy
    evidence = policy.evidence
    assert evidence is not None
    assert set(evidence.steps) == {"plain", 2, 4}
    assert provenance_at(evidence, "all", 400, 3, 100) == "interpolated"
    assert provenance_at(evidence, "all", 400, 2, 8) == "interpolated"
    assert policy.max_batch == 128


def test_the_prompt_share_can_be_that_of_other_traffic() -> None:
    cached = built(measured(), replace(FAST, prompt_share=0.0)).policy
    assert cached.inputs.limits.prompt_tokens_per_output_token == 0.0
    assert cached.speedup("structured", 64, 5) > built(measured()).policy.speedup("structured", 64, 5)


def test_an_engines_schedule_prices_the_same_traffic(whole: BuiltPolicy) -> None:
    prices = prices_of(whole.policy, {"chat": 1.0}, 400.0, [1, 3, 5], 64, None)
    for row_of_gamma, gamma in zip(prices.speedup, prices.gammas, strict=True):
        assert row_of_gamma[15] == pytest.approx(whole.policy.speedup("chat", 16, gamma))


@pytest.mark.skipif(not (DATA / "bench").is_dir(), reason=f"no real result files in {DATA}")
def test_real_random_data_is_refused_with_its_reason() -> None:
    sweep = read_sweep([DATA / "bench" / "spec_random_c16.json"])
    with pytest.raises(SweepError, match="made-up prompts") as caught:
        from_sweep(sweep, replace(FAST, family=None, step_time=None))
    assert caught.value.key == "acceptance"


def test_real_files_of_two_servers_become_a_policy(tmp_path: Path) -> None:
    """``vllm bench serve`` against vLLM 0.32, plain and with a draft model; gamma stands in ``server_info`` alone."""
    sweep = read_sweep([Path(__file__).parent / "real_vllm"])
    assert {(one.gamma, one.speculative, one.engine, one.engine_version) for one in sweep.rows} == {
        (0, False, "vllm", "0.32.0"),
        (5, True, "vllm", "0.32.0"),
    }
    assert [f.kind for f in sweep.findings] == ["skipped"]
    policy = from_sweep(sweep, PolicyWishes(step_time="linear", bootstrap=0)).policy
    through_a_file(policy, tmp_path)
    assert policy.classes == ("structured",)
    assert policy.expected_tokens("structured", 5) == pytest.approx(2.22, abs=0.03)
    assert policy.evidence is not None
    assert [len(policy.evidence.points["structured"][arm]) for arm in ("plain", 5)] == [4, 4]
    assert provenance_at(policy.evidence, "structured", policy.context_buckets[0], 5, 1) == "measured"


def test_from_files_of_another_tool(tmp_path: Path) -> None:
    """The whole way from ``vllm bench serve`` files, in a folder for each arm."""
    for one in measured(classes=["chat"]):
        seen = one.acceptance
        drafts = {}
        if seen is not None and seen.drafts and seen.per_position:
            accepted = sum(rate * seen.drafts for rate in seen.per_position)
            drafts = {
                "spec_decode_acceptance_rate": 100 * accepted / (seen.draft_tokens or 1),
                "spec_decode_acceptance_length": 1 + accepted / seen.drafts,
                "spec_decode_num_drafts": seen.drafts,
                "spec_decode_draft_tokens": seen.draft_tokens,
                "spec_decode_accepted_tokens": round(accepted),
                "spec_decode_per_position_acceptance_rates": list(seen.per_position),
            }
        arm = f"k{one.gamma}" if one.speculative else "plain"
        latency = (one.tpot_mean_s or 0) * 199 + 0.1
        duration = 100 * latency / (one.concurrency_asked or 1)
        run = bench_serve(
            **drafts, num_prompts=100, completed=100, total_input_tokens=30_000, total_output_tokens=20_000,
            max_concurrency=one.concurrency_asked, duration=duration,
            latencies=[latency] * 100, mean_tpot_ms=1e3 * (one.tpot_mean_s or 0),
            median_tpot_ms=1e3 * (one.tpot_p50_s or 0), output_throughput=20_000 / duration, date=one.run,
        )  # fmt: skip
        write(tmp_path / arm / f"c{one.concurrency_asked}-{one.run}.json", run)
    sweep = read_sweep([tmp_path])
    assert len(sweep.rows) == 48
    policy = from_sweep(sweep, FAST).policy
    assert policy.classes == ("all",)
    wanted = built(measured(classes=["chat"])).policy
    assert policy.speedup("all", 16, 3) == pytest.approx(wanted.speedup("chat", 16, 3), rel=0.01)


def test_own_rows_written_and_read_give_the_same_policy(whole: BuiltPolicy, tmp_path: Path) -> None:
    path = tmp_path / "measured.jsonl"
    path.write_text("".join(json.dumps(row_to_json(one)) + "\n" for one in measured()))
    again = from_sweep(read_sweep([path]), FAST).policy
    assert again.table == whole.policy.table


def _asked(name: str) -> PolicyWishes:
    shape = model_named(name)
    assert shape is not None
    return replace(FAST, model_name=shape.name, numbers=ModelNumbers.of(shape, 2.0))


@pytest.mark.parametrize(
    ("measured_on", "asked", "other"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-70B", "Llama-3.1-8B"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8", "Llama-3.1-70B", "Llama-3.1-8B"),
        ("/models/qwen3-8b", "Qwen3-32B", "Qwen3-8B"),
    ],
)
def test_files_of_another_model_than_the_one_asked_for(measured_on: str, asked: str, other: str) -> None:
    sweep = Sweep((row(model=measured_on),), ())
    with pytest.raises(SweepError, match=f"measured on '{measured_on}', but --model is {asked}.*--model {other}"):
        judged_sweep(sweep, _asked(asked))
    assert not any(one.field == "model" for one in judged_sweep(sweep, _asked(other)).findings)
    # A config.json without a name: its sizes tell.
    with pytest.raises(SweepError, match="but --model is unnamed"):
        judged_sweep(sweep, replace(_asked(asked), model_name="unnamed"))
    judged_sweep(sweep, replace(_asked(other), model_name="unnamed"))


def test_a_served_name_that_tells_nothing_is_a_remark() -> None:
    found = judged_sweep(Sweep((row(model="chat-prod"),), ()), _asked("Llama-3.1-8B")).findings
    assert any("call the model 'chat-prod'; that it is Llama-3.1-8B" in one.problem for one in found)
    assert not any(
        one.field == "model" for one in judged_sweep(Sweep((row(model=None),), ()), _asked("Qwen3-8B")).findings
    )
