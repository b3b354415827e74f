"""What is replayed: the traces merged on one clock, and the acceptance draws that every routing policy shares.

The draws are common random numbers. Each request owns one uniform number for each decode step it could need; the
number of draft tokens a step would accept without a limit follows from it and the request's acceptance curve, and a
step with gamma draft tokens accepts the smaller of the two. So two policies that give a request different gammas still
meet the same luck, and what is left between their results is the policies' own difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from adaptive_gamma.simulation.replay.trace import Trace

__all__ = ["AcceptanceDraws", "ClassedTrace", "PrefixTable", "Workload", "merge"]

PrefixTable: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]
"""Tokens given by all draws before each position; the narrower type where it suffices."""


@dataclass(frozen=True, slots=True)
class ClassedTrace:
    """A trace and the policy's class that all its requests have."""

    trace: Trace
    request_class: str
    named: str | None = None
    """What its requests were called; None: nothing, they are of the default class."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in the order of their arrival; index i of each list is request i."""

    classes: tuple[str, ...]
    """Names that ``class_of`` counts into."""
    arrival_s: list[float]
    prompt_tokens: list[int]
    output_tokens: list[int]
    class_of: list[int]

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def generated_tokens(self) -> int:
        return sum(self.output_tokens)


def merge(
    traces: Sequence[ClassedTrace],
    classes: Sequence[str],
    *,
    scale: float = 1.0,
    limit: int | None = None,
    duration_s: float | None = None,
) -> Workload:
    """Put traces on one clock, each with its first request at 0.

    Requests at the same instant keep the order of the traces, then of the lines.

    Args:
        traces: what to merge.
        classes: the class names to count; each trace's class is one of them.
        scale: the factor on the arrival rate; every gap is divided by it.
        limit: keep only this many requests, the first ones.
        duration_s: keep only requests of the first seconds of the traces' own time, before scaling.
    """
    index = {name: i for i, name in enumerate(classes)}
    entries: list[tuple[float, int, int]] = []
    for which, classed in enumerate(traces):
        entries += [(t, which, line) for line, t in enumerate(classed.trace.arrival_s)]
    entries.sort()
    if duration_s is not None:
        entries = [entry for entry in entries if entry[0] < duration_s]
    if limit is not None:
        entries = entries[:limit]
    return Workload(
        tuple(classes),
        [t / scale for t, _, _ in entries],
        [traces[which].trace.prompt_tokens[line] for _, which, line in entries],
        [traces[which].trace.output_tokens[line] for _, which, line in entries],
        [index[traces[which].request_class] for _, which, _ in entries],
    )


class AcceptanceDraws:
    """How many tokens each decode step of each request gives, for every gamma.

    A request with n output tokens gets its first from its prompt and the other n - 1 from decode steps, of which there
    are at most n - 1; these steps' draws lie at ``start[i] .. start[i] + n - 1`` of one long array.

    Args:
        workload: the requests.
        survival: by population, the probability that at least 1, 2, .. draft tokens are accepted (never rising).
        seed: of the random generator.
        populations: which one each request belongs to; None: its class.
    """

    def __init__(
        self,
        workload: Workload,
        survival: Mapping[str, Sequence[float]],
        seed: int,
        populations: Sequence[str] | None = None,
    ) -> None:
        needed = np.maximum(np.asarray(workload.output_tokens, dtype=np.int64) - 1, 0)
        starts = np.concatenate(([0], np.cumsum(needed)))
        total = int(starts[-1])
        uniform = np.random.Generator(np.random.PCG64([seed, 1])).random(total, dtype=np.float32)
        names = list(survival) if populations is not None else list(workload.classes)
        where = {name: index for index, name in enumerate(names)}
        which = workload.class_of if populations is None else [where[name] for name in populations]
        population_of = np.repeat(np.asarray(which, dtype=np.int16), needed)
        runs = np.zeros(total, dtype=np.uint8)
        longest = 0
        for index, name in enumerate(names):
            curve = np.asarray(survival[name], dtype=np.float64)
            longest = max(longest, len(curve))
            mine = population_of == index
            runs[mine] = len(curve) - np.searchsorted(curve[::-1], uniform[mine].astype(np.float64), side="right")
        self._needed = needed
        self._starts = starts
        self.runs = runs
        """Draft tokens that each draw would accept of an endless draft, as far as the curves reach."""
        self._narrow = total * (longest + 1) < 2**31
        self._prefixes: dict[int, PrefixTable] = {}
        self._steps: dict[int, list[int]] = {}
        self.start: list[int] = starts[:-1].tolist()
        """Where each request's draws begin."""
        self.needed: list[int] = needed.tolist()
        """Tokens each request gets from decode steps."""

    def prefix(self, gamma: int) -> PrefixTable:
        """Tokens given by all draws before each position, with ``gamma`` draft tokens a step."""
        found = self._prefixes.get(gamma)
        if found is None:
            tokens = np.minimum(self.runs, gamma) + np.uint8(1)
            found = np.zeros(len(tokens) + 1, dtype=np.int32) if self._narrow else np.zeros(len(tokens) + 1, np.int64)
            np.cumsum(tokens, dtype=found.dtype, out=found[1:])
            self._prefixes[gamma] = found
        return found

    def steps(self, gamma: int) -> list[int]:
        """Decode steps each request needs from its first draw to its last token with ``gamma`` draft tokens a step."""
        found = self._steps.get(gamma)
        if found is None:
            prefix = self.prefix(gamma)
            begin = self._starts[:-1]
            wanted = (prefix[begin] + self._needed).astype(prefix.dtype)
            found = self._steps[gamma] = (np.searchsorted(prefix, wanted, side="left") - begin).tolist()
        return found

    def release(self) -> None:
        """Forget the tables by gamma; they are made again when asked for."""
        self._prefixes.clear()
        self._steps.clear()
