"""The comparison itself: the same prompts to the reference over and over, and to each candidate.

Prompts go in groups, and of a group only figures are kept, so that memory does not grow with the prompts; what stops
the run leaves the groups before it whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

from adaptive_gamma.bench.parity.answers import WholeAnswer
from adaptive_gamma.bench.parity.asking import Failure, Replica
from adaptive_gamma.bench.parity.comparing import Distance, Divergence, distance
from adaptive_gamma.bench.sweep.dataset import Prompt
from adaptive_gamma.errors import ConnectError

__all__ = ["Compared", "Comparison", "Example", "Observer", "Pair", "Runs", "Sample", "run_parity"]

MOST_EXAMPLES = 10
_GROUP = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """How far two further runs, one alone and one among others, are from the reference's first: means of the two."""

    parted: float
    """0, 0.5 or 1."""
    margin: float | None
    logprob: float | None
    regret: float | None


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt: the candidate's sample and, of the same prompt, the reference's own."""

    candidate: Sample
    floor: Sample


@dataclass(slots=True)
class Runs:
    """Counts over the prompts that one replica answered, against the reference's first answers."""

    same_alone: int = 0
    """Answers with the same text, asked one at a time."""
    same_at_once: int = 0
    """... and asked several at once."""
    tokens: int = 0
    figures: int = 0
    """Of the tokens, those with a log-probability."""

    def take(self, alone: Distance, at_once: Distance) -> None:
        """Count one prompt."""
        self.same_alone += not alone.parted
        self.same_at_once += not at_once.parted
        self.tokens += alone.tokens + at_once.tokens
        self.figures += alone.figures + at_once.figures


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt whose answers part."""

    number: int
    """The prompt's, from 1 on."""
    prompt: Prompt
    divergence: Divergence
    at_once: bool
    """Seen only where several were asked at once."""


@dataclass(slots=True)
class Compared:
    """One candidate against the reference."""

    pairs: list[Pair] = field(default_factory=list)
    runs: Runs = field(default_factory=Runs)
    floor: Runs = field(default_factory=Runs)
    """Of the reference itself, over the same prompts."""
    parted: int = 0
    """Prompts whose answers part in either run."""
    parted_near: int = 0
    """... where the reference's margin is known and under the tolerance: a near tie."""
    parted_known: int = 0
    """... where the margin is known at all."""
    examples: list[Example] = field(default_factory=list)


@dataclass(slots=True)
class Comparison:
    """All that was seen."""

    prompts: int
    """Asked for."""
    done: int = 0
    """Gone through, whatever came of them."""
    floor: Runs = field(default_factory=Runs)
    floor_prompts: int = 0
    """Prompts that the reference answered all three times."""
    floor_samples: list[Sample] = field(default_factory=list)
    candidates: list[Compared] = field(default_factory=list)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By replica and reason."""
    failure_detail: dict[tuple[str, str], str] = field(default_factory=dict)
    stopped: str | None = None
    """Why not all prompts were gone through."""


class Observer(Protocol):
    """Who is told how it goes."""

    def progressed(self, done: int, total: int) -> None:
        """So many prompts are done."""


async def run_parity(
    comparison: Comparison,
    reference: Replica,
    candidates: Sequence[Replica],
    prompts: Sequence[Prompt],
    *,
    at_once: int,
    near: float,
    observer: Observer,
) -> None:
    """Fill ``comparison`` in, group by group; it can be read whenever this ends or is cancelled.

    Args:
        comparison: made for as many candidates.
        reference: a plain replica.
        candidates: the ones to be compared with it.
        prompts: what is asked.
        at_once: requests open at a time in the runs that change the batch's shape.
        near: margin in nats under which two tokens are a near tie.
        observer: is told of the progress.
    """
    size = max(at_once, _GROUP)
    for start in range(0, len(prompts), size):
        group = prompts[start : start + size]
        asked = reference
        try:
            firsts, own = await _three_runs(reference, group, at_once)
            others = []
            for asked in candidates:
                others.append(await _two_runs(asked, group, at_once))
        except ConnectError as error:
            comparison.stopped = f"{asked.arm.described} is gone: {error}"
            return
        _take(comparison, start, group, firsts, own, others, [reference, *candidates], near)
        comparison.done += len(group)
        observer.progressed(comparison.done, len(prompts))


_Answer = WholeAnswer | Failure
_Two = tuple[list[_Answer], list[_Answer]]


async def _three_runs(replica: Replica, group: Sequence[Prompt], at_once: int) -> tuple[list[_Answer], _Two]:
    # Prompts are in its cache before the first run that counts, as they are for the others.
    await replica.answers(group, output_tokens=1)
    firsts = await replica.answers(group)
    return firsts, (await replica.answers(group), await replica.answers(group, at_once))


async def _two_runs(replica: Replica, group: Sequence[Prompt], at_once: int) -> _Two:
    await replica.answers(group, output_tokens=1)
    return await replica.answers(group), await replica.answers(group, at_once)


def _take(
    comparison: Comparison,
    start: int,
    group: Sequence[Prompt],
    firsts: list[_Answer],
    own: _Two,
    others: list[_Two],
    replicas: Sequence[Replica],
    near: float,
) -> None:
    for answers, replica in [(firsts, replicas[0])] + [
        (run, replica) for two, replica in zip([own, *others], replicas, strict=True) for run in two
    ]:
        for answer in answers:
            if isinstance(answer, Failure):
                key = replica.name, answer.reason
                comparison.failures[key] += 1
                comparison.failure_detail.setdefault(key, answer.detail)
    for place, first in enumerate(firsts):
        if isinstance(first, Failure):
            continue
        own_two = _distances(first, own, place)
        if own_two is None:
            continue
        comparison.floor.take(*own_two)
        comparison.floor_prompts += 1
        floor = _sample(*own_two)
        comparison.floor_samples.append(floor)
        for compared, two in zip(comparison.candidates, others, strict=True):
            found = _distances(first, two, place)
            if found is None:
                continue
            compared.runs.take(*found)
            compared.floor.take(*own_two)
            compared.pairs.append(Pair(_sample(*found), floor))
            _note_divergence(compared, start + place + 1, group[place], found, near)


def _distances(first: WholeAnswer, two: _Two, place: int) -> tuple[Distance, Distance] | None:
    alone, at_once = two[0][place], two[1][place]
    if isinstance(alone, Failure) or isinstance(at_once, Failure):
        return None
    return distance(first, alone), distance(first, at_once)


def _sample(alone: Distance, at_once: Distance) -> Sample:
    return Sample(
        (alone.parted + at_once.parted) / 2,
        _mean(alone.margin, at_once.margin),
        _mean(alone.logprob, at_once.logprob),
        _mean(alone.regret, at_once.regret),
    )


def _mean(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else fmean((first, second))


def _note_divergence(
    compared: Compared, number: int, prompt: Prompt, found: tuple[Distance, Distance], near: float
) -> None:
    parted = [(run.divergence, place == 1) for place, run in enumerate(found) if run.divergence is not None]
    if not parted:
        return
    compared.parted += 1
    margins = [divergence.margin for divergence, _ in parted if divergence is not None]
    known = [margin for margin in margins if margin is not None]
    if len(known) == len(margins):
        compared.parted_known += 1
        compared.parted_near += max(known) < near
    divergence, at_once = parted[0]
    if len(compared.examples) < MOST_EXAMPLES and divergence is not None:
        compared.examples.append(Example(number, prompt, divergence, at_once))
