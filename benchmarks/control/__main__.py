"""``python -m benchmarks.control``: run the plan, print the claims, write the page."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from .cases import Plan, Unit, absent, full_plan, quick_plan, work
from .claims import claims_of
from .page import page_of
from .results import Results

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "control.md"


def run(plan: Plan, processes: int) -> Results:
    """Do all units of a plan that can be done here."""
    left_out = tuple(case for case in plan.traces if absent(case))
    units = [unit for unit in plan.units() if unit[0] != "trace" or unit[1] not in left_out]
    results = Results(plan, left_out)
    if processes == 1:
        for unit in units:
            _take(results, unit, work(unit))
        return results
    with ProcessPoolExecutor(max_workers=processes) as pool:
        for unit, result in zip(units, pool.map(work, units), strict=True):
            _take(results, unit, result)
    return results


def _take(results: Results, unit: Unit, result: object) -> None:
    results.take(unit, result)
    name = unit[1].key if unit[0] == "trace" else " ".join(str(part) for part in unit[1:])
    print(f"done: {unit[0]} {name}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; its figures mean nothing")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the page; docs/control.md if not quick")
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 4), metavar="N")
    asked = parser.parse_args()
    if asked.processes < 1:
        parser.error("--processes: at least 1")
    began = time.monotonic()
    results = run(quick_plan() if asked.quick else full_plan(), asked.processes)
    output = asked.output if asked.output is not None or asked.quick else _PAGE
    if output is not None:
        output.write_text(page_of(results), encoding="utf-8")
    for claim in claims_of(results):
        print(f"{'met    ' if claim.met else 'NOT MET'}  {claim.where}: {claim.text}")
    for case in results.left_out:
        print(f"left out: {case.title} (the public file is not beside the checkout)")
    print(f"{time.monotonic() - began:.0f} s" + (f"; written: {output}" if output is not None else ""))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
