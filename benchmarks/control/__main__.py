"""``python -m benchmarks.control``: run the plan, print the claims, write the page."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from .claims import claims_of
from .page import page_of
from .plan import Plan, Unit, full_plan, quick_plan
from .results import Results
from .work import work

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "control.md"


def run(plan: Plan, processes: int) -> Results:
    """Do all units of a plan."""
    units = plan.units()
    results = Results(plan)
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
    name = " ".join(str(getattr(part, "key", part)) for part in unit[1:])
    print(f"done: {unit[0]} {name}", file=sys.stderr, flush=True)


def _cpu_s() -> float:
    """Of this process and its workers, which have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


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
    print(
        f"{time.monotonic() - began:.0f} s, {_cpu_s():.0f} s of CPU"
        + (f"; written: {output}" if output is not None else "")
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
