from __future__ import annotations

from dataclasses import replace

import pytest

from adaptive_gamma.bench import Source, StepSeen
from adaptive_gamma.bench.cells import Cells, sweep_cells
from adaptive_gamma.errors import SweepError
from tests.bench.synthetic import at_line, drafted, measured, row


def refused(cells: Cells) -> list[tuple[str, str]]:
    return [(f.field, f.problem) for f in cells.findings if f.kind == "refused"]


def test_runs_of_a_cell_are_one_cell_with_its_spread() -> None:
    times = (0.010, 0.0104, 0.0101)
    cells = sweep_cells(at_line(row(tpot_p50_s=t, run=str(i)), i) for i, t in enumerate(times))
    (cell,) = cells.cells
    assert (cell.tpot_s.median, cell.tpot_s.low, cell.tpot_s.high, cell.tpot_s.runs) == (0.0101, 0.010, 0.0104, 3)
    assert (cell.completed, cell.failed) == (120, 0)
    assert (cell.key.gamma, cell.key.speculative, cell.key.concurrency) == (0, False, 4)
    assert not cells.findings


def test_a_whole_sweep_has_a_cell_for_each_arm_class_and_load() -> None:
    cells = sweep_cells(measured())
    assert len(cells.cells) == 4 * 2 * 4
    assert all(cell.tpot_s.runs == 3 for cell in cells.cells)
    assert not cells.findings


def test_runs_that_disagree_are_refused_and_both_are_named() -> None:
    cells = sweep_cells([at_line(row(tpot_p50_s=0.010), 1), at_line(row(tpot_p50_s=0.0127), 2), at_line(drafted(), 3)])
    assert [cell.key.gamma for cell in cells.cells] == [3]
    ((field, problem),) = refused(cells)
    assert field == "tpot_p50_s"
    assert "0.0127 here, 0.01 in rows.jsonl:1" in problem
    assert "disagree by 27%" in problem
    assert str(cells.findings[0].source) == "rows.jsonl:2"
    assert len(sweep_cells([row(), row(tpot_p50_s=0.0124)]).cells) == 1
    assert not sweep_cells([row(), row(output_tokens_per_s=100.0)]).cells


def test_one_run_of_many_that_stands_out_does_not_refuse_the_cell() -> None:
    many = [at_line(row(tpot_p50_s=0.010 + 0.0001 * i), i) for i in range(9)]
    cells = sweep_cells([*many, at_line(row(tpot_p50_s=0.05), 10)])
    assert len(cells.cells) == 1
    assert cells.cells[0].tpot_s.high == 0.05
    half = [at_line(row(tpot_p50_s=0.010 if i < 5 else 0.020), i) for i in range(10)]
    assert not sweep_cells(half).cells


@pytest.mark.parametrize(
    ("one", "field"),
    [
        (row(gamma=None, speculative=None), "gamma"),
        (row(speculative=None), "speculative"),
        (row(tpot_p50_s=None, tpot_mean_s=None), "tpot_p50_s"),
        (row(tpot_p50_s=0.0, tpot_mean_s=0.0), "tpot_p50_s"),
        (row(concurrency_asked=None, concurrency=None), "concurrency"),
        (row(failed=60), "failed"),
        (row(gamma=None, step=StepSeen(0.01, 4, 4.3, 17, None, True)), "gamma"),
    ],
)
def test_rows_that_cannot_be_placed_are_refused(one: object, field: str) -> None:
    cells = sweep_cells([one])  # type: ignore[list-item]  # the parameters are rows
    assert not cells.cells
    assert not cells.steps
    assert [found for found, _ in refused(cells)] == [field]


def test_failed_requests_are_outcomes() -> None:
    cells = sweep_cells([row(failed=10)])
    assert cells.cells[0].failed == 10
    assert "20% of the requests failed" in cells.findings[0].problem


def test_arms_of_other_lengths_are_refused() -> None:
    cells = sweep_cells([row(), at_line(drafted(output_tokens=150.0), 7)])
    assert [cell.key.gamma for cell in cells.cells] == [0]
    ((field, problem),) = refused(cells)
    assert field == "output_tokens"
    assert "300/150 tokens in and out at concurrency 4, but the plain arm has 300/200 (rows.jsonl:1)" in problem


def test_a_sweep_over_lengths_keeps_each_length_on_all_arms() -> None:
    rows = [*measured(input_tokens=300.0), *measured(input_tokens=3000.0)]
    cells = sweep_cells(rows)
    assert len(cells.cells) == 2 * 32
    assert not cells.findings


def test_lengths_that_differ_by_little_are_one_cell() -> None:
    assert len(sweep_cells([row(), row(output_tokens=205.0)]).cells) == 1
    assert len(sweep_cells([row(), row(output_tokens=205.0), row(output_tokens=300.0)]).cells) == 2


def test_without_a_plain_arm_the_least_gamma_is_compared_with() -> None:
    cells = sweep_cells([drafted(1), drafted(3), drafted(5, input_tokens=900.0)])
    assert [cell.key.gamma for cell in cells.cells] == [1, 3]


def test_engines_and_drafters_are_not_mixed() -> None:
    with pytest.raises(SweepError, match="one policy is for one engine"):
        sweep_cells([row(), row(engine="sglang")])
    with pytest.raises(SweepError, match=r"'ngram' here, 'eagle3' in rows.jsonl:1"):
        sweep_cells([drafted(), drafted(drafter="ngram")])


def test_a_row_that_does_not_name_its_engine_goes_with_the_others() -> None:
    cells = sweep_cells([row(engine=None), row(), drafted(), drafted(drafter=None)])
    assert len(cells.cells) == 2
    assert {cell.key.engine for cell in cells.cells} == {"vllm"}


def test_loads_by_rate_group_by_the_load_measured() -> None:
    cells = sweep_cells([row(concurrency_asked=None, concurrency=c) for c in (7.8, 8.1, 15.9)])
    assert [cell.key.concurrency for cell in cells.cells] == [8, 16]


def test_single_steps_stand_apart() -> None:
    step = StepSeen(0.012, 16, 4.0, 64, 4096.0, True)
    cells = sweep_cells([drafted(step=step), replace(row(), source=Source("a"))])
    assert len(cells.cells) == 1
    assert [one.step for one in cells.steps] == [step]
