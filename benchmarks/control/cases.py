"""What is run: traces, held loads, the choice of the margin, and the facts of the closed loop.

Each unit of work is a plain tuple and its result plain data, so that units run in processes of their own. The same
plan gives the same results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from adaptive_gamma.policy import Policy, build_policy, family_named, load_policy
from adaptive_gamma.roofline import AcceptanceCurve
from adaptive_gamma.routing import GammaRules
from adaptive_gamma.simulation.control import (
    CHOSEN,
    CONTROL,
    ORACLE,
    Contestant,
    ControlRules,
    contestants,
    control_session,
    fall_of_acceptance,
    hold,
    load_about_an_edge,
    policy_with_an_edge,
    pools,
    queue_of_requests,
    start_gamma,
    swinging,
)
from adaptive_gamma.simulation.replay import (
    ClassedTrace,
    ReplicaPlan,
    Workload,
    World,
    merge,
    policy_figures,
    read_trace,
    synthetic_trace,
)
from adaptive_gamma.simulation.replay.run import run_session

__all__ = ["MARGINS", "POLICY", "REPLICAS", "SEQUENCES", "Plan", "TraceCase", "Unit", "full_plan", "quick_plan", "work"]

_ROOT = Path(__file__).resolve().parents[2]
POLICY = "h200-llama3-70b-fp8"
REPLICAS = 4
SEQUENCES = 64
"""``max_num_seqs``: the KV cache of that machine holds some 90 sequences of 2,048 tokens, and a batch of 64 stays
within the captured graphs up to gamma 7."""
MARGINS = (0.05, 0.02, 0.01, 0.005)
_PARTS = 3
_POSITIONS = 64
_WARMUP_S = 180.0
_HELD_S = 480.0

Unit: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TraceCase:
    """One trace to replay."""

    key: str
    title: str
    text: str
    files: tuple[tuple[str, str], ...] = ()
    """(public trace, class of its requests); none: the swinging trace, both classes."""
    scale: float = 1.0
    seed: int = 1
    duration_s: float | None = None
    truth: tuple[float, float] | None = None
    """What acceptance of every class is, first position and plateau; None: what the policy file says."""
    family: str | None = None
    """Drafter family that the policy is made for; None: that of its file."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that goes onto the page."""

    traces: tuple[TraceCase, ...]
    loads: tuple[int, ...]
    """Held loads, sequences a replica."""
    held_s: float
    tuning: tuple[tuple[int, float], ...]
    """(seed, factor on the rate) of the swinging traces on which the margin is looked at."""
    tuning_s: float
    fall_seeds: tuple[int, ...]
    edge_s: float

    def units(self) -> list[Unit]:
        """The work, longest first."""
        units: list[Unit] = [("trace", case, part) for case in self.traces for part in range(_PARTS)]
        units += [("held", load, self.held_s) for load in self.loads]
        units += [("margin", seed, scale, self.tuning_s) for seed, scale in self.tuning]
        units += [("fall", seed, set_gamma) for seed in self.fall_seeds for set_gamma in (False, True)]
        return [*units, ("gamma edge", self.edge_s), ("pool edge", self.edge_s)]


_SWING_TEXT = (
    "two synthetic conversation traces, structured and chat, together {rate:.1f} requests/s on average; the rate swings"
    " between 0.2 and 1.8 of that once in 20 minutes, 40 minutes long"
)


def full_plan() -> Plan:
    """What ``make control`` runs."""
    swing = _SWING_TEXT.format(rate=11.1)
    cases = [
        TraceCase("swing", "Load-swinging trace", swing, duration_s=2400.0),
        TraceCase(
            "swing-other-drafter",
            "Load-swinging trace, another drafter than the file's",
            "the same; the policy file believes an EAGLE-3 drafter, but acceptance is 0.64 at the first position and"
            " 0.65 at the others for every class, as measured of EAGLE-1 drafters: nothing in the file says so",
            duration_s=2400.0,
            truth=(0.64, 0.65),
        ),
    ]
    cases.append(
        TraceCase(
            "swing-ngram",
            "Load-swinging trace, n-gram drafter",
            "the same requests on the same machines with an n-gram drafter, whose drafts cost nearly nothing and are"
            " seldom accepted: under load chat is better off without, and so gamma 0 and plain replicas come in",
            duration_s=2400.0,
            family="ngram",
        )
    )
    for scale in (1.0, 2.0):
        for name, title, request_class in (("conv", "conversation", "chat"), ("code", "code", "structured")):
            rate = {"conv": 5.53, "code": 2.57}[name] * scale
            cases.append(
                TraceCase(
                    f"{name}-{scale:g}",
                    f"Azure {title} trace, {scale:g} times its rate",
                    f"all of AzureLLMInferenceTrace_{name}.csv as class {request_class}, {rate:.1f} requests/s",
                    ((name, request_class),),
                    scale,
                )
            )
    return Plan(
        tuple(cases),
        (1, 2, 4, 8, 16, 32, 64),
        _HELD_S,
        ((101, 0.8), (102, 0.8), (101, 1.1), (102, 1.1)),
        2400.0,
        (1, 2, 3),
        600.0,
    )


def quick_plan() -> Plan:
    """Seconds of work, for a look and for tests; its figures mean nothing."""
    return Plan(
        (TraceCase("swing", "Load-swinging trace", "a minute and a half of it", duration_s=90.0),),
        (2,),
        20.0,
        ((101, 0.8),),
        60.0,
        (1,),
        20.0,
    )


def trace_file(name: str) -> Path | None:
    """A public trace beside the checkout, or a folder above where the checkout is a worktree; None where absent."""
    for folder in list(_ROOT.parents)[:2]:
        path = folder / "shared" / "data" / "traces" / f"AzureLLMInferenceTrace_{name}.csv"
        if path.exists():
            return path
    return None


def absent(case: TraceCase) -> bool:
    """Whether a public trace that the case needs is not here."""
    return any(trace_file(name) is None for name, _ in case.files)


def work(unit: Unit) -> Any:
    """Do a unit."""
    kind, *rest = unit
    return _KINDS[kind](*rest)


@cache
def policy(family: str | None = None) -> Policy:
    """The policy of the fleet; with a family, of the same machine and model with a drafter of that family."""
    file = load_policy(_ROOT / "policies" / f"{POLICY}.yaml")
    if family is None:
        return file
    drafter = family_named(family)
    inputs = file.inputs.model_copy(update={"drafter": drafter.drafter, "classes": drafter.classes()})
    return build_policy(inputs, name=f"{file.name}-{family}")


def _workload(case: TraceCase) -> Workload:
    traces = []
    for name, request_class in case.files:
        path = trace_file(name)
        if path is None:
            raise FileNotFoundError(f"the public trace {name} is not here")
        traces.append(ClassedTrace(read_trace(path), request_class))
    if not traces:
        traces = [
            ClassedTrace(swinging(synthetic_trace("conversation", 2 * case.seed + i), 1200.0, 0.8), request_class)
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


def _trace(case: TraceCase, part: int) -> list[dict[str, Any]]:
    """Figures of a third of the contestants."""
    workload = _workload(case)
    world = _world(workload, case.seed, case.truth, case.family)
    rows = []
    for place, contestant in enumerate(_field(case.family)):
        if place % _PARTS != part:
            continue
        session, loop = contestant.start(world)
        run = run_session(session, contestant.name, contestant.meaning)
        figures = policy_figures(run, workload)
        rows.append(
            {
                "place": place,
                "name": contestant.name,
                "latency_s": figures["mean_latency_s"],
                "p99_s": figures["p99_latency_s"],
                "tokens_per_second": figures["tokens_per_second"],
                "gamma": figures["mean_gamma"],
                "batch": figures["mean_batch"],
                "changes": None if loop is None else len(loop.changes),
                "rebuilds": None if loop is None else loop.in_use.rebuilds,
                "requests": len(workload),
            }
        )
    return rows


def _held(load: int, seconds: float) -> dict[str, float]:
    """Tokens a second of each contestant that a held load can be put on."""
    warmup = seconds * _WARMUP_S / _HELD_S
    shares = [("structured", 0.5), ("chat", 0.5)]
    workload = queue_of_requests(shares, policy().classes, int(seconds * REPLICAS * 10), 11)
    world = _world(workload, 11)
    rates = {}
    for contestant in _field():
        if "mixed" in contestant.name:
            continue
        session, _ = contestant.start(world)
        rates[contestant.name] = hold(session, lambda now: load * REPLICAS, seconds, warmup).tokens_per_second
    return rates


def _margin(seed: int, scale: float, seconds: float) -> dict[str, float]:
    """Mean latency of the oracle and of the loop by margin, on a trace that nothing else is run on."""
    case = TraceCase("margin", "", "", scale=scale, seed=seed, duration_s=seconds)
    workload = _workload(case)
    world = _world(workload, seed)
    latencies = {}
    engines = pools(start_gamma(policy()), REPLICAS, 0, SEQUENCES)
    for margin in MARGINS:
        rules = ControlRules(gamma=GammaRules(min_gain=margin), learn=False)
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
        "changes": [f"{c.before} to {c.gamma} at {c.at:.0f} s" for c in fall.changes],
    }


def _gamma_edge(seconds: float) -> dict[str, Any]:
    """The table of chat at 2,048 tokens has an edge between 31 and 33; what the loop does there by margin."""
    edge = next(batch for batch in range(32, 34) if _best(batch) != _best(batch - 1))
    swings = {
        margin: load_about_an_edge(
            policy(),
            "chat",
            pools(start_gamma(policy()), 1, 0, SEQUENCES),
            31,
            33,
            rules=ControlRules(gamma=GammaRules(min_gain=margin)),
            seed=5,
            seconds=seconds,
        )
        for margin in (*MARGINS, 0.0001)
    }
    return {
        "edge": edge,
        "below": _best(edge - 1),
        "above": _best(edge),
        "seconds": seconds,
        "most": {margin: swing.most_gamma_changes_a_minute for margin, swing in swings.items()},
        "changes": {
            margin: [f"{c.before} to {c.gamma} at {c.at:.0f} s" for c in swing.gammas]
            for margin, swing in swings.items()
        },
    }


def _best(batch: int) -> int:
    return policy().best_gamma("chat", batch, 2048)


def _pool_edge(seconds: float) -> dict[str, Any]:
    """A speculative replica that pays up to 32 sequences beside a plain one, 31 or 33 requests open for each."""
    gamma = start_gamma(policy())
    made = policy_with_an_edge(policy(), "chat", gamma, 32)
    found: dict[str, Any] = {"gamma": gamma, "seconds": seconds}
    for name, rules in (("routing only", ControlRules(set_gamma=False)), (CONTROL, CHOSEN)):
        swing = load_about_an_edge(
            made, "chat", pools(gamma, 1, 1, SEQUENCES), 62, 66, rules=rules, seed=5, seconds=seconds
        )
        found[name] = {
            "switches": swing.most_pool_switches_a_minute,
            "least": min(swing.share),
            "most": max(swing.share),
            "low": swing.share_low,
            "high": swing.share_high,
            "changes": [f"{c.before} to {c.gamma} at {c.at:.0f} s" for c in swing.gammas],
            "most_gamma": swing.most_gamma_changes_a_minute,
        }
    return found


_KINDS: Mapping[str, Any] = {
    "trace": _trace,
    "held": _held,
    "margin": _margin,
    "fall": _fall,
    "gamma edge": _gamma_edge,
    "pool edge": _pool_edge,
}
