"""Benchmarks: result files of every common tool read into one form, and the sweep of our own."""

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
    "ImportFinding",
    "Source",
    "SpeculationSeen",
    "StepSeen",
    "Sweep",
    "SweepRow",
    "parse_arms",
    "read_sweep",
    "row_from_json",
    "row_to_json",
]
