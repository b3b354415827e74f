"""The claims that the figures are held against, each met or not met; nothing is rounded before it is compared.

A claim is met when it holds with every seed, not on average.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from adaptive_gamma.simulation.control import CONTROL, ONE_GAMMA, ORACLE, start_gamma

from .plan import TraceCase
from .results import Results, mean
from .work import policy

__all__ = ["Claim", "Comparison", "claims_of", "spread"]

_OF_THE_ORACLE = 0.99
_WITHIN = 0.05
_IN_S = 30.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Mean latencies of two contestants on one trace."""

    case: TraceCase
    one: str
    other: str


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim and what the figures say."""

    where: str
    text: str
    met: bool
    lost: tuple[Comparison, ...] = ()
    """Where it is not met: mean latencies that were not the lower ones."""


def claims_of(results: Results) -> list[Claim]:
    """All of them, in the order of the page."""
    claims: list[Claim] = []
    for case in results.plan.traces:
        claims += _trace(results, case)
    for load in results.plan.loads:
        claims += _held(results, load)
    return [*claims, *_facts(results)]


def spread(ratios: Sequence[float], digits: int = 1) -> str:
    """Of ratios by seed, as differences from 1: one figure, or the mean and from where to where."""
    first, *others = ratios
    if not others:
        return f"{first - 1.0:+.{digits}%}"
    middle = sum(ratios) / len(ratios) - 1.0
    return f"{middle:+.{digits}%} ({min(ratios) - 1.0:+.{digits}%} to {max(ratios) - 1.0:+.{digits}%})"


def _trace(results: Results, case: TraceCase) -> Iterator[Claim]:
    shares = results.over(case, CONTROL, ORACLE, "tokens_per_second")
    yield _of_the_oracle(case.title, shares)
    fixed = [name for name in results.names(case) if name.startswith("fixed-")]
    best = min(fixed, key=lambda name: mean(results.runs(case, name), "latency_s"))
    lost = tuple(each for name in fixed for each in _lost(results, case, CONTROL, name))
    claim = _faster(results, case, CONTROL, best, "better mean latency than every single fixed gamma; the best one is")
    yield Claim(claim.where, claim.text, not lost, lost)
    for name in ("vllm-schedule", "vllm-schedule-0", "sglang-adaptive"):
        yield _faster(results, case, CONTROL, name, "better mean latency than")
    started = f"fixed-{start_gamma(policy(case.family))}"
    yield _faster(
        results, case, CONTROL, started, "better mean latency than least-loaded routing of the fleet as started,"
    )
    yield from _one_gamma(results, case, best, started)
    yield _faster(
        results,
        case,
        f"{CONTROL}, mixed fleet",
        "least-loaded, mixed fleet",
        "on speculative and plain replicas better mean latency than",
    )


def _one_gamma(results: Results, case: TraceCase, best: str, started: str) -> Iterator[Claim]:
    """What is claimed of the loop on engines that take one gamma for all batches."""
    shares = results.over(case, ONE_GAMMA, ORACLE, "tokens_per_second")
    yield _of_the_oracle(case.title, shares, f"{ONE_GAMMA}: ")
    for name in dict.fromkeys((best, "vllm-schedule", "sglang-adaptive", started)):
        yield _faster(results, case, ONE_GAMMA, name, f"{ONE_GAMMA}: better mean latency than")


def _faster(results: Results, case: TraceCase, one: str, other: str, words: str) -> Claim:
    ratios = results.over(case, one, other, "latency_s")
    mine, theirs = (mean(results.runs(case, name), "latency_s") for name in (one, other))
    text = f"{words} {other}: {mine:.3f} s against {theirs:.3f} s, {spread(ratios, 2)}"
    lost = _lost(results, case, one, other)
    return Claim(case.title, text, not lost, lost)


def _lost(results: Results, case: TraceCase, one: str, other: str) -> tuple[Comparison, ...]:
    lower = all(ratio < 1.0 for ratio in results.over(case, one, other, "latency_s"))
    return () if lower else (Comparison(case, one, other),)


def _of_the_oracle(where: str, shares: Sequence[float], whose: str = "") -> Claim:
    text = f"{whose}at least 99 % of the oracle's tokens/s: {sum(shares) / len(shares):.2%}, {min(shares):.2%} at worst"
    return Claim(where, text, min(shares) >= _OF_THE_ORACLE)


def _held(results: Results, load: int) -> Iterator[Claim]:
    where = f"Held at {load} a replica"
    ours = results.held_shares(load, CONTROL)
    yield _of_the_oracle(where, ours)
    yield _of_the_oracle(where, results.held_shares(load, ONE_GAMMA), f"{ONE_GAMMA}: ")
    fixed = [name for name in next(iter(results.held.values())) if name.startswith("fixed-")]
    shares = {name: results.held_shares(load, name) for name in fixed}
    best = max(fixed, key=lambda name: sum(shares[name]))
    over = [mine / theirs for mine, theirs in zip(ours, shares[best], strict=True)]
    text = f"at least 99 % of the tokens/s of {best}, the best single gamma at this load: {spread(over, 2)}"
    yield Claim(where, text, min(over) >= _OF_THE_ORACLE)


def _facts(results: Results) -> Iterator[Claim]:
    for set_gamma, falls in results.falls.items():
        how = "schedules set" if set_gamma else "routing only"
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
    for schedules in (True, False):
        most = max(changes for edge in results.gamma_edges for changes in edge["most"][schedules].values())
        how = "schedules" if schedules else "one gamma"
        yield Claim(f"Load about an edge ({how})", f"no more than one change a minute: {most}", most <= 1)
    for name in ("routing only", CONTROL):
        switches = max(edge[name]["switches"] for edge in results.pool_edges)
        yield Claim(
            f"Load about an edge ({name})",
            f"no more than one switch a minute of the pool that gets most of the class (of 10 s): {switches}",
            switches <= 1,
        )
    off = max(abs(each["error"]) for classes in results.recoveries for each in classes)
    yield Claim(
        "Classes from counters",
        f"E(4) of each of three classes within {_WITHIN:.0%} from the counters of six replicas: off by {off:.1%}"
        " at most",
        off <= _WITHIN,
    )
