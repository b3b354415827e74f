"""llama.cpp's server: how its log is told from others, its flags, and what reading its metrics does."""

from __future__ import annotations

import re

from adaptive_gamma.doctor.engines.words import EngineWords
from adaptive_gamma.doctor.finding import Fix

__all__ = ["LLAMACPP"]

LLAMACPP = EngineWords(
    name="llamacpp",
    title="llama.cpp",
    owners=frozenset({"llamacpp"}),
    log_mark=re.compile(
        rb"llama_model_loader: |llama_context: |llama_model_load|^srv +\w+: |main: server is listening"
    ),
    gamma_flags=lambda gamma, version: (f"--spec-draft-n-max {gamma}",),
    statistics_fix=Fix("start the server with its metrics on", ("--metrics",)),
    reading_resets=(
        "the gauges of tokens per second are means since they were read last: whoever reads the page cuts the "
        "period of "
        "everybody else"
    ),
    reading_fix=Fix("let one scraper read the page, and use its counters (tokens and seconds), which nobody resets"),
)
