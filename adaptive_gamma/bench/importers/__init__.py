"""Result files of benchmark tools, read into rows of one form. The format is told by content."""

from adaptive_gamma.bench.importers.arms import Arm, gamma_in_name, parse_arms
from adaptive_gamma.bench.importers.finding import FindingKind, ImportFinding
from adaptive_gamma.bench.importers.formats import FORMATS, detect
from adaptive_gamma.bench.importers.read import Sweep, read_sweep

__all__ = [
    "FORMATS",
    "Arm",
    "FindingKind",
    "ImportFinding",
    "Sweep",
    "detect",
    "gamma_in_name",
    "parse_arms",
    "read_sweep",
]
