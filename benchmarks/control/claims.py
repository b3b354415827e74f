"""The claims that the figures are held against, each met or not met; nothing is rounded before it is compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from adaptive_gamma.simulation.control import CONTROL, ORACLE, start_gamma

from .cases import TraceCase, policy
from .results import Results, Row

__all__ = ["Claim", "claims_of"]

_OF_THE_ORACLE = 0.99
_WITHIN = 0.05
_IN_S = 30.0


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim and what the figures say."""

    where: str
    text: str
    met: bool


def claims_of(results: Results) -> list[Claim]:
    """All of them, in the order of the page."""
    claims: list[Claim] = []
    for case in results.cases:
        claims += _trace(results, case)
    for load, rates in results.held.items():
        share = rates[CONTROL] / rates[ORACLE]
        text = f"at least 99 % of the oracle's tokens/s: {share:.2%}"
        claims.append(Claim(f"Held at {load} a replica", text, share >= _OF_THE_ORACLE))
    return [*claims, *_facts(results)]


def _trace(results: Results, case: TraceCase) -> Iterator[Claim]:
    loop, oracle = results.loop(case), results.oracle(case)
    share = loop["tokens_per_second"] / oracle["tokens_per_second"]
    yield Claim(case.title, f"at least 99 % of the oracle's tokens/s: {share:.2%}", share >= _OF_THE_ORACLE)
    best = min(results.fixed(case), key=lambda row: float(row["latency_s"]))
    yield _faster(case, loop, best, "better mean latency than every single fixed gamma; the best one is")
    for name in ("vllm-schedule", "vllm-schedule-0", "sglang-adaptive"):
        yield _faster(case, loop, results.row(case, name), "better mean latency than")
    started = results.row(case, f"fixed-{start_gamma(policy(case.family))}")
    yield _faster(case, loop, started, "better mean latency than least-loaded routing of the fleet as started,")
    yield _faster(
        case,
        results.row(case, f"{CONTROL}, mixed fleet"),
        results.row(case, "least-loaded, mixed fleet"),
        "on speculative and plain replicas better mean latency than",
    )


def _faster(case: TraceCase, one: Row, other: Row, words: str) -> Claim:
    mine, theirs = float(one["latency_s"]), float(other["latency_s"])
    text = f"{words} {other['name']}: {mine:.3f} s against {theirs:.3f} s ({mine / theirs - 1.0:+.1%})"
    return Claim(case.title, text, mine < theirs)


def _facts(results: Results) -> Iterator[Claim]:
    for set_gamma, falls in results.falls.items():
        how = "gammas set" if set_gamma else "routing only"
        worst = max(abs(fall["learned_30"] - fall["after"]) for fall in falls)
        yield Claim(
            f"Acceptance falls ({how})",
            f"the learned rate is within {_WITHIN:g} of the true one after {_IN_S:g} s: off by {worst:.3f} at most",
            worst <= _WITHIN,
        )
        follows = all(fall["share_after"] < fall["share_before"] for fall in falls)
        shares = ", ".join(f"{fall['share_before']:.0%} to {fall['share_after']:.0%}" for fall in falls)
        yield Claim(
            f"Acceptance falls ({how})", f"routing follows: share sent to speculative replicas {shares}", follows
        )
    most = max(results.gamma_edge["most"].values())
    yield Claim("Load about an edge", f"no more than one change of gamma a minute: {most}", most <= 1)
    for name in ("routing only", CONTROL):
        edge = results.pool_edge[name]
        yield Claim(
            f"Load about an edge ({name})",
            f"no more than one switch a minute of the pool that gets most of the class (of 10 s): {edge['switches']}",
            edge["switches"] <= 1,
        )
