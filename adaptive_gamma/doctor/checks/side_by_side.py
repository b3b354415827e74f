"""The start of a speculative server beside that of a plain one."""

from __future__ import annotations

from collections.abc import Iterator

from adaptive_gamma.doctor.case import Case, Replica
from adaptive_gamma.doctor.checks.check import Check, Said
from adaptive_gamma.doctor.engines.vllm import flags
from adaptive_gamma.doctor.finding import Cost, Finding, Fix, Unseen
from adaptive_gamma.doctor.graphs import GRAPH_ORDER, graphs_apply, graphs_of

__all__ = ["BACKENDS", "CONTEXT", "KV_CACHE", "SIDE_BY_SIDE_GRAPHS"]

_KV_MUCH = 0.10
_KV_WORTH_A_WORD = 0.02
_KV_FULL = 0.8
_NEEDS_PLAIN = "no plain server to compare with; give one by --plain-log or --plain-url"


def _graphs(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        if not replica.is_speculative or replica.start is None or not graphs_apply(replica):
            continue
        if case.plain is None or case.plain.start is None:
            yield Unseen(
                SIDE_BY_SIDE_GRAPHS.name, replica.name, "no plain start-up log to compare with; give one by --plain-log"
            )
            continue
        ours, plain = graphs_of(replica), graphs_of(case.plain)
        if ours is None or plain is None or GRAPH_ORDER[ours.state] >= GRAPH_ORDER[plain.state]:
            continue
        if ours.state == "none" or ours.downgrade is not None:
            continue  # said already, with the plain server's line as evidence
        version = replica.version.value if replica.version is not None else None
        yield Finding(
            "graphs_lost_to_speculation",
            "warning",
            replica.name,
            f"the plain server captures {_words(plain.state)}, the speculative one {_words(ours.state)}",
            (*plain.evidence[-1:], *ours.evidence[-1:]),
            "with speculation the attention backend is asked for graphs of several tokens a sequence; where it has "
            "none the "
            "engine goes without, and says so in its start-up log only",
            Cost(
                "measured: 165 ms a step without graphs, 108 with pieces, against 38 of the plain server with full "
                "ones",
                "field note, July 2026",
            ),
            Fix(
                "choose an attention backend that captures verify steps",
                (flags.attention_backend("FLASH_ATTN", version), flags.attention_backend("TRITON_ATTN", version)),
            ),
        )


def _words(state: str) -> str:
    return {"full": "full graphs", "piecewise": "pieces", "none": "none"}[state]


def _kv_cache(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        if not replica.is_speculative:
            continue
        ours = replica.kv_tokens
        if ours is None:
            continue
        plain = case.plain.kv_tokens if case.plain is not None else None
        if plain is None or case.plain is None:
            yield Unseen(KV_CACHE.name, replica.name, _NEEDS_PLAIN)
            continue
        if not _same_rank_count(replica, case.plain):
            yield Unseen(KV_CACHE.name, replica.name, "the two servers have different numbers of data-parallel ranks")
            continue
        lost = 1.0 - ours.value / plain.value
        if lost < _KV_WORTH_A_WORD:
            continue
        usage = replica.server.last.kv_usage if replica.server is not None and replica.server.last is not None else None
        tight = usage is not None and usage >= _KV_FULL
        yield Finding(
            "kv_lost_to_drafter",
            "warning" if lost >= _KV_MUCH or tight else "note",
            replica.name,
            f"{lost:.1%} of the KV cache is the drafter's: {ours.value:,} tokens instead of {plain.value:,}",
            (ours.evidence, plain.evidence),
            "the drafter's weights and its own KV cache take memory, with gamma 0 too"
            + (f"; the cache is {usage:.0%} full" if tight else ""),
            Cost(
                f"{plain.value - ours.value:,} tokens of context fewer at once; elsewhere 15,025 tokens (10.6 %) "
                "were measured",
                "here; vLLM PR #51575",
            ),
            Fix(
                "give the server more memory where there is some, or send long contexts to a plain replica",
                flags.MEMORY,
            ),
        )


def _same_rank_count(ours: Replica, plain: Replica) -> bool:
    one = ours.data_parallel.value if ours.data_parallel is not None else 1
    other = plain.data_parallel.value if plain.data_parallel is not None else 1
    return one == other


def _context(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        if not replica.is_speculative:
            continue
        ours = replica.max_model_len
        plain = case.plain.max_model_len if case.plain is not None else None
        cut = replica.start.context_cut if replica.start is not None else None
        if cut is not None:
            evidence = (cut.evidence, *(() if plain is None else (plain.evidence,)))
            shorter, longer = cut.value
        elif ours is not None and plain is not None and ours.value < plain.value:
            evidence, shorter, longer = (ours.evidence, plain.evidence), ours.value, plain.value
        else:
            continue
        yield Finding(
            "context_cut_by_drafter",
            "warning",
            replica.name,
            f"the speculative server takes {shorter:,} tokens of context instead of {longer:,}",
            evidence,
            "the drafter's context is shorter than its target's"
            if cut is not None
            else "the two servers differ in max_model_len",
            Cost("requests beyond it are refused", "here"),
            Fix(
                "use a drafter with the target's context, or send long requests to a plain replica",
                flags.CONTEXT,
            ),
        )


def _backends(case: Case) -> Iterator[Said]:
    if case.plain is None or case.plain.start is None or case.plain.start.attention_backend is None:
        return
    plain = case.plain.start.attention_backend
    for replica in case.replicas:
        ours = replica.start.attention_backend if replica.start is not None else None
        if not replica.is_speculative or ours is None or ours.value == plain.value:
            continue
        version = replica.version.value if replica.version is not None else None
        yield Finding(
            "attention_backends_differ",
            "warning",
            replica.name,
            f"the speculative server attends by {ours.value}, the plain one by {plain.value}",
            (ours.evidence, plain.evidence),
            "the two do not differ in speculation alone, so the difference of their speeds is not that of speculation",
            None,
            Fix("start both with the same backend", (flags.attention_backend(plain.value, version),)),
        )


SIDE_BY_SIDE_GRAPHS = Check(
    "graphs beside plain",
    "Does the plain server capture what the speculative one does not?",
    ("graphs_lost_to_speculation",),
    _graphs,
    "plain",
)
KV_CACHE = Check("KV cache", "How much of the KV cache is the drafter's?", ("kv_lost_to_drafter",), _kv_cache, "plain")
CONTEXT = Check("context", "Does the drafter cut the context?", ("context_cut_by_drafter",), _context)
BACKENDS = Check(
    "backends", "Do both servers attend by the same backend?", ("attention_backends_differ",), _backends, "plain"
)
