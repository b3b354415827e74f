"""How each unit of a plan is done.

A unit is a plain tuple and its result plain data, so that units run in processes of their own. The same unit gives the
same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from adaptive_gamma.policy import Policy, build_policy, family_named, load_policy
from adaptive_gamma.roofline import AcceptanceCurve
from adaptive_gamma.routing import GammaRules
from adaptive_gamma.simulation.control import (
    CONTROL,
    ORACLE,
    Contestant,
    ControlRules,
    contestants,
    control_session,
    fall_of_acceptance,
    hold,
    load_about_an_edge,
    mean_context,
    policy_with_an_edge,
    pools,
    queue_of_requests,
    recovery_from_counters,
    start_gamma,
    swinging,
)
from adaptive_gamma.simulation.replay import (
    ClassedTrace,
    PolicyRun,
    ReplicaPlan,
    Workload,
    World,
    merge,
    policy_figures,
    read_trace,
    synthetic_trace,
)
from adaptive_gamma.simulation.replay.run import run_session

from .plan import PARTS, ROOT, TraceCase, Unit

__all__ = ["BELIEVED", "LATER_S", "MARGINS", "POLICY", "REPLICAS", "SEQUENCES", "TRUTH", "policy", "work"]

POLICY = "h200-llama3-70b-fp8"
REPLICAS = 4
SEQUENCES = 64
"""``max_num_seqs``: the KV cache of that machine holds some 90 sequences of 2,048 tokens, and a batch of 64 stays
within the captured graphs up to gamma 7."""
MARGINS = (0.05, 0.02, 0.01)
TRUTH = {"structured": (0.86, 0.84), "chat": (0.70, 0.62), "unsure": (0.55, 0.48)}
"""Acceptance of three classes, first position and plateau, that counters are to tell apart."""
BELIEVED = (0.74, 0.70)
"""What is believed of each of them beforehand."""
LATER_S = 120.0
"""From when on latency is looked at without the start."""
_POSITIONS = 64
_WARMUP_SHARE = 0.375


def work(unit: Unit) -> Any:
    """Do a unit."""
    kind, *rest = unit
    return _KINDS[kind](*rest)


@cache
def policy(family: str | None = None) -> Policy:
    """The policy of the fleet; with a family, of the same machine and model with a drafter of that family."""
    file = load_policy(ROOT / "policies" / f"{POLICY}.yaml")
    if family is None:
        return file
    drafter = family_named(family)
    if drafter is None:
        raise LookupError(f"no drafter family {family!r}")
    inputs = file.inputs.model_copy(update={"drafter": drafter.drafter, "classes": drafter.classes()})
    return build_policy(inputs, name=f"{file.name}-{family}")


def _workload(case: TraceCase, seed: int) -> Workload:
    traces = []
    for source in case.sources:
        trace = synthetic_trace(source.shape, seed) if source.file is None else read_trace(source.file)
        traces.append(ClassedTrace(trace, source.request_class))
    if not traces:
        traces = [
            ClassedTrace(swinging(synthetic_trace("conversation", 2 * seed + i), 1200.0, 0.8), request_class)
            for i, request_class in enumerate(("structured", "chat"))
        ]
    return merge(traces, policy().classes, scale=case.scale, duration_s=case.duration_s)


def _world(workload: Workload, seed: int, truth: tuple[float, float] | None = None, family: str | None = None) -> World:
    true: Mapping[str, list[float]] = {}
    if truth is not None:
        survival = AcceptanceCurve.two_parameter(*truth).unconditional(_POSITIONS).tolist()
        true = dict.fromkeys(policy().classes, survival)
    plans = [ReplicaPlan("spec", True, policy(family).max_gamma, SEQUENCES)]
    return World(workload, policy(family), plans, seed, true)


def _field(family: str | None = None) -> list[Contestant]:
    return contestants(policy(family), REPLICAS, SEQUENCES)


def _trace(case: TraceCase, seed: int, part: int) -> list[dict[str, Any]]:
    """Figures of a third of the contestants; those that no claim is about run with the first of several seeds only."""
    workload = _workload(case, seed)
    world = _world(workload, seed, case.truth, case.family)
    rows = []
    for place, contestant in enumerate(_field(case.family)):
        if place % PARTS != part or (contestant.aside and (seed != case.seeds[0] or len(case.seeds) == 1)):
            continue
        session, loop = contestant.start(world)
        run = run_session(session, contestant.name, contestant.meaning)
        figures = policy_figures(run, workload)
        rows.append(
            {
                "place": place,
                "name": contestant.name,
                "seed": seed,
                "latency_s": figures["mean_latency_s"],
                "later_s": _mean_latency_later(run, workload),
                "p99_s": figures["p99_latency_s"],
                "tpot_ms": figures["mean_tpot_ms"],
                "tokens_per_second": figures["tokens_per_second"],
                "gamma": figures["mean_gamma"],
                "batch": figures["mean_batch"],
                "busy": figures["gpu_busy_share"],
                "changes": None if loop is None else len(loop.changes),
                "rebuilds": None if loop is None else loop.in_use.rebuilds,
                "requests": len(workload),
                "context": mean_context(workload),
            }
        )
    return rows


def _mean_latency_later(run: PolicyRun, workload: Workload) -> float:
    """Of the requests after the first minutes, in which a gamma that nobody chose is still in force; all, in short
    runs."""
    arrival, finished = np.asarray(workload.arrival_s), np.asarray(run.log.finished_s)
    later = arrival >= LATER_S
    return float((finished - arrival)[later if later.any() else slice(None)].mean())


def _held(load: int, seed: int, seconds: float) -> dict[str, float]:
    """Tokens a second of each contestant that a held load can be put on."""
    warmup = seconds * _WARMUP_SHARE
    shares = [("structured", 0.5), ("chat", 0.5)]
    workload = queue_of_requests(shares, policy().classes, int(seconds * REPLICAS * 10), seed)
    world = _world(workload, seed)
    rates = {}
    for contestant in _field():
        if "mixed" in contestant.name or (contestant.aside and contestant.name != "plain"):
            continue
        session, _ = contestant.start(world)
        rates[contestant.name] = hold(session, lambda now: load * REPLICAS, seconds, warmup).tokens_per_second
    return rates


def _margin(seed: int, scale: float, seconds: float) -> dict[str, float]:
    """Mean latency of the oracle and of the loop with one gamma by margin, on a trace that nothing else is run on."""
    workload = _workload(TraceCase("margin", "", "", scale=scale, duration_s=seconds), seed)
    world = _world(workload, seed)
    latencies = {}
    engines = pools(start_gamma(policy()), REPLICAS, 0, SEQUENCES)
    for margin in MARGINS:
        rules = ControlRules(schedules=False, gamma=GammaRules(min_gain=margin), learn=False)
        session, _ = control_session(world, policy(), engines, rules)
        latencies[f"{margin:g}"] = policy_figures(run_session(session, "", ""), workload)["mean_latency_s"]
    oracle = next(each for each in _field() if each.name == ORACLE)
    session, _ = oracle.start(world)
    latencies[ORACLE] = policy_figures(run_session(session, "", ""), workload)["mean_latency_s"]
    return latencies


def _fall(seed: int, set_gamma: bool) -> dict[str, Any]:
    fall = fall_of_acceptance(policy(), "structured", "chat", set_gamma=set_gamma, seed=seed)
    return {
        "learned_10": fall.learned_at(10.0),
        "learned_30": fall.learned_at(30.0),
        "settled_s": fall.settled_after(0.05),
        "after": fall.after,
        "share_before": fall.share_before,
        "share_after": fall.share_after,
        "other_before": fall.other_before,
        "other_after": fall.other_after,
        "changes": [str(change) for change in fall.changes],
    }


def _gamma_edge(seed: int, seconds: float) -> dict[str, Any]:
    """The table of chat at 2,048 tokens has an edge between 31 and 33; what the loop does there by margin."""
    edge = next(batch for batch in range(32, 34) if _best(batch) != _best(batch - 1))
    swings = {
        schedules: {
            margin: load_about_an_edge(
                policy(),
                "chat",
                pools(start_gamma(policy()), 1, 0, SEQUENCES),
                31,
                33,
                rules=ControlRules(schedules=schedules, gamma=GammaRules(min_gain=margin)),
                seed=seed,
                seconds=seconds,
            )
            for margin in (*MARGINS, 0.0001)
        }
        for schedules in (True, False)
    }
    return {
        "edge": edge,
        "below": _best(edge - 1),
        "above": _best(edge),
        "seconds": seconds,
        "most": {
            schedules: {margin: swing.most_gamma_changes_a_minute for margin, swing in by_margin.items()}
            for schedules, by_margin in swings.items()
        },
        "changes": {
            schedules: {margin: [str(change) for change in swing.gammas] for margin, swing in by_margin.items()}
            for schedules, by_margin in swings.items()
        },
    }


def _best(batch: int) -> int:
    return policy().best_gamma("chat", batch, 2048)


def _pool_edge(seed: int, seconds: float) -> dict[str, Any]:
    """A speculative replica that pays up to 32 sequences beside a plain one, 31 or 33 requests open for each."""
    gamma = start_gamma(policy())
    made = policy_with_an_edge(policy(), "chat", gamma, 32)
    found: dict[str, Any] = {"gamma": gamma, "seconds": seconds}
    for name, rules in (("routing only", ControlRules(set_gamma=False)), (CONTROL, ControlRules())):
        swing = load_about_an_edge(
            made, "chat", pools(gamma, 1, 1, SEQUENCES), 62, 66, rules=rules, seed=seed, seconds=seconds
        )
        found[name] = {
            "switches": swing.most_pool_switches_a_minute,
            "least": min(swing.share),
            "most": max(swing.share),
            "low": swing.share_low,
            "high": swing.share_high,
            "changes": [str(change) for change in swing.gammas],
            "most_gamma": swing.most_gamma_changes_a_minute,
        }
    return found


def _recovery(seed: int) -> list[dict[str, Any]]:
    truth = {name: AcceptanceCurve.two_parameter(*curve) for name, curve in TRUTH.items()}
    found = recovery_from_counters(policy(), truth, AcceptanceCurve.two_parameter(*BELIEVED), seed=seed)
    return [
        {
            "name": each.request_class,
            "true": each.true_tokens,
            "believed": each.believed_tokens,
            "learned": each.learned_tokens,
            "error": each.error,
            "inferred": each.inferred,
        }
        for each in found
    ]


_KINDS: Mapping[str, Any] = {
    "trace": _trace,
    "held": _held,
    "margin": _margin,
    "fall": _fall,
    "gamma edge": _gamma_edge,
    "pool edge": _pool_edge,
    "recovery": _recovery,
}
