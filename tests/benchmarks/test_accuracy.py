"""What docs/accuracy.md claims is what the studies find."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.accuracy.autospec import autospec_study
from benchmarks.accuracy.cost_curve import cost_curve_study
from benchmarks.accuracy.dspark import dspark_study
from benchmarks.accuracy.gamma_sweep import gamma_sweep_study
from benchmarks.accuracy.report import Study, page
from benchmarks.accuracy.sources import read_measured

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "accuracy.md").read_text(encoding="utf-8")
SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "measured"
FILES = {
    "dspark_deepseek_v4_pro_b300.csv": ("dspark_dsv4pro_b300_pareto.csv", 36),
    "cost_curve_deepseek_v4_flash_b300.csv": ("dspark_dsv4flash_b300_costcurve.csv", 123),
    "eagle_llama_3_1_8b_h100.csv": ("llama31_8b_vllm_bs1_gamma.csv", 13),
    "autospec_qwen3_235b.csv": ("sglang_autospec.csv", 42),
}


def claimed(study: Study) -> dict[str, tuple[float, str]]:
    """Figure: value in per cent and verdict, as the page has them."""
    rows = re.findall(rf"^\| {re.escape(study.title)} \| (.+?) \| ([\d.]+) % \| [\d.]+ % \| (.+?) \|$", PAGE, re.M)
    return {what: (float(value), verdict.strip("*")) for what, value, verdict in rows}


def check(study: Study) -> None:
    on_page = claimed(study)
    assert set(on_page) == {goal.what for goal in study.goals}
    for goal in study.goals:
        value, verdict = on_page[goal.what]
        assert 100 * goal.value == pytest.approx(value, abs=0.15), goal
        assert verdict == ("met" if goal.met else "missed")


def test_low_load_and_the_plain_curve_predict_high_load() -> None:
    study = dspark_study()
    check(study)
    assert all(goal.met for goal in study.goals)
    assert study.title in page([study])


def test_the_cost_curve_is_followed_in_the_mean() -> None:
    study = cost_curve_study()
    check(study)
    mean, worst = study.goals
    assert mean.met
    assert not worst.met, "the page says that no curve which never falls can do it; it must be written anew"


def test_the_gamma_sweep_is_followed() -> None:
    study = gamma_sweep_study()
    check(study)
    assert all(goal.met for goal in study.goals)


def test_gamma_for_unseen_batches_loses_little() -> None:
    study = autospec_study(every_split=False)
    check(study)
    assert all(goal.met for goal in study.goals)


@pytest.mark.parametrize("name", FILES)
def test_the_data_names_its_source(name: str) -> None:
    source, rows = read_measured(name)
    assert re.search(r"vLLM|SGLang", source)
    assert len(rows) == FILES[name][1]


def test_restated_throughputs_equal_the_table_they_come_from() -> None:
    original = SHARED / FILES["autospec_qwen3_235b.csv"][0]
    if not original.is_file():
        pytest.skip(f"the table it was restated from is not here ({original.name})")
    lines = [line.split(",") for line in original.read_text().splitlines() if line.startswith("Qwen3-235B-A22B,static")]
    _, rows = read_measured("autospec_qwen3_235b.csv")
    found = {(row["gamma"], row["batch"]): row["output_tokens_per_s"] for row in rows}
    for _, _, gamma, *rates in lines:
        for batch, rate in zip(("1", "2", "4", "8", "16", "32", "64"), rates, strict=True):
            assert found[gamma, batch] == rate
