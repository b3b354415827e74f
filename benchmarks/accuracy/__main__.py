"""``make accuracy``: fit the models to published measurements, print how well they predict, write docs/accuracy.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .autospec import autospec_study
from .cost_curve import cost_curve_study
from .dspark import dspark_study
from .gamma_sweep import gamma_sweep_study
from .report import page
from .speed import speed_lines

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "accuracy.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=_PAGE, metavar="FILE", help="default: docs/accuracy.md")
    parser.add_argument("--no-speed", action="store_true", help="do not time the fits")
    asked = parser.parse_args()
    studies = [dspark_study(), cost_curve_study(), gamma_sweep_study(), autospec_study()]
    text = page(studies)
    print(text)
    for study in studies:
        for goal in study.goals:
            print(f"{study.title}: {goal}")
    if not asked.no_speed:
        print("\n".join(speed_lines()))
    asked.output.write_text(text, encoding="utf-8")
    print(f"written to {asked.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
