"""``vllm bench sweep``: a folder of runs in the form of ``vllm bench serve``, with what lies beside them.

``run=N.json`` gains the overrides of the server and of the benchmark, ``summary.json`` repeats all runs of a folder
(the reader drops what it has already), ``warmup.json`` is a run that must not count, ``*.failure.json`` a run that
never came to be, and ``*.pytorch.json`` repeats a run's figures in another tool's form.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from adaptive_gamma.bench.fields import Fields
from adaptive_gamma.bench.importers.documents import Document
from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.importers.raw import RawRow
from adaptive_gamma.bench.importers.vllm_serve import is_bench_serve, serve_rows
from adaptive_gamma.bench.source import Source
from adaptive_gamma.errors import SweepError

__all__ = ["failure_rows", "is_failure", "is_pytorch_copy", "is_summary", "is_warmup", "summary_rows"]

WARMUP_RUN = -1


def is_summary(value: Any) -> bool:
    """Whether a document is the list of a folder's runs."""
    return isinstance(value, list) and bool(value) and all(is_bench_serve(item) for item in value)


def is_failure(value: Any) -> bool:
    """Whether a document says why a run failed."""
    return isinstance(value, dict) and value.keys() >= {"error_type", "error", "serve_overrides"}


def is_pytorch_copy(value: Any) -> bool:
    """Whether a document repeats a run in PyTorch's benchmark form."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and item.keys() >= {"benchmark", "metric"} for item in value)
    )


def is_warmup(document: Document) -> bool:
    """Whether a run is a sweep's warm-up: by its run number, or by the name the sweep gives the file."""
    return document.value.get("run_number") == WARMUP_RUN or PurePath(document.source.file).name == "warmup.json"


def summary_rows(document: Document, findings: Findings) -> Iterator[RawRow]:
    """The rows of all runs in a summary; a bad one does not take the others with it."""
    for item in document.value:
        try:
            yield from serve_rows(Document(document.source, item), findings)
        except SweepError as error:
            findings.error(document.source, error)


def failure_rows(document: Document, findings: Findings) -> Iterator[RawRow]:
    """No row: a run that failed as a whole is an outcome that must be seen."""
    fields = Fields(document.value, document.source)
    findings.refused(
        Source(document.source.file),
        f"the run failed as a whole: {fields.text('error_type')}: {str(fields.values['error'])!r:.200}",
        "error",
    )
    yield from ()
