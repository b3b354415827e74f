"""All formats, told apart by what a document holds; a file's name decides nothing."""

from __future__ import annotations

from typing import Any

from adaptive_gamma.bench.importers.aiperf import aiperf_rows, is_aiperf, is_aiperf_aggregate, is_aiperf_request
from adaptive_gamma.bench.importers.aiperf_server_metrics import is_server_metrics, server_metrics_facts
from adaptive_gamma.bench.importers.guidellm import guidellm_rows, is_guidellm
from adaptive_gamma.bench.importers.own import is_own, own_rows
from adaptive_gamma.bench.importers.raw import Format
from adaptive_gamma.bench.importers.sglang import is_sglang, sglang_rows
from adaptive_gamma.bench.importers.vllm_forward import forward_rows, is_forward
from adaptive_gamma.bench.importers.vllm_serve import is_bench_serve, serve_rows
from adaptive_gamma.bench.importers.vllm_server_info import is_server_info, server_facts
from adaptive_gamma.bench.importers.vllm_sweep import (
    failure_rows,
    is_failure,
    is_pytorch_copy,
    is_summary,
    summary_rows,
)

__all__ = ["FORMATS", "detect"]

_SWEEP_FILES = ("adaptive-gamma/sweep-plan/", "adaptive-gamma/sweep-run/", "adaptive-gamma/sweep/")


def _is_beside_rows(value: Any) -> bool:
    schema = value.get("schema") if isinstance(value, dict) else None
    return isinstance(schema, str) and schema.startswith(_SWEEP_FILES)


FORMATS: tuple[Format, ...] = (
    Format("own", is_own, rows=own_rows),
    Format("own plan", _is_beside_rows, ignored="goes with the rows of a sweep of ours, which are read"),
    Format("vllm-bench-serve", is_bench_serve, rows=serve_rows),
    Format("vllm-bench-sweep summary", is_summary, rows=summary_rows),
    Format("vllm-bench-sweep failure", is_failure, rows=failure_rows),
    Format("vllm-bench-forward", is_forward, rows=forward_rows),
    Format("vllm server_info", is_server_info, facts=server_facts),
    Format("sglang-bench-serving", is_sglang, rows=sglang_rows),
    Format("guidellm", is_guidellm, rows=guidellm_rows),
    Format("aiperf", is_aiperf, rows=aiperf_rows),
    Format("aiperf server metrics", is_server_metrics, facts=server_metrics_facts),
    Format(
        "aiperf aggregate", is_aiperf_aggregate, ignored="is the aggregate of a sweep; its runs are read one by one"
    ),
    Format("aiperf requests", is_aiperf_request, ignored="lists single requests; the run's own export is read"),
    Format("pytorch copy", is_pytorch_copy, ignored="repeats a run's figures in PyTorch's form"),
)


def detect(value: Any) -> Format | None:
    """The format of a document, or None where it is none that is known."""
    return next((candidate for candidate in FORMATS if candidate.recognises(value)), None)
