"""SGLang: how its log is told from others, and its flags."""

from __future__ import annotations

import re

from adaptive_gamma.doctor.engines.words import EngineWords
from adaptive_gamma.doctor.finding import Fix

__all__ = ["SGLANG"]

SGLANG = EngineWords(
    name="sglang",
    title="SGLang",
    owners=frozenset({"sglang"}),
    log_mark=re.compile(rb"server_args=ServerArgs\(|The server is fired up and ready to roll|sglang[./]"),
    gamma_flags=lambda gamma, version: (f"--speculative-num-steps {gamma}",),
    statistics_fix=Fix("start the server with its metrics on", ("--enable-metrics",)),
)
