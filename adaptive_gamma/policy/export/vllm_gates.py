"""What is known of vLLM versions and model runners with a schedule, as data."""

from __future__ import annotations

from adaptive_gamma.policy.export.engine import Gate
from adaptive_gamma.policy.export.version import Version

__all__ = ["GATES", "TABLE_KEY", "V2_DEFAULT"]

TABLE_KEY = "num_speculative_tokens_per_batch_size"
V2_DEFAULT: Version = (0, 29, 0)
"""First version that takes Model Runner V2 wherever it can."""
_AUTOREGRESSIVE = frozenset({"eagle", "eagle3", "mtp"})
_V1_KNOWS = frozenset({"ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"})

GATES: tuple[Gate, ...] = (
    Gate(
        "refusal",
        "no_table",
        f"{TABLE_KEY} is not known before 0.24",
        "vLLM PR #32374",
        before=(0, 24, 0),
    ),
    Gate(
        "refusal",
        "data_parallel_deadlock",
        "under data parallelism ranks can pick different K, and 0.24 and 0.25 have no guard against the deadlock that "
        "follows; the guard came with 0.26",
        "vLLM PR #45963",
        since=(0, 24, 0),
        before=(0, 26, 0),
        data_parallel=True,
    ),
    Gate(
        "refusal",
        "data_parallel_drops_table",
        "with data parallelism above 1 the server warns, drops the table and drafts num_speculative_tokens at every "
        "load; start single-rank replicas behind a router instead",
        "vllm/config/vllm.py, PR #45963",
        since=(0, 26, 0),
        data_parallel=True,
    ),
    Gate(
        "refusal",
        "v1_drops_method",
        "Model Runner V1 drops the table for this method (it keeps it for ngram, eagle, eagle3, mtp, draft_model, "
        "dflash) and drafts num_speculative_tokens at every load",
        "vllm/config/vllm.py of 0.33",
        since=(0, 33, 0),
        runner="v1",
        other_methods=_V1_KNOWS | {"p-eagle", "dspark"},
    ),
    Gate(
        "warning",
        "v1_method_unknown",
        "whether Model Runner V1 follows the table for this method is not known before 0.33, where it is dropped",
        "vllm/config/vllm.py of 0.33",
        since=(0, 24, 0),
        before=(0, 33, 0),
        runner="v1",
        other_methods=_V1_KNOWS | {"p-eagle", "dspark"},
    ),
    Gate(
        "warning",
        "v1_piecewise",
        "on Model Runner V1 a table turns full CUDA graphs into PIECEWISE ones, which costs every step (measured: 232 "
        "tokens/s static became 24-157); VLLM_USE_V2_MODEL_RUNNER=1 keeps them",
        "vllm/config/vllm.py; vLLM issue #49548",
        since=(0, 24, 0),
        runner="v1",
    ),
    Gate(
        "warning",
        "v2_ignores_table",
        "Model Runner V2 ignores the table's K for autoregressive drafters before 0.32: it drafts "
        "num_speculative_tokens and throws the rest away, so the drafter's time is not saved",
        "vLLM issue #51510, PRs #51575 and #57053",
        since=(0, 24, 0),
        before=(0, 32, 0),
        runner="v2",
        methods=_AUTOREGRESSIVE,
    ),
    Gate(
        "warning",
        "v2_ignores_table",
        "Model Runner V2 ignores the table's K for DFlash before 0.33: it drafts num_speculative_tokens and throws the "
        "rest away, so the drafter's time is not saved",
        "vLLM issue #51510, PR #57053",
        since=(0, 24, 0),
        before=(0, 33, 0),
        runner="v2",
        methods=frozenset({"dflash"}),
    ),
    Gate(
        "warning",
        "v2_ignores_table",
        "Model Runner V2 of 0.32 ignores the table's K for draft models and DSpark (0.33 was not read for them): it "
        "drafts num_speculative_tokens and throws the rest away; a draft model pays for each, DSpark for one pass",
        "vllm/v1/worker/gpu/spec_decode of 0.32",
        since=(0, 24, 0),
        runner="v2",
        methods=frozenset({"draft_model", "dspark"}),
    ),
    Gate(
        "refusal",
        "v2_only",
        "DSpark runs on Model Runner V2 only",
        "vllm/config/vllm.py of 0.32",
        runner="v1",
        methods=frozenset({"dspark"}),
        constant=True,
    ),
    Gate(
        "warning",
        "v2_by_architecture",
        "0.24 to 0.28 use Model Runner V2 for some architectures only; V1 was taken here. The start-up log says which",
        "vllm/config/vllm.py",
        since=(0, 24, 0),
        before=V2_DEFAULT,
        runner="v1",
    ),
    Gate(
        "note",
        "rocm_v1",
        "on ROCm 0.30 and 0.31 keep some models on Model Runner V1, where full CUDA graphs are lost",
        "vllm/config/vllm.py",
        since=(0, 30, 0),
        before=(0, 32, 0),
        runner="v2",
    ),
    Gate(
        "note",
        "v2_may_fall_back",
        "a draft model with another vocabulary than the target's falls back to Model Runner V1, where full CUDA graphs "
        "become PIECEWISE",
        "vllm/config/vllm.py of 0.32",
        since=V2_DEFAULT,
        runner="v2",
        methods=frozenset({"draft_model"}),
    ),
    Gate(
        "note",
        "adaptive_verification",
        "the engine has adaptive verification for this drafter (enable_adaptive_verification; not with LoRA, pipeline "
        "parallelism, eager mode or backends without full graphs): measured up to 8 % over the best fixed K. Where it "
        "runs, prefer it",
        "vLLM PR #47808",
        since=(0, 28, 0),
        methods=frozenset({"dspark"}),
        constant=True,
    ),
    Gate(
        "note",
        "adaptive_verification",
        "the engine has adaptive verification for model-based drafters (enable_adaptive_verification; not with LoRA, "
        "pipeline parallelism, eager mode or backends without full graphs). Where it runs, compare it with this",
        "vLLM PR #52228",
        since=(0, 30, 0),
        methods=frozenset({"eagle", "eagle3", "mtp", "dflash"}),
        constant=True,
    ),
    Gate(
        "note",
        "multiple_of_mtp_layers",
        "num_speculative_tokens must be a multiple of the model's MTP layers (n_predict)",
        "vllm/config/speculative.py",
        methods=frozenset({"mtp"}),
        constant=True,
    ),
    Gate(
        "note",
        "batch_counts_prefill",
        "the table's batch is the number of requests scheduled in a step, prompt chunks included and waiting ones not; "
        "K acts one step later, without hysteresis",
        "vllm/v1/core/sched/scheduler.py",
        since=(0, 24, 0),
    ),
    Gate(
        "note",
        "attention_backend",
        "an attention backend without uniform-batch graphs (FlashInfer off Blackwell) turns speculation PIECEWISE as "
        "well (-16 % measured); look for 'is not supported with spec-decode for attention backend' in the log",
        "vLLM issue #49547",
        since=(0, 24, 0),
        constant=True,
    ),
    Gate(
        "note",
        "zero_keeps_drafter",
        "at K=0 the drafter still runs its prefill and keeps its KV cache",
        "vLLM PR #51575",
        since=(0, 24, 0),
        zero=True,
    ),
)
