"""Counters that do not mean what they seem to, are off, fall back to zero, or change when they are read."""

from __future__ import annotations

from collections.abc import Iterator

from adaptive_gamma.doctor.case import Case, Replica
from adaptive_gamma.doctor.checks.check import Check, Said
from adaptive_gamma.doctor.engines import ENGINES
from adaptive_gamma.doctor.engines.vllm import flags
from adaptive_gamma.doctor.finding import Cost, Evidence, Finding, Fix

__all__ = ["COUNTED_AS_DRAFTED", "DIED", "READING", "RESTARTS", "STATISTICS"]


def _statistics(case: Case) -> Iterator[Said]:
    for replica in case.everyone:
        off = replica.server.statistics_off if replica.server is not None else None
        asked = replica.asked.statistics
        flag = asked.evidence if asked is not None and not asked.value else None
        evidence = tuple(each for each in (off, flag) if each is not None)
        if not evidence:
            continue
        words = ENGINES.get(replica.engine or "")
        yield Finding(
            "statistics_disabled",
            "problem",
            replica.name,
            "the server tells nothing of its load or its drafts",
            evidence,
            "its statistics are switched off",
            Cost("nobody sees what speculation does, and a router has no load and no acceptance to go by", "here"),
            words.statistics_fix if words is not None else Fix("switch its metrics on"),
        )


def _counted_as_drafted(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        adaptive = replica.adaptive_verification
        if adaptive is not None and adaptive.value:
            yield Finding(
                "counters_count_drafted",
                "warning",
                replica.name,
                "acceptance reads low: the counters count drafted tokens, and fewer are verified",
                (adaptive.evidence,),
                "adaptive verification cuts drafts on the device, after they were counted",
                Cost("measured: 20.92 % became 17.24 % while throughput rose by 184 %", "vLLM PR #52992"),
                Fix("judge it by tokens per second, and learn nothing from its acceptance"),
            )
        elif replica.drafts_vary:
            yield Finding(
                "acceptance_reads_low",
                "note",
                replica.name,
                "acceptance by position reads low at the later positions",
                _varying_evidence(replica),
                "drafts are of several lengths (n-gram, a table, grammars), and every position is divided by all "
                "drafts",
                Cost("n-gram drafts that were all accepted read 100, 60, 60, 40 %", "measured on vLLM 0.32"),
                Fix("take acceptance from answers", flags.REPORT_DRAFTS),
            )


def _varying_evidence(replica: Replica) -> tuple[Evidence, ...]:
    if replica.server is not None and replica.server.last is not None and replica.server.last.speculation is not None:
        counters = replica.server.last.speculation
        if counters.drafts:
            words = (
                f"{counters.draft_tokens / counters.drafts:.2f} tokens a draft on average, "
                f"{len(counters.accepted_per_position)} positions"
            )
            return (Evidence("metric", replica.server.metrics, words),)
    drafts = replica.start.drafts if replica.start is not None else None
    return (drafts.evidence,) if drafts is not None else ()


def _restarts(case: Case) -> Iterator[Said]:
    for replica in case.everyone:
        reset = replica.server.reset_between if replica.server is not None else None
        if reset is not None:
            yield Finding(
                "counters_reset",
                "problem",
                replica.name,
                "the server began anew while it was watched",
                (reset,),
                "it crashed and was started again, or its address leads to several servers in turn",
                Cost("rates over that time are wrong for whoever does not look for falling counters", "here"),
                Fix("look at the log, and ask each server by its own address"),
            )
        if replica.starts_seen > 1:
            yield _restarted(replica)


def _restarted(replica: Replica) -> Finding:
    deaths = [start for start in replica.earlier if start.died is not None]
    silent = [start for start in replica.earlier if start.died is None and start.shut_down is None]
    evidence = []
    for start in (*deaths, *silent)[:3]:
        evidence += [each for each in (start.died, start.died_of) if each is not None]
    if replica.start is not None:
        told = replica.start.told.version or replica.start.told.model
        where = told.evidence.where if told is not None else f"{replica.start.file}:{replica.start.line}"
        evidence.append(Evidence("line", where, f"start {replica.starts_seen} of {replica.starts_seen} in this log"))
    orderly = not deaths and not silent
    return Finding(
        "restarted",
        "note" if orderly else "warning",
        replica.name,
        f"the server was started {replica.starts_seen} times in this log",
        tuple(evidence),
        "each time it was shut down in order"
        if orderly
        else (
            f"{len(deaths)} times its engine died, {len(silent)} times it ended without a word (killed, or out of "
            "memory)"
        ),
        Cost("counters begin at 0 each time, and requests that were open are lost", "here"),
        None if orderly else Fix("see why it ended; what is judged here is its last start"),
    )


def _died(case: Case) -> Iterator[Said]:
    for replica in case.everyone:
        start = replica.start
        if start is None or start.died is None:
            continue
        yield Finding(
            "engine_died",
            "problem",
            replica.name,
            "the engine died" if start.ready is not None else "the engine did not come up",
            tuple(each for each in (start.died, start.died_of) if each is not None),
            start.died_of.text if start.died_of is not None else "the log says that it died, and not of what",
            None,
            Fix(
                "see the traceback in the log; without speculation the same start tells whether the drafter is to blame"
            ),
        )


def _reading(case: Case) -> Iterator[Said]:
    for replica in case.everyone:
        words = ENGINES.get(replica.engine or "")
        if words is None or words.reading_resets is None or replica.server is None:
            continue
        yield Finding(
            "reading_has_effects",
            "note",
            replica.name,
            f"reading the metrics of {words.title} changes them",
            (Evidence("setting", replica.server.url, words.title),),
            words.reading_resets,
            None,
            words.reading_fix,
        )


STATISTICS = Check("statistics", "Does the server publish its metrics?", ("statistics_disabled",), _statistics)
COUNTED_AS_DRAFTED = Check(
    "counters", "Do the counters of acceptance mean what they say?", ("counters_count_drafted", "acceptance_reads_low"),
    _counted_as_drafted,
)  # fmt: skip
RESTARTS = Check("restarts", "Did the server begin anew?", ("counters_reset", "restarted"), _restarts)
DIED = Check("life", "Did the engine die?", ("engine_died",), _died, "log")
READING = Check("reading", "Does reading the metrics change them?", ("reading_has_effects",), _reading, "server")
