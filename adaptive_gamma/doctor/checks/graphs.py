"""No CUDA graphs under speculation, and graph modes that were taken down a step."""

from __future__ import annotations

from collections.abc import Iterator

from adaptive_gamma.doctor.case import Case, Replica
from adaptive_gamma.doctor.checks.check import Check, Said
from adaptive_gamma.doctor.engines.vllm import flags
from adaptive_gamma.doctor.evidence import Downgrade, Version
from adaptive_gamma.doctor.finding import Cost, Evidence, Finding, Fix, Unseen
from adaptive_gamma.doctor.graphs import GRAPH_ORDER, Graphs, graphs_apply, graphs_of

__all__ = ["DRAFTER_EAGER", "NO_GRAPHS", "PARTIAL_GRAPHS", "RUNTIME_MODES"]

_EAGER_COST = Cost(
    "measured: 165 ms a step without graphs against 108 ms with partial ones (MiniMax M3 on GB10, code 17.0 -> "
    "26.8, prose "
    "10.6 -> 16.5 tokens/s); without speculation 22.5 tokens/s with full graphs against 6.4 without",
    "field note, July 2026",
)
_PIECEWISE_COST = Cost(
    "measured: 47.5 against 55.2 tokens/s (-16 %) on GB10; the drafter runs without graphs as well then",
    "vLLM issues #49547 and #54992",
)
_TABLE_COST = Cost(
    "measured: 232 tokens/s of a static length became 24 to 157, one stream 59.6 -> 50.0 (Qwen3.5-122B on GB10)",
    "vLLM issue #49548",
)
_KEEPS_FULL = (
    "backends that keep full graphs under speculation are FLASH_ATTN and TRITON_ATTN (FP8 KV caches: TRITON_ATTN)"
)
_STEPS_SEEN_LEAST = 100
_EAGER_SHARE = 0.05


def _version(replica: Replica) -> Version | None:
    return replica.version.value if replica.version is not None else None


def _no_graphs(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        if not replica.is_speculative or not graphs_apply(replica):
            continue
        found = graphs_of(replica)
        if found is None:
            if replica.start is None:
                yield Unseen(
                    NO_GRAPHS.name, replica.name, "metrics do not tell of graphs; give the start-up log by --log"
                )
            elif replica.start.capture_finished is not None:
                why = (
                    "the log says that something was captured, and lacks the progress bars (standard error) that "
                    "say what"
                )
                yield Unseen(NO_GRAPHS.name, replica.name, why)
            else:
                yield Unseen(NO_GRAPHS.name, replica.name, "the part of the log where graphs are captured is missing")
        elif found.state == "none":
            yield _none_found(replica, found, _plain_evidence(case, found))


def _plain_evidence(case: Case, ours: Graphs) -> tuple[Evidence, ...]:
    """What the plain server captured, where that was more."""
    plain = graphs_of(case.plain) if case.plain is not None else None
    if plain is None or GRAPH_ORDER[plain.state] <= GRAPH_ORDER[ours.state]:
        return ()
    return tuple(Evidence(each.kind, each.where, f"the plain server: {each.text}") for each in plain.evidence[-1:])


def _none_found(replica: Replica, found: Graphs, plain: tuple[Evidence, ...]) -> Finding:
    version = _version(replica)
    cause, fix = _cause_of_none(found, version)
    return Finding(
        code="no_cuda_graphs",
        severity="warning" if found.why in ("eager", "asked") else "problem",
        subject=replica.name,
        title="the model runs without CUDA graphs while it speculates",
        evidence=(*found.evidence, *plain, *_pace_evidence(replica)),
        cause=cause,
        cost=_EAGER_COST,
        fix=fix,
    )


def _pace_evidence(replica: Replica) -> tuple[Evidence, ...]:
    pace = replica.pace
    return () if pace is None else (Evidence("figure", replica.pace_where, pace.words),)


def _cause_of_none(found: Graphs, version: Version | None) -> tuple[str, Fix]:
    full = flags.graph_mode("FULL_AND_PIECEWISE", version)
    downgrade = found.downgrade
    if found.why == "eager":
        return "eager mode was asked for", Fix("start without eager mode", flags.NOT_EAGER)
    if found.why == "asked":
        return "the graph mode NONE was configured, or follows from the compilation mode", Fix(
            "ask for graphs", (full,)
        )
    if found.why == "only_encoder":
        cause = f"graphs were captured for the image encoder only; {flags.FINISHED_IS_NO_PROOF}"
        return cause, Fix(f"ask for decode graphs, and look for {flags.CAPTURE_BAR}", (full,))
    if downgrade is not None and found.why == "downgraded":
        if downgrade.backend is not None:
            can = f" (it captures {downgrade.support})" if downgrade.support else ""
            cause = (
                f"the attention backend {downgrade.backend}{can} cannot capture the verify step, which has several "
                "tokens "
                f"for each sequence, and the model is not split at attention, so not even its pieces are captured"
            )
            return cause, Fix(
                f"choose a backend that can; {_KEEPS_FULL}",
                (flags.attention_backend("FLASH_ATTN", version), flags.attention_backend("TRITON_ATTN", version)),
            )
        return f"the engine took the graph mode from {downgrade.before} to NONE", Fix("ask for full graphs", (full,))
    return (
        "the engine resolved the graph mode to NONE; nothing fails, and only the start-up log tells",
        Fix(
            f"ask for full graphs, and choose a backend that captures verify steps; {_KEEPS_FULL}",
            (full, flags.attention_backend("FLASH_ATTN", version)),
        ),
    )


def _partial(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        if not replica.is_speculative or not graphs_apply(replica) or replica.start is None:
            continue
        found = graphs_of(replica)
        if found is None or found.state != "piecewise" or found.best_of_version:
            continue
        asked = replica.asked.graph_mode or replica.start.told.graph_mode
        if found.downgrade is None and (asked is None or asked.value == "PIECEWISE"):
            continue  # as configured; what a plain server gets instead is another check's matter
        yield _partial_found(replica, found, _plain_evidence(case, found))


def _partial_found(replica: Replica, found: Graphs, plain: tuple[Evidence, ...]) -> Finding:
    version, downgrade = _version(replica), found.downgrade
    title = "decode steps run in pieces of CUDA graphs, attention outside of them"
    if downgrade is not None:
        title = f"the graph mode was taken from {downgrade.before} to {downgrade.after}"
    cause, cost, fix = _cause_of_partial(downgrade, version)
    evidence = (*found.evidence, *plain, *_pace_evidence(replica))
    return Finding("graph_mode_downgraded", "warning", replica.name, title, evidence, cause, cost, fix)


def _cause_of_partial(downgrade: Downgrade | None, version: Version | None) -> tuple[str, Cost, Fix]:
    if downgrade is not None and downgrade.reason == "table":
        cause = (
            "a table of gammas by batch changes the length of the verify step, and Model Runner V1 has no full "
            "graphs for that"
        )
        return cause, _TABLE_COST, Fix("use Model Runner V2, or no table", flags.RUNNER_V2)
    if downgrade is not None and downgrade.backend is not None:
        can = f" (it captures {downgrade.support})" if downgrade.support else ""
        cause = (
            f"the attention backend {downgrade.backend}{can} cannot capture the verify step of several tokens a "
            "sequence"
        )
        names = ("FLASH_ATTN", "TRITON_ATTN")
        fix = Fix(
            f"choose another backend; {_KEEPS_FULL}", tuple(flags.attention_backend(name, version) for name in names)
        )
        return cause, _PIECEWISE_COST, fix
    cause = "full graphs were asked for, and only pieces were captured"
    fix = Fix("ask for full graphs, and compare with a plain start", (flags.graph_mode("FULL_AND_PIECEWISE", version),))
    return cause, _PIECEWISE_COST, fix


def _drafter_eager(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        if replica.start is not None and (line := replica.start.drafter_eager) is not None:
            yield Finding(
                "drafter_without_graphs",
                "warning",
                replica.name,
                "the drafter runs without CUDA graphs",
                (line,),
                "the attention backend of the drafter cannot capture its passes",
                Cost("a launch-bound drafter pass on each step", "vLLM issue #54992"),
                Fix(
                    "give the drafter a backend that can",
                    flags.DRAFTER_BACKEND,
                ),
            )


def _runtime(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        start = replica.start
        if not replica.is_speculative or start is None or start.runtime_evidence is None or not graphs_apply(replica):
            continue
        whole, eager = sum(start.runtime_modes.values()), start.runtime_modes.get("NONE", 0)
        if whole < _STEPS_SEEN_LEAST or eager < _EAGER_SHARE * whole:
            continue
        yield Finding(
            "steps_outside_graphs",
            "warning",
            replica.name,
            f"{eager / whole:.0%} of the steps ran outside of CUDA graphs",
            (
                start.runtime_evidence,
                Evidence("figure", start.file, ", ".join(f"{k} {v}" for k, v in sorted(start.runtime_modes.items()))),
            ),
            "steps of more tokens than were captured, or of a length for which there is no graph; prompts count too",
            Cost("20.6 -> 104.5 ms for a step beyond the captured range", "vLLM blog 2026-08-14"),
            Fix("raise the largest captured step, or lower gamma or --max-num-seqs", flags.CAPTURE_LIMIT),
        )


NO_GRAPHS = Check("graphs", "Does the model run in CUDA graphs while it speculates?", ("no_cuda_graphs",), _no_graphs)
PARTIAL_GRAPHS = Check(
    "graph mode", "Was the graph mode taken down, and by what?", ("graph_mode_downgraded",), _partial, "log"
)
DRAFTER_EAGER = Check(
    "drafter graphs", "Does the drafter run in CUDA graphs?", ("drafter_without_graphs",), _drafter_eager, "log"
)
RUNTIME_MODES = Check(
    "steps in graphs", "Do steps run in the graphs that were captured?", ("steps_outside_graphs",), _runtime, "log"
)
