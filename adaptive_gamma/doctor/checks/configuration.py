"""What was meant, and what is in force."""

from __future__ import annotations

from collections.abc import Iterator

from adaptive_gamma.doctor.case import Case, Replica
from adaptive_gamma.doctor.checks.check import Check, Said
from adaptive_gamma.doctor.engines import ENGINES
from adaptive_gamma.doctor.engines.vllm import flags
from adaptive_gamma.doctor.finding import Cost, Evidence, Finding, Fix, Unseen

__all__ = ["DEAD_OPTIONS", "EFFECTIVE", "PIPELINE", "SCHEDULED_TOKENS"]


def _effective(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        yield from _not_on(case, replica)
        yield from _gammas(case, replica)
        if replica.server is not None:
            for missing in (replica.server.info_missing, replica.server.probe_missing):
                if missing is not None:
                    yield Unseen(EFFECTIVE.name, replica.name, missing)


def _not_on(case: Case, replica: Replica) -> Iterator[Said]:
    asked = replica.asked.speculative
    told = replica.speculative
    if told is None or told.value:
        return
    meant = (asked is not None and asked.value) or (case.gamma or 0) > 0
    if not meant:
        return
    evidence = (*(() if asked is None else (asked.evidence,)), told.evidence)
    if case.gamma and asked is None:
        evidence = (Evidence("setting", "--gamma", f"gamma {case.gamma} is meant"), told.evidence)
    yield Finding(
        "speculation_not_on",
        "problem",
        replica.name,
        "speculation was asked for and is not on",
        evidence,
        "the engine dropped the configuration, or this is another server than the one that was configured",
        None,
        Fix("look at the arguments that the log repeats", flags.DRAFTER),
    )


def _gammas(case: Case, replica: Replica) -> Iterator[Said]:
    found = replica.gammas
    if not found:
        return
    in_force = found[0]
    others = [fact for fact in found[1:] if fact.value != in_force.value]
    meant = None
    if case.gamma is not None and case.gamma != in_force.value and replica.is_speculative:
        meant = Evidence("setting", "--gamma", f"gamma {case.gamma} is meant")
    if not others and meant is None:
        return
    words = ENGINES.get(replica.engine or "")
    wanted = case.gamma if meant is not None and case.gamma else others[0].value if others else in_force.value
    version = replica.version.value if replica.version is not None else None
    yield Finding(
        "gamma_not_as_meant",
        "problem",
        replica.name,
        f"gamma is {in_force.value} in force, and {wanted} was meant",
        (in_force.evidence, *(fact.evidence for fact in others), *(() if meant is None else (meant,))),
        "the server was started with other settings than those meant, or the engine changed them (a drafter made "
        "for another "
        "length, an earlier configuration, another server behind the address)",
        None,
        Fix(
            "start it with the gamma meant", words.gamma_flags(wanted, version) if words is not None and wanted else ()
        ),
    )


def _dead(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        generation = replica.start.told.generation if replica.start is not None else None
        if generation is not None and generation.value == "v0":
            continue  # where it worked
        sources = [replica.asked, *([replica.server.told] if replica.server is not None else [])]
        options = {fact.value: fact for source in sources for fact in source.dead_options}
        for name, fact in options.items():
            yield Finding(
                "dead_option",
                "problem",
                replica.name,
                f"{name} does nothing: speculation is not switched off at high load",
                (fact.evidence,),
                "the V1 engine accepted and ignored it; 0.18 took it away",
                Cost(
                    "all that speculation loses at high load, which was meant to be avoided", "vLLM #25112, PR #35060"
                ),
                Fix(
                    "from 0.24 on give a table by batch, or keep plain replicas beside and route by load",
                    flags.TABLE,
                ),
            )


def _pipeline(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        stages = replica.pipeline_parallel
        if not replica.is_speculative or stages is None or stages.value < 2:
            continue
        yield Finding(
            "speculation_in_pipeline",
            "warning",
            replica.name,
            f"speculation over {stages.value} pipeline stages",
            (stages.evidence,),
            "a step waits for every stage, and drafts lengthen each of them; acceptance does not show it",
            Cost(
                "measured: 43.7 against 61.2 tokens/s without, at 93 % acceptance (MTP, 4 stages over PCIe)",
                "vLLM issue #44697",
            ),
            Fix("compare with a plain server by tokens per second, not by acceptance", flags.TENSOR_PARALLEL),
        )


def _scheduled(case: Case) -> Iterator[Said]:
    for replica in case.replicas:
        line = replica.start.scheduled_tokens_cut if replica.start is not None else None
        if line is not None:
            yield Finding(
                "scheduled_tokens_cut",
                "note",
                replica.name,
                "room for drafts was taken from the tokens that a step may hold",
                (line,),
                "prompts are cut into smaller pieces, which costs time to first token under load",
                None,
                Fix("give steps more tokens", flags.STEP_TOKENS),
            )


EFFECTIVE = Check(
    "configuration", "Is what was meant in force?", ("speculation_not_on", "gamma_not_as_meant"), _effective
)
DEAD_OPTIONS = Check("dead options", "Are there options that do nothing?", ("dead_option",), _dead)
PIPELINE = Check("pipeline", "Is there speculation over pipeline stages?", ("speculation_in_pipeline",), _pipeline)
SCHEDULED_TOKENS = Check(
    "scheduled tokens", "Did drafts take room from prompts?", ("scheduled_tokens_cut",), _scheduled
)
