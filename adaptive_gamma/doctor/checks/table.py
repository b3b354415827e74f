"""A table of gammas by batch: whether this version, runner and method follow it, and what its ranges do."""

from __future__ import annotations

from collections.abc import Iterator

from adaptive_gamma.doctor.case import Case, Replica
from adaptive_gamma.doctor.checks.check import Check, Said
from adaptive_gamma.doctor.engines.vllm import flags
from adaptive_gamma.doctor.evidence import Fact
from adaptive_gamma.doctor.finding import Cost, Evidence, Finding, Fix, Unseen
from adaptive_gamma.doctor.graphs import graphs_apply, graphs_of
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.policy.export import Note, Runner, ServerOptions, TableOptions, check_engine_table

__all__ = ["DATA_PARALLEL", "TABLE"]

_DEADLOCK = "data_parallel_deadlock"
_DROPPED_BY_RANKS = "data_parallel_drops_table"
_IGNORED = frozenset({"v2_ignores_table", "v1_drops_method"})
_GRAPHS = "v1_piecewise"
_LEFT_TO_OTHERS = frozenset(
    (
        _DEADLOCK,
        _DROPPED_BY_RANKS,
        "capture_limit",
        "v1_method_unknown",
        "v2_by_architecture",
        "v2_falls_back",
        "v2_only",
        "v2_refuses",
    )
)
"""Said by other checks, not certain, or of a start that does not come to be."""
_REJECTED = "table_rejected"


_TITLES = {
    "table_ignored": "the table of gammas by batch is not followed",
    "table_costs_graphs": "the table of gammas by batch costs full CUDA graphs",
    "table_zero_gamma": "the table of gammas by batch has zeros, which are not free",
    _REJECTED: "this version does not take the table of gammas by batch",
}


def _notes(replica: Replica, table: Fact[object]) -> tuple[tuple[Note, ...], bool]:
    """What is known of such a table on such a server, and whether all of its gammas are one."""
    version = replica.version
    runner: Runner = "auto"
    if replica.start is not None and replica.start.runner is not None:
        runner = "v1" if replica.start.runner.value == "v1" else "v2"
    ranks = replica.data_parallel.value if replica.data_parallel is not None else 1
    method = replica.method.value if replica.method is not None else None
    seqs, gamma = replica.max_num_seqs, replica.gamma
    text = None if version is None else ".".join(map(str, version.value))
    try:
        report = check_engine_table(
            "vllm",
            table.value,
            TableOptions(
                ServerOptions(version=text, method=method, runner=runner, data_parallel=ranks),
                max_batch=seqs.value if seqs is not None else None,
                max_gamma=gamma.value if gamma is not None else None,
            ),
        )
    except ConfigurationError as error:
        return (Note("refusal", "table_rejected", error.problem),), False
    gammas = {step.gamma for step in report.steps}
    one = len(gammas) == 1 and gamma is not None and gammas == {gamma.value}
    return report.notes, one


def _look(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        table = replica.table
        if table is None or not replica.is_speculative or replica.engine != "vllm":
            continue
        dropped = replica.start.table_dropped if replica.start is not None else None
        if dropped is not None:
            if dropped.value == "method":
                yield _dropped(replica, table, dropped)
            continue  # what ranks drop is another check's matter
        if replica.version is None:
            yield Unseen(
                TABLE.name, replica.name, "what becomes of the table depends on the version, which is not known"
            )
            continue
        notes, one_gamma = _notes(replica, table)
        for note in notes:
            if note.severity == "note" or note.code in _LEFT_TO_OTHERS:
                continue
            if note.code in _IGNORED and one_gamma:
                continue  # a table of one gamma is kept by whoever ignores it
            if note.code == _GRAPHS and not _graphs_at_stake(replica):
                continue
            yield _found(replica, table, note)


def _graphs_at_stake(replica: Replica) -> bool:
    """Whether the table can have cost graphs that no line of the log has told of."""
    if not graphs_apply(replica):
        return False
    return not (replica.start is not None and replica.start.ready is not None) and graphs_of(replica) is None


def _found(replica: Replica, table: Fact[object], note: Note) -> Finding:
    version = replica.version
    if note.code in _IGNORED:
        name = "table_ignored"
    elif note.severity == "refusal":
        name = _REJECTED
    else:
        name = "table_costs_graphs" if note.code == _GRAPHS else f"table_{note.code}"
    shown = _TITLES.get(name, "the table of gammas by batch does not do what it says")
    return Finding(
        name,
        "problem" if note.severity == "refusal" or name == "table_ignored" else "warning",
        replica.name,
        shown,
        (table.evidence, *(() if version is None else (version.evidence,))),
        note.message,
        Cost("every draft of the maximum is paid for, at every load", note.source) if name == "table_ignored" else None,
        _fix(name),
    )


def _fix(name: str) -> Fix:
    if name == "table_ignored":
        return Fix(
            "upgrade (autoregressive drafters follow it from 0.32 on, DFlash from 0.33), or use Model Runner V1 "
            "and weigh its graphs",
            flags.RUNNER_V1,
        )
    if name == "table_costs_graphs":
        return Fix("use Model Runner V2", flags.RUNNER_V2)
    return Fix("let adaptive-gamma policy export write the table for this version", flags.TABLE)


def _dropped(replica: Replica, table: Fact[object], dropped: Fact[str]) -> Finding:
    return Finding(
        "table_ignored",
        "problem",
        replica.name,
        "the table of gammas by batch was dropped",
        (dropped.evidence, table.evidence),
        "Model Runner V1 follows a table for ngram, eagle, eagle3, mtp, draft_model and dflash only",
        Cost("num_speculative_tokens is drafted at every load", "vllm/config/vllm.py of 0.33"),
        Fix("use Model Runner V2 where it supports the method", flags.RUNNER_V2),
    )


def _data_parallel(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        line = replica.start.table_dropped if replica.start is not None else None
        table, ranks = replica.table, replica.data_parallel
        if line is not None and line.value == "data_parallel":
            yield _ranks_found(replica, (line.evidence, *(() if table is None else (table.evidence,))), deadlock=False)
        elif table is not None and ranks is not None and ranks.value > 1 and replica.version is not None:
            codes = {note.code for note in _notes(replica, table)[0]}
            if codes & {_DEADLOCK, _DROPPED_BY_RANKS}:
                evidence = (table.evidence, ranks.evidence, replica.version.evidence)
                yield _ranks_found(replica, evidence, deadlock=_DEADLOCK in codes)


def _ranks_found(replica: Replica, evidence: tuple[Evidence, ...], *, deadlock: bool) -> Finding:
    cause = "ranks may draft different numbers of tokens, and vLLM drops the table and drafts the maximum at every load"
    if deadlock:
        cause = (
            "ranks may draft different numbers of tokens, and 0.24 and 0.25 have no guard against the deadlock "
            "that follows"
        )
    return Finding(
        "data_parallel_with_table",
        "problem",
        replica.name,
        "a table of gammas by batch does not go with data parallelism",
        evidence,
        cause,
        Cost(
            "the server may hang" if deadlock else "num_speculative_tokens is drafted at every load",
            "vLLM PR #45963, issue #44185",
        ),
        Fix("start single-rank servers behind a router", flags.ONE_RANK),
    )


TABLE = Check(
    "table",
    "Does this version, runner and method follow the table of gammas by batch?",
    (
        "table_ignored",
        "table_costs_graphs",
        _REJECTED,
        "table_zero_gamma",
        "table_clamped",
        "table_maximum_too_large",
        "table_gap",
        "table_many_steps",
    ),
    _look,
)
DATA_PARALLEL = Check(
    "data parallelism", "Is there a table over several ranks?", ("data_parallel_with_table",), _data_parallel
)
