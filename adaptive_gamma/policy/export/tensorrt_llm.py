"""TensorRT-LLM: ``draft_len_schedule`` under ``speculative_config`` of the server's YAML.

A mapping of batch sizes to draft lengths. Keys are UPPER bounds: {4: 4, 8: 2} is 4 up to batch 4, 2 up to 8, and 0
beyond. Keys are >= 1, lengths >= 0, the smallest key has ``max_draft_len`` and none has more. The key
``max_concurrency`` excludes it. Before PR #10860 (merged in March 2026) keys were lower bounds and 1 had to be among
them.
"""

from __future__ import annotations

from typing import Any

from adaptive_gamma.policy.export.engine import (
    EngineExport,
    Gate,
    ServerOptions,
    Situation,
    constant_note,
    drafter_family,
    gated,
    read_version,
    refuse,
)
from adaptive_gamma.policy.export.notes import Note
from adaptive_gamma.policy.export.schedule import ScheduleOptions, make_schedule
from adaptive_gamma.policy.export.version import Version, version_text
from adaptive_gamma.policy.table import Policy

__all__ = ["CONSTANT_KEY", "DECODING_TYPES", "GATES", "TABLE_KEY", "export_tensorrt_llm"]

TABLE_KEY = "draft_len_schedule"
CONSTANT_KEY = "max_draft_len"

DECODING_TYPES = {
    "eagle1": "Eagle",
    "eagle3": "Eagle3",
    "mtp": "MTP",
    "ngram": "NGram",
    "draft-model": "DraftTarget",
    "dflash": "DFlash",
}
"""Our drafter family: the decoding_type."""

_DYNAMIC = frozenset({"Eagle", "Eagle3", "MTP", "NGram", "DraftTarget", "DFlash", "PARD"})
"""Decoding types whose draft length may change."""
UPPER_BOUNDS: Version = (1, 3, 0)
"""First version whose keys are upper bounds; its first release candidates are older than the change."""

GATES: tuple[Gate, ...] = (
    Gate(
        "refusal",
        "lower_bound_keys",
        "before 1.3 the keys of draft_len_schedule are lower bounds and 1 must be one of them; this table would be "
        "read wrongly",
        "TensorRT-LLM PRs #8194 and #10860",
        before=UPPER_BOUNDS,
    ),
    Gate(
        "refusal",
        "decoding_type",
        "no decoding_type with a dynamic draft length is known for this drafter",
        "tensorrt_llm/llmapi/llm_args.py",
        other_methods=_DYNAMIC,
    ),
    Gate(
        "warning",
        "release_candidates",
        "early release candidates of 1.3 still read keys as lower bounds; the change is PR #10860 of March 2026",
        "TensorRT-LLM PR #10860",
        since=UPPER_BOUNDS,
        before=(1, 3, 1),
    ),
    Gate(
        "warning",
        "two_model_only",
        "with n-gram drafting the schedule acts on the drafting side only: the target still computes padded tokens",
        "TensorRT-LLM PR #8194",
        methods=frozenset({"NGram"}),
    ),
    Gate(
        "warning",
        "zero_kills_acceptance",
        "drafting that stops at length 0 leaves the drafter's state behind: acceptance of the requests in flight "
        "collapses for good when it resumes; keep lengths at 1 or more",
        "TensorRT-LLM PR #16888",
        zero=True,
    ),
    Gate(
        "note",
        "zero_beyond_the_last_key",
        "beyond the last key the server drafts 0, with the same collapse on the way back; max_batch_size in the file "
        "keeps it from getting there",
        "tensorrt_llm/llmapi/llm_args.py; PR #16888",
    ),
    Gate(
        "note",
        "excludes_max_concurrency",
        "do not set max_concurrency beside it; acceptance_window and its threshold switch speculation off until a "
        "restart",
        "tensorrt_llm/llmapi/llm_args.py",
    ),
    Gate(
        "warning",
        "data_parallel",
        "whether ranks under attention data parallelism agree on the draft length is not known",
        "no source",
        data_parallel=True,
    ),
)


def export_tensorrt_llm(policy: Policy, server: ServerOptions, options: ScheduleOptions) -> EngineExport:
    """The YAML and the command line.

    Raises ConfigurationError for options out of range, ExportRefused where the version would read the table otherwise.
    """
    version = read_version(server.version, "tensorrt-llm")
    family = drafter_family(policy)
    decoding = server.method or (DECODING_TYPES.get(family, family) if family is not None else None)
    made = make_schedule(policy, options, first_is_largest=True)
    constant = made.constant if decoding in (*_DYNAMIC, None) else None
    at = Situation(version, None, decoding, server.data_parallel, made.has_zero, constant is not None)
    notes = gated(GATES, at)
    refuse("tensorrt-llm", version, notes, made)
    table = {step.last: step.gamma for step in made.steps}
    speculative: dict[str, Any] = {} if decoding is None else {"decoding_type": decoding}
    speculative |= {CONSTANT_KEY: made.max_gamma} if constant else {CONSTANT_KEY: made.max_gamma, TABLE_KEY: table}
    if decoding not in ("MTP", "NGram") or server.draft_model is not None:
        speculative["speculative_model"] = server.draft_model or "DRAFT_MODEL"
    file = server.file or "trtllm.yaml"
    own: list[Note] = [constant_note(CONSTANT_KEY, made)] if constant else []
    if decoding is None:
        own.append(
            Note(
                "warning",
                "method_unknown",
                "the policy does not say what its drafter is; add decoding_type to the file",
            )
        )
    if version is None and not constant:
        own.append(
            Note(
                "note",
                "version_not_given",
                "the form is that of 1.3 and later; give --engine-version to have it checked",
            )
        )
    if made.capture_limit_tokens is not None:
        own.append(
            Note(
                "note",
                "capture_sizes",
                f"let cuda_graph_config cover {made.max_batch} sequences (max_batch_size, or batch_sizes with the "
                f"table's keys)",
                "tensorrt_llm/llmapi/llm_args.py",
            )
        )
    if server.model is None or "DRAFT_MODEL" in speculative.values():
        own.append(Note("note", "placeholders", "replace MODEL and DRAFT_MODEL, or give --model and --draft-model"))
    return EngineExport(
        engine="tensorrt-llm",
        version=None if version is None else version_text(version),
        policy=policy.name,
        schedule=made,
        table_key=CONSTANT_KEY if constant else TABLE_KEY,
        table=constant or table,
        config={"max_batch_size": made.max_batch, "speculative_config": speculative},
        flags=("trtllm-serve", server.model or "MODEL", "--extra_llm_api_options", file),
        notes=(*notes, *own, *made.notes),
        file=file,
        as_yaml=True,
    )
