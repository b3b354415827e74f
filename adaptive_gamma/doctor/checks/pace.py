"""Steps that take longer than drafts explain, and speculation that loses now."""

from __future__ import annotations

from collections.abc import Iterator

from adaptive_gamma.doctor.case import Case, Replica
from adaptive_gamma.doctor.checks.check import Check, Said
from adaptive_gamma.doctor.cost import Pace, explained_step_ratio
from adaptive_gamma.doctor.engines.vllm import flags
from adaptive_gamma.doctor.finding import Cost, Evidence, Finding, Fix, Unseen
from adaptive_gamma.doctor.graphs import graphs_of

__all__ = ["LOSING", "NEVER_DRAFTS", "STEP_TIME"]

_UNEXPLAINED = 1.4
"""How often the largest explained ratio a step must take before it is said."""
_SAME_LOAD = 1.25
_LOSS_BEYOND_NOISE = 0.03
_NEVER_LEAST_TOKENS = 2000.0
_NO_PLAIN = "needs a plain server's step time; give one by --plain-url or --plain-log"
_TOO_LITTLE = "too little was decoded to take a mean of (100 steps of sequences)"


def _step_time(case: Case) -> Iterator[Said]:
    for replica, compared in _speculative(case, STEP_TIME.name):
        if isinstance(compared, Unseen):
            yield compared
            continue
        ours, plain, other = compared
        gamma, passes = replica.gamma, replica.passes
        if gamma is None or passes is None:
            yield Unseen(STEP_TIME.name, replica.name, "gamma is not known")
            continue
        ratio = ours.step_s / plain.step_s
        most = explained_step_ratio(gamma.value, ours.batch or 1.0, plain.batch or 1.0, passes)
        if ratio <= _UNEXPLAINED * most:
            continue
        graphs = graphs_of(replica)
        said = graphs is not None and graphs.state != "full"
        yield Finding(
            "step_time_near_eager",
            "problem",
            replica.name,
            f"a speculative step takes {ratio:.1f} plain ones: {ours.step_s * 1e3:.4g} ms against "
            f"{plain.step_s * 1e3:.4g} ms",
            (
                Evidence("figure", replica.pace_where, ours.words),
                Evidence("figure", other.pace_where, plain.words),
                Evidence("figure", "here", f"gamma {gamma.value} explains at most {most:.2f} plain steps"),
                *(graphs.evidence[-1:] if graphs is not None and said else ()),
            ),
            _cause(replica, said),
            Cost(f"{(ours.step_s - most * plain.step_s) * 1e3:.4g} ms of each step, at the least", "here"),
            Fix("as the finding on graphs says" if said else flags.READ_THE_LOG),
        )


def _cause(replica: Replica, said: bool) -> str:
    if said:
        return (
            "the log says that decode steps are not captured whole: launching them one kernel at a time is what "
            "takes this long"
        )
    likely = (
        "steps as long as this are those of a model that runs without CUDA graphs, or with its attention outside "
        "of them"
    )
    if replica.start is not None and graphs_of(replica) is not None:
        likely = (
            "the log says that full graphs were captured; steps may leave them (see --cudagraph-metrics), or wait "
            "for the host"
        )
    return likely


def _speculative(case: Case, check: str) -> Iterator[tuple[Replica, tuple[Pace, Pace, Replica] | Unseen]]:
    """Each replica that drafts, with what its pace can be compared with."""
    for replica in case.replicas:
        if replica.is_speculative:
            yield replica, _compared(case, replica, check)


def _compared(case: Case, replica: Replica, check: str) -> tuple[Pace, Pace, Replica] | Unseen:
    """The paces of the replica and of the plain server, and whose the second is."""
    ours = replica.pace
    if case.plain is None:
        return Unseen(check, replica.name, _NO_PLAIN)
    plain = case.plain.pace
    if ours is None:
        return Unseen(check, replica.name, _missing(replica))
    if plain is None:
        return Unseen(check, case.plain.name, _missing(case.plain))
    return ours, plain, case.plain


def _missing(replica: Replica) -> str:
    if replica.server is not None and replica.server.last is not None:
        return (
            _TOO_LITTLE
            if replica.server.last.inter_token_latency is not None
            else "the engine does not tell its step time"
        )
    if replica.start is not None:
        return (
            "the log tells of no steady load (periodic lines on throughput, or "
            "--enable-logging-iteration-details), or its "
            "drafts are not told"
        )
    return "nothing was read that tells of steps"


def _losing(case: Case) -> Iterator[Said]:
    for replica, compared in _speculative(case, LOSING.name):
        if isinstance(compared, Unseen):
            yield compared
            continue
        ours, plain, other = compared
        our_rate, plain_rate = ours.tokens_per_s, plain.tokens_per_s
        if our_rate is None or plain_rate is None:
            yield Unseen(LOSING.name, replica.name, "tokens of a step are not known")
            continue
        ratio = our_rate / plain_rate
        if ratio >= 1.0 - _LOSS_BEYOND_NOISE:
            continue
        # A plain server that carries more is slower for it: beating it then proves nothing, losing to it does.
        if ours.batch is not None and plain.batch is not None and ours.batch > _SAME_LOAD * plain.batch:
            why = f"the servers carry different loads ({ours.batch:.3g} against {plain.batch:.3g} in a step)"
            yield Unseen(LOSING.name, replica.name, why)
            continue
        yield _losing_found(replica, ours, plain, other, ratio)


def _losing_found(replica: Replica, ours: Pace, plain: Pace, other: Replica, ratio: float) -> Finding:
    steps, tokens = ours.step_s / plain.step_s, ours.tokens_per_step or 1.0
    needed = steps * (plain.tokens_per_step or 1.0)
    return Finding(
        "speculation_losing",
        "problem",
        replica.name,
        f"speculation is slower than none: {ours.tokens_per_s:.4g} against {plain.tokens_per_s:.4g} tokens/s for "
        "each request",
        (Evidence("figure", replica.pace_where, ours.words), Evidence("figure", other.pace_where, plain.words)),
        f"a step takes {steps:.2f} plain ones and would have to give {needed:.2f} tokens; it gives {tokens:.2f}",
        Cost(f"{1 - ratio:.0%} of a request's speed, as the two pools are used now (their prompts may differ)", "here"),
        Fix(
            "send this traffic to plain replicas (adaptive-gamma serve does, by class and load), or draft fewer tokens",
            flags.NO_DRAFTER,
        ),
    )


def _never_drafts(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        last = replica.server.last if replica.server is not None else None
        if not replica.is_speculative or last is None or last.speculation is None or last.generation_tokens is None:
            continue
        if last.speculation.draft_tokens > 0 or last.generation_tokens < _NEVER_LEAST_TOKENS or replica.server is None:
            continue
        yield Finding(
            "never_drafts",
            "warning",
            replica.name,
            f"a drafter is loaded, and none of {last.generation_tokens:,.0f} tokens was drafted",
            (Evidence("metric", replica.server.metrics, "0 draft tokens since its start"),),
            "a table with K=0 at this load, an n-gram drafter that finds no match, or requests that are not "
            "drafted for",
            Cost(
                "a step with gamma 0 takes 6.6 % (2 requests) to 21.6 % (189) longer than a plain server's",
                "vLLM issue #49548",
            ),
            Fix("use a plain server for this load", flags.NO_DRAFTER),
        )


STEP_TIME = Check(
    "step time",
    "Does a speculative step take longer than its drafts explain?",
    ("step_time_near_eager",),
    _step_time,
    "plain",
)
LOSING = Check("losing", "Is speculation slower than none right now?", ("speculation_losing",), _losing, "plain")
NEVER_DRAFTS = Check("drafting", "Does a loaded drafter ever draft?", ("never_drafts",), _never_drafts)
