"""TensorRT-LLM: how its log is told from others, and why its page is not read."""

from __future__ import annotations

import re

from adaptive_gamma.doctor.engines.words import EngineWords
from adaptive_gamma.doctor.finding import Fix

__all__ = ["TENSORRT_LLM"]

TENSORRT_LLM = EngineWords(
    name="tensorrt_llm",
    title="TensorRT-LLM",
    owners=frozenset({"tensorrt_llm"}),
    log_mark=re.compile(rb"\[TensorRT-LLM\]|\[TRT-LLM\]"),
    gamma_flags=lambda gamma, version: (f"speculative_config: {{max_draft_len: {gamma}}}",),
    statistics_fix=Fix("switch the Prometheus page on in the server's YAML", ("return_perf_metrics: true",)),
    reading_resets=(
        "the page /metrics gives each sample once: a second reader takes the samples from the first. It was not "
        "read here"
    ),
    reading_fix=Fix("let one scraper read it, or read /prometheus/metrics", ("return_perf_metrics: true",)),
    page_is_read=False,
)
