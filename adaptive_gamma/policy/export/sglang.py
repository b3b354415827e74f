"""SGLang: the file of ``--speculative-adaptive-config``.

A JSON object; keys are whole numbers in quotes, the LOWER bound of a range of batch sizes, each with
``candidate_steps``. The engine pads a batch to a captured size, takes the slot of the largest key not above it, and
walks between the slot's candidates by a moving average of accepted drafts. One candidate pins gamma: then the file is
a table. Read in 0.5.23.
"""

from __future__ import annotations

import numpy as np

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
from adaptive_gamma.policy.export.prices import prices_of
from adaptive_gamma.policy.export.schedule import Schedule, ScheduleOptions, Step, make_schedule
from adaptive_gamma.policy.export.version import Version, version_text
from adaptive_gamma.policy.table import Policy

__all__ = ["ALGORITHMS", "CONSTANT_KEY", "GATES", "TABLE_KEY", "export_sglang"]

TABLE_KEY = "speculative-adaptive-config"
CONSTANT_KEY = "speculative-num-steps"

ALGORITHMS = {
    "eagle1": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "EAGLE",
    "ngram": "NGRAM",
    "draft-model": "STANDALONE",
    "dflash": "DFLASH",
    "dspark": "DSPARK",
}
"""Our drafter family: SGLang's algorithm."""

READ_IN: Version = (0, 5, 23)
_ADAPTIVE = frozenset({"EAGLE", "EAGLE3"})

GATES: tuple[Gate, ...] = (
    Gate(
        "refusal",
        "algorithm",
        "--speculative-adaptive works with EAGLE and EAGLE3 only; with this algorithm the server warns and drafts a "
        "fixed number of steps (for DSPARK give its own planner a table: --speculative-dspark-sps-table-path)",
        "sglang/srt/speculative/adaptive_spec_params.py, 0.5.23",
        other_methods=_ADAPTIVE,
    ),
    Gate(
        "warning",
        "older_than_read",
        "read in 0.5.23; slots by batch size came with PR #24055 and 0 as a candidate later, so an older server may "
        "refuse the file",
        "SGLang PRs #21599, #24055",
        before=READ_IN,
    ),
    Gate(
        "warning",
        "data_parallel",
        "with DP attention the server falls back to fixed steps; plain data parallelism has one table on each rank",
        "sglang/srt/speculative/adaptive_spec_params.py",
        data_parallel=True,
    ),
    Gate(
        "warning",
        "zero_steps",
        "at 0 steps the draft-extend pass is still paid unless SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND is set, and "
        "with it a later upshift starts from a cold draft state",
        "SGLang 0.5.23",
        zero=True,
    ),
    Gate(
        "note",
        "falls_back",
        "the server also falls back to fixed steps with speculative_eagle_topk above 1, multi-layer EAGLE, two-batch "
        "overlap, pdmux, SGLANG_ENABLE_PP_SPEC and HiSparse; its log says so",
        "sglang/srt/speculative/adaptive_spec_params.py",
    ),
    Gate(
        "note",
        "hybrid_models",
        "adaptive steps broke on hybrid linear-attention models; try yours at start-up",
        "SGLang issues #23330, #35275",
    ),
    Gate(
        "note",
        "padded_batch",
        "the slot is chosen by the batch padded to a captured size, so an edge acts up to one capture size early",
        "sglang/srt/speculative/adaptive_spec_params.py",
    ),
)


def export_sglang(policy: Policy, server: ServerOptions, options: ScheduleOptions) -> EngineExport:
    """The adaptive config and the command line.

    Raises ConfigurationError for options out of range, ExportRefused where the server would fall back to fixed steps.
    """
    version = read_version(server.version, "sglang")
    family = drafter_family(policy)
    algorithm = server.method.upper() if server.method else ALGORITHMS.get(family or "")
    if algorithm == "NEXTN":
        algorithm = "EAGLE"
    made = make_schedule(policy, options)
    table = {str(step.first): {"candidate_steps": _candidates(policy, made, step, server)} for step in made.steps}
    steps = max(max(entry["candidate_steps"]) for entry in table.values())
    constant = (
        algorithm in (*_ADAPTIVE, None) and made.constant is not None and table["1"]["candidate_steps"] == [steps]
    )
    at = Situation(version, None, algorithm, server.data_parallel, made.has_zero, constant)
    notes = gated(GATES, at)
    refuse("sglang", version, notes, made)
    file = None if constant else server.file or "adaptive.json"
    flags = ["python3", "-m", "sglang.launch_server", "--model-path", server.model or "MODEL"]
    flags += ["--speculative-algorithm", algorithm or "ALGORITHM"]
    if family != "mtp" or server.draft_model is not None:
        flags += ["--speculative-draft-model-path", server.draft_model or "DRAFT_MODEL"]
    flags += ["--speculative-num-steps", str(steps), "--speculative-eagle-topk", "1"]
    flags += ["--speculative-num-draft-tokens", str(steps + 1)]
    if file is not None:
        flags += ["--speculative-adaptive", "--speculative-adaptive-config", file]
    flags += ["--max-running-requests", str(made.max_batch)]
    own = _own_notes(algorithm, version, server, made)
    if constant:
        own.insert(0, constant_note(CONSTANT_KEY, made))
    return EngineExport(
        engine="sglang",
        version=None if version is None else version_text(version),
        policy=policy.name,
        schedule=made,
        table_key=CONSTANT_KEY if constant else TABLE_KEY,
        table=steps if constant else table,
        config={CONSTANT_KEY: steps} if constant else table,
        flags=tuple(flags),
        notes=(*notes, *own, *made.notes),
        file=file,
    )


def _candidates(policy: Policy, made: Schedule, step: Step, server: ServerOptions) -> list[int]:
    """The slot's gammas: the table's alone, or with the best single one of each class over the range.

    0 is never one of several: the engine leaves it at every other update, whatever the acceptance.
    """
    if not server.candidates_by_class or step.gamma == 0:
        return [step.gamma]
    least = max(policy.min_gamma, 1)
    found = {step.gamma}
    for name in policy.classes:
        prices = prices_of(
            policy, {name: 1.0}, made.context, range(least, policy.max_gamma + 1), step.last, made.capture_limit_tokens
        )
        lost = (prices.losses() * prices.weights)[:, step.first - 1 :].sum(axis=1)
        found.add(prices.gammas[int(np.argmin(lost))])
    return sorted(found)


def _own_notes(algorithm: str | None, version: Version | None, server: ServerOptions, made: Schedule) -> list[Note]:
    found: list[Note] = []
    if algorithm is None:
        found.append(
            Note(
                "warning",
                "method_unknown",
                "the policy does not say what its drafter is; replace ALGORITHM (EAGLE, EAGLE3)",
            )
        )
    if version is not None and version > READ_IN:
        found.append(Note("warning", "newer_than_read", f"the rules were read in SGLang {version_text(READ_IN)}"))
    if server.candidates_by_class:
        found.append(
            Note(
                "note",
                "engine_adapts",
                "between several candidates the engine goes by accepted drafts alone; it knows no cost and no load",
                "sglang/srt/speculative/adaptive_spec_params.py",
            )
        )
    if made.capture_limit_tokens is not None:
        found.append(
            Note(
                "note",
                "capture_sizes",
                f"let the decode graphs cover {made.max_batch} sequences; the engine captures one set for each step "
                f"count",
                "SGLang PR #35275",
            )
        )
    if server.model is None or server.draft_model is None:
        found.append(Note("note", "placeholders", "replace MODEL and DRAFT_MODEL, or give --model and --draft-model"))
    return found
