"""Benchmarks: result files of every common tool read into one form, and the sweep of our own.

``observations`` and ``curves`` are not part of it: they bring scipy's optimisers.
"""

from adaptive_gamma.bench.cells import Cell, CellKey, Cells, Spread, sweep_cells
from adaptive_gamma.bench.importers import Arm, ImportFinding, Sweep, parse_arms, read_sweep
from adaptive_gamma.bench.row import (
    ROW_SCHEMA,
    Source,
    SpeculationSeen,
    StepSeen,
    SweepRow,
    row_from_json,
    row_to_json,
)

__all__ = [
    "ROW_SCHEMA",
    "Arm",
    "Cell",
    "CellKey",
    "Cells",
    "ImportFinding",
    "Source",
    "SpeculationSeen",
    "Spread",
    "StepSeen",
    "Sweep",
    "SweepRow",
    "parse_arms",
    "read_sweep",
    "row_from_json",
    "row_to_json",
    "sweep_cells",
]
