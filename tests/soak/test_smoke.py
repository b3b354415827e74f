"""A few seconds of the soak: nothing lost, nothing left open, whatever the machine's speed."""

from __future__ import annotations

from pathlib import Path

from tests.soak.report import report
from tests.soak.run import Options, soak


async def test_a_few_seconds(tmp_path: Path) -> None:
    options = Options(minutes=0.06, streams=10, seed=3, engines=3, gap_s=1.0, silence=False, longest_s=2, idle_s=0)
    result = await soak(options, tmp_path)
    page = report(result)
    sums = result.tally
    assert sums.lost == [], page
    assert not sums.broken, page
    assert result.outcome_faults == [], page
    assert sum(sums.verdicts["stream"].values()) > 0, page
    assert set(result.left_open.values()) <= {0, None}, page
    assert result.left_open["adaptive_gamma_in_flight"] == 0, page
    assert result.troubles, page
    assert result.exit_code == 0, page
