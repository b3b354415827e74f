from __future__ import annotations

import json
import random
from typing import Any

import pytest

from adaptive_gamma.bench import Source, SpeculationSeen, SweepRow
from adaptive_gamma.bench.sweep.journal import run_cell
from adaptive_gamma.bench.sweep.report import summary_lines, summary_tables
from adaptive_gamma.bench.sweep.summary import median_interval, summarize


def arm(name: str, speculative: bool | None, gamma: int | None) -> dict[str, Any]:
    reported = {"engine": "vllm", "engine_version": "1", "model": "m", "drafter": None, "gamma": gamma}
    return {"name": name, "url": "http://x", "fixed_length": True, "reported": reported | {"speculative": speculative}}


PLAN = {"id": "p", "made_at": "now", "identity": {}, "arms": [arm("spec", True, 3), arm("plain", False, 0)]}


def row(name: str, repeat: int, speed: float, **values: Any) -> SweepRow:
    standard: dict[str, Any] = {
        "completed": 8, "failed": 0, "output_tokens": 128.0, "tpot_p50_s": 1.0 / speed, "request_class": "code",
        "concurrency_asked": 8, "concurrency": 7.9,
    }  # fmt: skip
    return SweepRow(
        source=Source("x"), format="f", arm=name, run=f"p-{repeat:03d}", output_tokens_per_s=speed,
        **(standard | values),
    )  # fmt: skip


def summary(rows: list[SweepRow], details: dict[Any, Any] | None = None, plan: Any = PLAN) -> dict[str, Any]:
    return summarize(plan, rows, details or {}, planned_runs=len(rows), finished_runs=len(rows))


def rows(ratio: float, count: int = 15, **values: Any) -> list[SweepRow]:
    """Speeds that drift a lot while their ratio does not."""
    found = []
    for repeat in range(count):
        speed = 100.0 * (1 + 0.1 * repeat)
        found.append(row("plain", repeat, speed))
        found.append(row("spec", repeat, speed * (ratio + 0.01 * (repeat % 3 - 1)), **values))
    return found


@pytest.mark.parametrize(("ratio", "verdict"), [(1.5, "faster"), (0.8, "slower"), (1.0, "no difference shown")])
def test_speed_ups_are_of_paired_runs(ratio: float, verdict: str) -> None:
    (speedup,) = summary(rows(ratio))["speedups"]
    assert speedup["arm"] == "spec"
    assert speedup["pairs"] == 15
    assert speedup["throughput"]["median"] == pytest.approx(ratio)
    assert speedup["tpot"]["median"] == pytest.approx(ratio)
    assert speedup["verdict"] == verdict
    assert speedup["against_a_claim"] == []


def test_the_plain_arm_is_the_measure_wherever_it_stands() -> None:
    assert summary(rows(1.5))["baseline"] == "plain"
    without = PLAN | {"arms": [arm("spec", True, 3), arm("other", None, None)]}
    assert summary([row("spec", 1, 10.0), row("other", 1, 20.0)], plan=without)["baseline"] == "spec"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (rows(1.5, count=14), "14 paired repeats"),
        (rows(1.5, failed=1), "of 135 requests to spec failed"),
        (rows(1.5, output_tokens=100.0), "different lengths: 128 and 100 tokens"),
    ],
)
def test_what_speaks_against_a_claim_is_told(found: list[SweepRow], words: str) -> None:
    whole = summary(found)
    (speedup,) = whole["speedups"]
    assert speedup["verdict"] == "no claim"
    assert words in " ".join(speedup["against_a_claim"])
    assert any(words in line and line.startswith("no claim for spec code 8") for line in summary_lines(whole))


def test_other_traffic_speaks_against_a_claim() -> None:
    found = rows(1.5)
    details = {run_cell(item): {"disturbed": item.run == "p-003" and item.arm == "spec"} for item in found}
    whole = summary(found, details)
    assert whole["speedups"][0]["against_a_claim"] == ["other traffic reached spec in 1 of 15 runs"]
    assert [cell["disturbed_runs"] for cell in whole["cells"]] == [1, 0]


def test_runs_without_their_pair_are_left_out_of_ratios_only() -> None:
    found = rows(1.5)
    found.append(row("spec", 99, 1.0))
    whole = summary(found)
    assert whole["speedups"][0]["pairs"] == 15
    assert {cell["arm"]: cell["runs"] for cell in whole["cells"]} == {"spec": 16, "plain": 15}


def test_a_cell_in_which_nothing_completed_is_shown_with_its_failures() -> None:
    dead = [row("plain", 1, 10.0), SweepRow(
        source=Source("x"), format="f", arm="spec", run="p-001", request_class="code", concurrency_asked=8,
        completed=0, failed=8,
    )]  # fmt: skip
    details = {run_cell(dead[1]): {"timeouts": 8, "failures": {"timeout": 8}}}
    whole = summary(dead, details)
    cell = whole["cells"][0]
    assert (cell["failed"], cell["timeouts"], cell["failures"]) == (8, 8, {"timeout": 8})
    assert cell["measured"]["output_tokens_per_s"] is None
    assert whole["speedups"][0]["throughput"] is None
    assert len(summary_tables(whole)) == 2


def test_acceptance_is_the_median_over_runs() -> None:
    seen = [SpeculationSeen(drafts=100, mean_length=length, per_position=(0.8, 0.5)) for length in (2.0, 2.2, 2.9)]
    found = [row("spec", repeat, 10.0, acceptance=item) for repeat, item in enumerate(seen)]
    cell = summary(found)["cells"][0]
    assert cell["acceptance"]["mean_length"]["median"] == 2.2
    assert cell["acceptance"]["per_position_unconditional"] == [0.8, 0.5]
    assert cell["acceptance"]["drafts"] == 300


def test_the_summary_is_strict_json() -> None:
    json.dumps(summary(rows(1.2)), allow_nan=False)


def test_an_interval_needs_six_values_and_covers_the_median() -> None:
    assert median_interval([1.0] * 5) is None
    assert median_interval([float(n) for n in range(6)]) == (0.0, 5.0)
    assert median_interval([float(n) for n in range(1, 16)]) == (4.0, 12.0)
    rng = random.Random(5)
    held = 0
    for _ in range(2000):
        interval = median_interval([rng.expovariate(1.0) for _ in range(15)])
        assert interval is not None
        held += interval[0] <= 0.6931471805599453 <= interval[1]
    assert held >= 0.95 * 2000
