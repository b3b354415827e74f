"""Our own rows, as ``adaptive-gamma sweep`` writes them: one JSON object a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adaptive_gamma.bench.fields import Fields
from adaptive_gamma.bench.importers.documents import Document
from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.importers.prompts import made_up_by_name
from adaptive_gamma.bench.importers.raw import RawRow
from adaptive_gamma.bench.row import row_from_json

__all__ = ["is_own", "own_rows"]

FAMILY = "adaptive-gamma/sweep-row/"


def is_own(value: Any) -> bool:
    """Whether a document is a row of ours, of any version."""
    return isinstance(value, dict) and isinstance(value.get("schema"), str) and value["schema"].startswith(FAMILY)


def own_rows(document: Document, findings: Findings) -> Iterator[RawRow]:
    """The row. Raises SweepError for another version, or a row in which nothing completed."""
    row = row_from_json(document.value, document.source)
    fields = Fields(document.value, document.source)
    if row.completed == 0 and row.step is None:
        raise fields.error("completed", f"no request completed ({row.failed} failed)")
    yield RawRow(row, None, made_up_by_name((row.dataset,)), settled=row.gamma is not None)
