"""vLLM's flags by version, what to look for in its log, and how that is told from others."""

from __future__ import annotations

import json

from adaptive_gamma.doctor.engines.vllm.texts import EXCLUSIVE
from adaptive_gamma.doctor.engines.words import EngineWords
from adaptive_gamma.doctor.evidence import Version
from adaptive_gamma.doctor.finding import Fix

__all__ = [
    "CAPTURE_BAR",
    "CAPTURE_LIMIT",
    "CONTEXT",
    "DRAFTER",
    "DRAFTER_BACKEND",
    "FINISHED_IS_NO_PROOF",
    "MEMORY",
    "NOT_EAGER",
    "NO_DRAFTER",
    "ONE_RANK",
    "READ_THE_LOG",
    "REPORT_DRAFTS",
    "RUNNER_V1",
    "RUNNER_V2",
    "STEP_TOKENS",
    "TABLE",
    "TENSOR_PARALLEL",
    "VLLM",
    "attention_backend",
    "capture_limit",
    "graph_mode",
    "most_sequences",
]

DRAFTER = ("--speculative-config",)
NO_DRAFTER = ("without --speculative-config",)
DRAFTER_BACKEND = ('"attention_backend": "FLASH_ATTN" in --speculative-config',)
TABLE = ('"num_speculative_tokens_per_batch_size": [[1, N, K], [N+1, 512, 0]] in --speculative-config',)
RUNNER_V1 = ("VLLM_USE_V2_MODEL_RUNNER=0",)
RUNNER_V2 = ("VLLM_USE_V2_MODEL_RUNNER=1",)
NOT_EAGER = ("without --enforce-eager",)
CAPTURE_LIMIT = ("--max-cudagraph-capture-size",)
REPORT_DRAFTS = ("--per-request-spec-decode-metrics detailed",)
STEP_TOKENS = ("--max-num-batched-tokens",)
MEMORY = ("--gpu-memory-utilization",)
CONTEXT = ("--max-model-len",)
ONE_RANK = ("--data-parallel-size 1",)
TENSOR_PARALLEL = ("--tensor-parallel-size",)

CAPTURE_BAR = "the bar 'Capturing CUDA graphs'"
FINISHED_IS_NO_PROOF = (
    "'Graph capturing finished' is printed all the same, and is no proof that decode steps have graphs"
)
READ_THE_LOG = (
    "read the start-up log (--log), and look for 'CUDA graph', 'cudagraph_mode' and 'Graph capturing finished'; then "
    "choose an attention backend that captures verify steps"
)

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


def most_sequences(count: int) -> str:
    """Limits the batch."""
    return f"--max-num-seqs {max(count, 1)}"


VLLM = EngineWords(
    name="vllm",
    title="vLLM",
    owners=frozenset({"vllm", "adaptive-gamma-simulated-engine"}),
    log_mark=EXCLUSIVE,
    gamma_flags=_gamma,
    statistics_fix=Fix("start the server without --disable-log-stats", ("without --disable-log-stats",)),
)
