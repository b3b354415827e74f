"""Steps of more tokens than the largest captured one."""

from __future__ import annotations

from collections.abc import Iterator

from adaptive_gamma.doctor.case import Case, Replica
from adaptive_gamma.doctor.checks.check import Check, Said
from adaptive_gamma.doctor.engines.vllm import flags
from adaptive_gamma.doctor.evidence import Fact
from adaptive_gamma.doctor.finding import Cost, Evidence, Finding, Fix, Unseen
from adaptive_gamma.doctor.graphs import graphs_apply, graphs_of
from adaptive_gamma.roofline import largest_captured_gamma

__all__ = ["CAPTURE_LIMIT"]

_CLIFF = Cost(
    "20.6 -> 104.5 ms from 1,025 to 1,537 tokens where 1,024 are captured; 133.3 -> 25.3 tokens/s for 6 x 7 tokens "
    "where 40 are",
    "vLLM blog 2026-08-14; vLLM issue #54933",
)


def _limit(replica: Replica) -> Fact[int] | None:
    """The largest captured step: as captured, as configured, as asked for."""
    start = replica.start
    if start is not None:
        captured = max(start.captured_sizes.values(), key=lambda fact: fact.value, default=None)
        if captured is not None:
            return captured
    info = replica.server.told.capture_limit if replica.server is not None else None
    return info or (start.told.capture_limit or start.asked.capture_limit if start is not None else None)


def _look(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        if not replica.is_speculative or not graphs_apply(replica):
            continue
        graphs = graphs_of(replica)
        if graphs is not None and graphs.state == "none":
            continue
        limit, gamma = _limit(replica), replica.gamma
        if limit is None or gamma is None:
            missing = "gamma" if limit is not None else "the largest captured step"
            yield Unseen(CAPTURE_LIMIT.name, replica.name, f"{missing} is not known; the start-up log (--log) tells it")
            continue
        batch = replica.most_running
        if case.batch is not None:
            batch = Fact(case.batch, Evidence("setting", "--batch", f"{case.batch} requests at once"))
        if batch is not None and batch.value * (gamma.value + 1) > limit.value:
            yield _beyond(replica, batch, gamma, limit)
        elif batch is None or case.batch is None:
            most = replica.max_num_seqs
            if most is not None and most.value * (gamma.value + 1) > limit.value:
                yield _could_be(replica, most, gamma, limit)


def _beyond(replica: Replica, batch: Fact[int], gamma: Fact[int], limit: Fact[int]) -> Finding:
    tokens = batch.value * (gamma.value + 1)
    fits = largest_captured_gamma(batch.value, limit.value) or 0
    version = replica.version.value if replica.version is not None else None
    return Finding(
        "capture_limit_exceeded",
        "problem",
        replica.name,
        f"{batch.value} requests x (gamma {gamma.value} + 1) are {tokens} tokens a step, and the largest captured "
        f"step has {limit.value}",
        (batch.evidence, gamma.evidence, limit.evidence),
        "a step beyond the captured range runs without CUDA graphs",
        _CLIFF,
        Fix(
            f"capture steps of {tokens} tokens"
            + (f", or draft {fits} at this load" if fits else ", or send part of this load to plain replicas"),
            (flags.capture_limit(tokens, version), flags.most_sequences(limit.value // (gamma.value + 1))),
        ),
    )


def _could_be(replica: Replica, most: Fact[int], gamma: Fact[int], limit: Fact[int]) -> Finding:
    holds = limit.value // (gamma.value + 1)
    version = replica.version.value if replica.version is not None else None
    return Finding(
        "capture_limit_below_max_num_seqs",
        "note",
        replica.name,
        f"beyond {holds} requests at once steps leave the captured range; max_num_seqs is {most.value}",
        (most.evidence, gamma.evidence, limit.evidence),
        f"gamma {gamma.value} takes {gamma.value + 1} tokens of each request, and the largest captured step has "
        f"{limit.value}",
        _CLIFF,
        Fix(
            "where so many run at once",
            (flags.capture_limit(most.value * (gamma.value + 1), version), flags.most_sequences(holds)),
        ),
    )


CAPTURE_LIMIT = Check(
    "capture limit",
    "Does batch x (gamma + 1) fit the largest captured step?",
    ("capture_limit_exceeded", "capture_limit_below_max_num_seqs"),
    _look,
)
