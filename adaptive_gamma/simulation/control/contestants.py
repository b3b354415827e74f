"""The ways of running a fleet that the closed loop is compared with, and the loop itself.

All get as many replicas with the same ``max_num_seqs``, the same requests and the same luck.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from adaptive_gamma.policy import Policy
from adaptive_gamma.policy.export import ScheduleOptions, ServerOptions, export_policy
from adaptive_gamma.routing import GammaSchedule, ReplicaState, RequestNeeds, least_loaded
from adaptive_gamma.simulation.control.loop import ControlLoop, ControlRules, control_session
from adaptive_gamma.simulation.control.sglang import AdaptiveTable
from adaptive_gamma.simulation.replay.fleet_file import DEFAULT_MAX_NUM_SEQS
from adaptive_gamma.simulation.replay.gamma_choice import ConstantGamma, GammaChoice, ScheduledGamma
from adaptive_gamma.simulation.replay.policies import Engine
from adaptive_gamma.simulation.replay.pricing import PLAIN
from adaptive_gamma.simulation.replay.run import World
from adaptive_gamma.simulation.replay.session import Session
from adaptive_gamma.simulation.replay.workload import Workload

__all__ = [
    "CONTROL",
    "ONE_GAMMA",
    "ORACLE",
    "Contestant",
    "class_mix_of",
    "contestants",
    "mean_context",
    "pools",
    "start_gamma",
    "vllm_schedule",
]

CONTROL = "control"
ONE_GAMMA = f"{CONTROL}, one gamma"
"""The loop where engines take one gamma for all batches."""
ORACLE = "oracle"

_VLLM = "0.33"
"""The version whose rules the table keeps."""

_Start: TypeAlias = Callable[[World], tuple[Session, ControlLoop | None]]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way of running a fleet."""

    name: str
    meaning: str
    start: _Start
    """A session of a world that has not moved yet, and the loop around it if there is one."""
    aside: bool = False
    """Whether it only shows what a part of the loop is worth; no claim is about it."""


def contestants(policy: Policy, count: int, max_num_seqs: int = DEFAULT_MAX_NUM_SEQS) -> list[Contestant]:
    """All of them, in the order they are shown.

    Args:
        policy: what loop, tables and routing are made from.
        count: replicas.
        max_num_seqs: most sequences in a replica.
    """
    started = start_gamma(policy)
    whole = pools(started, count, 0, max_num_seqs)
    mixed = pools(started, count - count // 2, count // 2, max_num_seqs)
    loop = f"{count} speculative replicas started with gamma {started}"

    def closed(engines: Sequence[Engine], rules: ControlRules) -> _Start:
        return lambda world: control_session(world, policy, engines, rules)

    def schedule(allow_zero: bool) -> _Start:
        def start(world: World) -> tuple[Session, None]:
            chosen = ScheduledGamma(vllm_schedule(policy, world, max_num_seqs, allow_zero))
            return _least_loaded(world, _choosing(whole, lambda: chosen))

        return start

    return [
        Contestant(
            CONTROL,
            f"{loop}; schedules set while they run, as vLLM with the plugin takes them, acceptance learned, requests"
            " routed by `decide`",
            closed(whole, ControlRules()),
        ),
        Contestant(
            ONE_GAMMA,
            "the same on engines that take one gamma for all batches",
            closed(whole, ControlRules(schedules=False)),
        ),
        Contestant(
            f"{CONTROL}, no routing",
            "the same as control, but each request goes to the least loaded replica",
            closed(whole, ControlRules(route=False)),
            aside=True,
        ),
        Contestant(
            f"{ONE_GAMMA}, no routing",
            "one gamma for all batches, and each request goes to the least loaded replica",
            closed(whole, ControlRules(schedules=False, route=False)),
            aside=True,
        ),
        Contestant(
            f"{CONTROL}, no learning",
            "the same as control, but the policy stays the file's; replicas' acceptance ratios are still seen",
            closed(whole, ControlRules(learn=False)),
            aside=True,
        ),
        *(
            Contestant(
                f"fixed-{gamma}",
                f"{count} speculative replicas with gamma {gamma} at every load, least loaded",
                _uniform(pools(gamma, count, 0, max_num_seqs)),
            )
            for gamma in range(1, policy.max_gamma + 1)
        ),
        Contestant(
            "vllm-schedule",
            "the table of num_speculative_tokens_per_batch_size that `policy export --for vllm` writes for the"
            " workload's own mix of classes and mean context, on every replica, least loaded",
            schedule(allow_zero=False),
        ),
        Contestant(
            "vllm-schedule-0",
            "the same with gamma 0 allowed in the table, where it pays the tax",
            schedule(allow_zero=True),
        ),
        Contestant(
            "sglang-adaptive",
            "SGLang's default adaptive table and its rule on every replica, least loaded; gamma 0 pays the tax",
            lambda world: _least_loaded(world, _choosing(whole, lambda: AdaptiveTable(started))),
        ),
        Contestant(
            "plain",
            f"{count} replicas without a drafter, least loaded",
            _uniform(pools(0, 0, count, max_num_seqs)),
            aside=True,
        ),
        Contestant(
            f"{CONTROL}, mixed fleet",
            f"{_mixed_text(count)} started with gamma {started}; schedules set, acceptance learned, routed by `decide`",
            closed(mixed, ControlRules()),
        ),
        Contestant(
            "routing only, mixed fleet",
            "the same mixed fleet; no gamma is set",
            closed(mixed, ControlRules(set_gamma=False)),
            aside=True,
        ),
        Contestant(
            "least-loaded, mixed fleet",
            "the same mixed fleet as it was started, each request to the replica with the fewest, whatever it drafts",
            _uniform(mixed),
        ),
        Contestant(
            ORACLE,
            f"{count} replicas, each using the gamma (0: truly plain, no tax) that gives its present batch and mix of"
            " classes the most tokens a second with the true acceptance, chosen anew whenever the batch changes,"
            " least loaded",
            lambda world: _least_loaded(world, _choosing(whole, lambda: world.oracle)),
        ),
    ]


def start_gamma(policy: Policy) -> int:
    """What a model card would advise: the largest gamma that is the policy's best for some class at some batch."""
    batches = range(1, min(policy.max_batch, DEFAULT_MAX_NUM_SEQS) + 1)
    return max(1, *(policy.best_gamma(name, batch) for name in policy.classes for batch in batches))


def class_mix_of(workload: Workload) -> dict[str, float]:
    """Shares of the output tokens by class."""
    tokens = dict.fromkeys(workload.classes, 0.0)
    for which, count in zip(workload.class_of, workload.output_tokens, strict=True):
        tokens[workload.classes[which]] += count
    return {name: each for name, each in tokens.items() if each}


def mean_context(workload: Workload) -> float:
    """Prompt and half the output, in tokens, mean over requests."""
    contexts = [p + n // 2 for p, n in zip(workload.prompt_tokens, workload.output_tokens, strict=True)]
    return sum(contexts) / len(contexts)


def vllm_schedule(policy: Policy, world: World, max_num_seqs: int, allow_zero: bool) -> GammaSchedule:
    """The table our own export writes for a workload that is known beforehand, as vLLM reads it."""
    workload = world.workload
    options = ScheduleOptions(
        mix=class_mix_of(workload),
        context_tokens=mean_context(workload),
        allow_zero=allow_zero,
        max_batch=max_num_seqs,
    )
    exported = export_policy(policy, "vllm", ServerOptions(version=_VLLM), options)
    return GammaSchedule([(int(first), int(last), int(gamma)) for first, last, gamma in exported.table])


def pools(gamma: int, speculative: int, plain: int, max_num_seqs: int = DEFAULT_MAX_NUM_SEQS) -> list[Engine]:
    """So many speculative replicas with one gamma, and so many plain ones."""
    return [
        *(Engine(f"spec-{i}", True, gamma, ConstantGamma(gamma), max_num_seqs) for i in range(speculative)),
        *(Engine(f"plain-{i}", False, 0, ConstantGamma(PLAIN), max_num_seqs) for i in range(plain)),
    ]


def _mixed_text(count: int) -> str:
    return f"{count - count // 2} speculative and {count // 2} plain replicas,"


def _choosing(engines: Sequence[Engine], choice: Callable[[], GammaChoice]) -> list[Engine]:
    """The same engines, each with a choice of its own that routing is not told of."""
    return [replace(engine, gamma=None, choice=choice()) for engine in engines]


def _uniform(engines: Sequence[Engine]) -> _Start:
    return lambda world: _least_loaded(world, engines)


def _least_loaded(world: World, engines: Sequence[Engine]) -> tuple[Session, None]:
    def route(needs: RequestNeeds, states: Sequence[ReplicaState], now: float, tie_break: float) -> tuple[str, str]:
        return least_loaded(needs, states, now=now, tie_break=tie_break).name, "least_loaded"

    return Session(world, engines, route), None
