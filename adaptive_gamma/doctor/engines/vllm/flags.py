"""vLLM's flags by version, and how its log is told from others."""

from __future__ import annotations

import json

from adaptive_gamma.doctor.engines.vllm.texts import EXCLUSIVE
from adaptive_gamma.doctor.engines.words import EngineWords
from adaptive_gamma.doctor.evidence import Version
from adaptive_gamma.doctor.finding import Fix

__all__ = ["VLLM", "attention_backend", "capture_limit", "graph_mode"]

_BACKEND_FLAG: Version = (0, 13, 0)
"""Before, a variable; from 0.14 on that variable is ignored."""
_MODES: Version = (0, 10, 1)
_LIMIT_FLAG: Version = (0, 12, 0)


def _gamma(gamma: int, version: Version | None) -> tuple[str, ...]:
    return (f'"num_speculative_tokens": {gamma} in --speculative-config',)


def attention_backend(name: str, version: Version | None) -> str:
    """Chooses an attention backend."""
    if version is not None and version < _BACKEND_FLAG:
        return f"VLLM_ATTENTION_BACKEND={name}"
    return f"--attention-backend {name}"


def graph_mode(mode: str, version: Version | None) -> str:
    """Asks for a graph mode; before there were modes, for graphs at all."""
    if version is not None and version < _MODES:
        return "-O 3"
    return f"--compilation-config {json.dumps({'cudagraph_mode': mode})!r}"


def capture_limit(tokens: int, version: Version | None) -> str:
    """Raises the largest step that is captured."""
    if version is not None and version < _LIMIT_FLAG:
        sizes = sorted({1, 2, 4, *range(8, 256, 8), *range(256, tokens, 16), tokens} & set(range(1, tokens + 1)))
        return f"--compilation-config {json.dumps({'cudagraph_capture_sizes': sizes}, separators=(',', ':'))!r}"
    return f"--max-cudagraph-capture-size {tokens}"


VLLM = EngineWords(
    name="vllm",
    title="vLLM",
    owners=frozenset({"vllm", "adaptive-gamma-simulated-engine"}),
    log_mark=EXCLUSIVE,
    gamma_flags=_gamma,
    statistics_fix=Fix("start the server without --disable-log-stats", ("without --disable-log-stats",)),
)
