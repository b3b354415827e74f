"""vLLM: ``num_speculative_tokens_per_batch_size`` in ``--speculative-config``.

A list of [first batch, last batch, K], both ends included; the batch is the number of requests scheduled in the step,
prompt chunks too. Rules of vLLM 0.24-0.33 (vllm/v1/spec_decode/dynamic/utils.py): non-empty list of three-item lists,
the first range starts at 1, ranges do not overlap, K >= 0; a gap and the tail take the K before them; K is cut to
``num_speculative_tokens``.
"""

from __future__ import annotations

import json
from typing import Any

from adaptive_gamma.errors import ConfigurationError, nearest
from adaptive_gamma.policy.export.engine import (
    EngineExport,
    ServerOptions,
    Situation,
    constant_note,
    drafter_family,
    gated,
    read_version,
    refuse,
)
from adaptive_gamma.policy.export.notes import Note
from adaptive_gamma.policy.export.schedule import Schedule, ScheduleOptions, make_schedule
from adaptive_gamma.policy.export.version import Version, version_text
from adaptive_gamma.policy.export.vllm_gates import GATES, TABLE_KEY, V2_DEFAULT
from adaptive_gamma.policy.table import Policy

__all__ = [
    "CONSTANT_KEY",
    "GATES",
    "METHODS",
    "TABLE_KEY",
    "check_method",
    "export_vllm",
    "gate_notes",
    "runner_of",
    "vllm_method",
]


CONSTANT_KEY = "num_speculative_tokens"

METHODS = {
    "eagle1": "eagle",
    "eagle3": "eagle3",
    "mtp": "mtp",
    "ngram": "ngram",
    "draft-model": "draft_model",
    "dflash": "dflash",
    "dspark": "dspark",
    "p-eagle": "p-eagle",
}
"""Our drafter family: vLLM's method. ``p-eagle`` is written as eagle3 with parallel_drafting."""

READ_UP_TO: Version = (0, 33, 0)
_SIZES_BY_RANGE: Version = (0, 32, 0)
_DEFAULT_CEILING = 512
"""Most tokens captured by default; 1024 on data-center Blackwell."""
_V1_ONLY = frozenset({"suffix", "medusa", "mlp_speculator", "custom_class", "p-eagle"})
_NEEDS_NO_MODEL = frozenset({"ngram", "mtp", "suffix"})


def check_method(method: str | None) -> None:
    """Raises ConfigurationError for a method that vLLM does not have; it refuses to start with one."""
    known = sorted({*METHODS.values(), *_V1_ONLY, "ngram_gpu"})
    # Each architecture with its own multi-token prediction has a name of its own, such as deepseek_mtp.
    if method is not None and method not in known and not method.endswith("_mtp"):
        raise ConfigurationError(
            "--method", "", f"vLLM has no method {method!r}; it has {', '.join(known)}", nearest(method.lower(), known)
        )


def vllm_method(policy: Policy, options: ServerOptions) -> str | None:
    """vLLM's method, as given or as the policy's drafter family means; None where neither says."""
    if options.method is not None:
        return options.method
    family = drafter_family(policy)
    return METHODS.get(family) if family is not None else None


def runner_of(version: Version, method: str | None, options: ServerOptions) -> tuple[str, list[Note]]:
    """The model runner the server will use."""
    if method in _V1_ONLY:
        if options.runner == "v2":
            words = f"Model Runner V2 does not support {method}: with VLLM_USE_V2_MODEL_RUNNER=1 it refuses to start"
            return "v2", [Note("refusal", "v2_refuses", words, "vllm/config/vllm.py of 0.32")]
        words = f"Model Runner V2 does not support {method}; the server uses V1"
        said = Note("warning", "v2_falls_back", words, "vllm/config/vllm.py of 0.32")
        return "v1", [said] if options.runner == "auto" and version >= V2_DEFAULT else []
    if options.runner != "auto":
        return options.runner, []
    return ("v2" if version >= V2_DEFAULT or method == "dspark" else "v1"), []


def gate_notes(
    version: Version, method: str | None, server: ServerOptions, has_zero: bool, *, constant: bool = False
) -> list[Note]:
    """What is known of a table on such a server, or of one gamma without a table (``constant``)."""
    runner, notes = runner_of(version, method, server)
    found = [*notes, *gated(GATES, Situation(version, runner, method, server.data_parallel, has_zero, constant))]
    return [note for note in found if note.code != "v2_by_architecture" or server.runner == "auto"]


def export_vllm(policy: Policy, server: ServerOptions, options: ScheduleOptions) -> EngineExport:
    """The table, the speculative config and the command line.

    Raises ConfigurationError for options out of range, ExportRefused where the version would reject or drop the table.
    """
    version = read_version(server.version, "vllm")
    if version is None:
        raise ConfigurationError(
            "vllm version", "", "give the engine's version: what it does with the table depends on it"
        )
    check_method(server.method)
    method = vllm_method(policy, server)
    made = make_schedule(policy, options)
    notes = gate_notes(version, method, server, made.has_zero, constant=made.constant is not None)
    refuse("vllm", version, notes, made)
    table = None if made.constant else [[step.first, step.last, step.gamma] for step in made.steps]
    config = _config(method, server, made, table)
    flags = ["vllm", "serve", server.model or "MODEL", "--speculative-config", json.dumps(config)]
    flags += ["--max-num-seqs", str(made.max_batch)]
    flags += _capture_flags(version, made)
    return EngineExport(
        engine="vllm",
        version=version_text(version),
        policy=policy.name,
        schedule=made,
        table_key=CONSTANT_KEY if table is None else TABLE_KEY,
        table=made.constant if table is None else table,
        config=config,
        flags=tuple(flags),
        notes=(*notes, *_own_notes(method, version, server, made), *made.notes),
    )


def _config(method: str | None, server: ServerOptions, made: Schedule, table: list[list[int]] | None) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if method is not None:
        config["method"] = "eagle3" if method == "p-eagle" else method
    if method == "p-eagle":
        config["parallel_drafting"] = True
    if method not in _NEEDS_NO_MODEL or server.draft_model is not None:
        config["model"] = server.draft_model or "DRAFT_MODEL"
    # The maximum sizes buffers and graphs, and cuts every K above it.
    config[CONSTANT_KEY] = max(made.max_gamma, 1)
    if table is not None:
        config[TABLE_KEY] = table
    return config


def _capture_flags(version: Version, made: Schedule) -> list[str]:
    """Sizes that hold every step of the table.

    Decode graphs are captured at multiples of K + 1. From 0.32 the server adds the sizes each range needs by itself,
    up to 512 tokens, unless a capture option is given; so none is given where that is enough. Without a table it adds
    none.
    """
    limit = made.capture_limit_tokens
    if limit is None:
        return []
    if version >= _SIZES_BY_RANGE and limit <= _DEFAULT_CEILING and (not made.constant or _default_holds(made)):
        return []
    sizes = {size for size in (1, 2, 4, *range(8, 256, 8), *range(256, limit + 1, 16)) if size <= limit}
    for step in made.steps:
        counts = {n for n in (1, 2, 4, *range(8, 256, 8), *range(256, step.last + 1, 16), step.last) if n <= step.last}
        sizes |= {n * (step.gamma + 1) for n in counts if n * (step.gamma + 1) <= limit}
    return ["--cudagraph-capture-sizes", *(str(size) for size in sorted(sizes))]


def _default_holds(made: Schedule) -> bool:
    """Whether the sizes captured by default, rounded up to multiples of gamma + 1, hold the largest batch: those above
    it are dropped."""
    width = (made.constant or 0) + 1
    ceiling = min(made.max_batch * width * 2, _DEFAULT_CEILING)
    grid = [size for size in (1, 2, 4, *range(8, 256, 8), *range(256, _DEFAULT_CEILING + 1, 16)) if size <= ceiling]
    wanted = made.max_batch * width
    return wanted <= grid[-1] and any(-(-size // width) * width == wanted for size in grid)


def _own_notes(method: str | None, version: Version, server: ServerOptions, made: Schedule) -> list[Note]:
    found: list[Note] = []
    if method is None:
        found.append(
            Note(
                "note",
                "method_unknown",
                "the policy does not say what its drafter is; the method is left to the engine",
            )
        )
    if made.constant:
        found.append(constant_note(CONSTANT_KEY, made))
    if version > READ_UP_TO and not made.constant:
        found.append(
            Note(
                "warning",
                "newer_than_read",
                f"these rules were read up to vLLM {version_text(READ_UP_TO)}; proposals add a context axis to the "
                f"table",
                "vLLM PR #48944, issue #54801",
            )
        )
    if not made.constant:
        found.append(
            Note(
                "note",
                "tail",
                f"beyond {made.max_batch} sequences the server keeps the last K: --max-num-seqs {made.max_batch} "
                f"belongs to the table",
                "vllm/v1/spec_decode/dynamic/utils.py",
            )
        )
    if made.capture_limit_tokens is not None and not made.constant and not _capture_flags(version, made):
        found.append(
            Note(
                "note",
                "capture_by_default",
                "leave the capture options alone: the server captures what each range needs, up to 512 tokens (1024 on "
                "data-center Blackwell); with --max-cudagraph-capture-size given it would not",
                "vllm/config/vllm.py of 0.32",
            )
        )
    distinct = len({step.gamma for step in made.steps})
    if runner_of(version, method, server)[0] == "v2" and distinct > 1:
        found.append(
            Note(
                "note",
                "graphs_per_gamma",
                f"one set of CUDA graphs is captured for each distinct K: {distinct} sets of memory and start-up time",
                "vllm/v1/worker/gpu/cudagraph_utils.py",
            )
        )
    if server.model is None or ("DRAFT_MODEL" in json.dumps(_config(method, server, made, []))):
        found.append(Note("note", "placeholders", "replace MODEL and DRAFT_MODEL, or give --model and --draft-model"))
    return found
