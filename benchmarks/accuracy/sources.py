"""The published measurements, as restated beside this module."""

from __future__ import annotations

import csv
from pathlib import Path

__all__ = ["read_measured"]

_FOLDER = Path(__file__).resolve().parent / "measured"


def read_measured(name: str) -> tuple[str, list[dict[str, str]]]:
    """The source line and the rows of a file."""
    lines = (_FOLDER / name).read_text(encoding="utf-8").splitlines()
    return lines[0].removeprefix("# source: "), list(csv.DictReader(lines[1:]))
