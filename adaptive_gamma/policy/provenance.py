"""Which cells of a policy's table were measured, which lie between measurements, and which beyond them.

A cell (class, context, batch, gamma) tells tokens/s over plain decoding. It is

* measured, where the class was measured near that batch and context on the plain arm and on the arm of that gamma;
* interpolated, where batch, gamma and context lie within what was measured on plain and speculative arms (of any class,
  for a step's time knows no class), the step has no more tokens than the step time was fitted to, and the class's
  acceptance was counted that deep;
* extrapolated everywhere else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from adaptive_gamma.errors import PolicyError
from adaptive_gamma.policy.schema import Evidence, Limits, PolicyDocument
from adaptive_gamma.roofline import AcceptanceCurve, SpeculationCost

__all__ = [
    "PROVENANCES",
    "ContradictedPoint",
    "Provenance",
    "check_evidence",
    "contradicted_points",
    "provenance_at",
    "provenance_ranges",
    "with_provenance",
]

Provenance: TypeAlias = Literal["measured", "interpolated", "extrapolated"]
PROVENANCES: tuple[Provenance, ...] = ("measured", "interpolated", "extrapolated")
NEAR_BATCH = 0.1
"""Relative distance of a batch within which a measurement counts for it."""
NEAR_CONTEXT = 1.5
"""Ratio of contexts within which a measurement counts for a bucket."""
FAR = 0.1
"""Relative error of the time per token beyond which a table contradicts a point of its evidence."""
_MEASURED, _INTERPOLATED, _EXTRAPOLATED = 0, 1, 2
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))? (measured|interpolated|extrapolated)")


def with_provenance(document: PolicyDocument) -> PolicyDocument:
    """The document with its evidence's ``cells`` made anew; as it is where it has no evidence."""
    if document.evidence is None:
        return document
    evidence = document.evidence.model_copy(update={"cells": _cells(document)})
    return document.model_copy(update={"evidence": evidence})


def check_evidence(document: PolicyDocument, source: str) -> None:
    """Raises PolicyError where stored cells do not follow from the points and limits, or points make no sense."""
    evidence = document.evidence
    if evidence is None:
        return
    for name, arms in evidence.points.items():
        for arm, points in arms.items():
            for index, (_, batch, _, seconds, low, high, runs) in enumerate(points):
                key = f"evidence.points.{name}.{arm}[{index}]"
                if not (batch > 0 and 0 < low <= seconds <= high and runs >= 1):
                    raise PolicyError(source, key, "expected batch > 0, 0 < lowest <= median <= highest, runs >= 1")
    wanted = _cells(document)
    if evidence.cells == wanted:
        return
    for name, contexts in wanted.items():
        for context, gammas in contexts.items():
            for gamma, text in gammas.items():
                found = evidence.cells.get(name, {}).get(context, {}).get(gamma)
                if found != text:
                    key = f"evidence.cells.{name}.{context}.{gamma}"
                    raise PolicyError(
                        source,
                        key,
                        f"is {found!r}, but the points give {text!r}; rebuild it with `policy build --inputs FILE`",
                    )
    raise PolicyError(source, "evidence.cells", "has cells that the table lacks")


def provenance_ranges(
    evidence: Evidence, request_class: str, context: int, gamma: int
) -> list[tuple[int, int, Provenance]]:
    """What the cells of a class, context and gamma rest on: (first batch, last batch, word), rising."""
    text = evidence.cells.get(request_class, {}).get(context, {}).get(gamma, "")
    return [
        (int(first), int(last or first), next(known for known in PROVENANCES if known == word))
        for first, last, word in _RANGE.findall(text)
    ]


def provenance_at(evidence: Evidence, request_class: str, context: int, gamma: int, batch: int) -> Provenance:
    """What a cell of the table rests on. A cell the evidence does not know is extrapolated."""
    for first, last, word in provenance_ranges(evidence, request_class, context, gamma):
        if first <= batch <= last:
            return word
    return "extrapolated"


@dataclass(frozen=True, slots=True)
class ContradictedPoint:
    """A measured point that the table is far from."""

    batch: float
    seconds: float
    """Measured time per output token."""
    error: float
    """The table's time / the measured one - 1."""


def contradicted_points(
    evidence: Evidence, limits: Limits, cost: SpeculationCost, curves: Mapping[str, AcceptanceCurve]
) -> dict[tuple[str, str | int], list[ContradictedPoint]]:
    """By class and arm, the points that the time per token is more than 10 % off, at the point's own batch and context.

    Points that the table has no cell for (a larger batch or gamma, beyond the capture limit) are not looked at.
    """
    found: dict[tuple[str, str | int], list[ContradictedPoint]] = {}
    for name, arms in evidence.points.items():
        curve = curves.get(name)
        for arm, points in arms.items():
            gamma = arm if isinstance(arm, int) else 0
            if (curve is None and gamma) or gamma > limits.max_gamma:
                continue
            expected = 1.0 if curve is None or not gamma else float(curve.expected_tokens(gamma))
            for _, batch, context, seconds, *_ in points:
                if batch > limits.max_batch or not cost.allowed(batch, gamma):
                    continue
                prompts = limits.prompt_tokens_per_output_token * max(batch - 1.0, 0.0) * expected
                step = (
                    cost.speculative_seconds(batch, gamma, context, prompts)
                    if isinstance(arm, int)
                    else cost.plain_seconds(batch, context, prompts)
                )
                error = float(step) / expected / seconds - 1.0
                if abs(error) > FAR:
                    found.setdefault((name, arm), []).append(ContradictedPoint(batch, seconds, error))
    return found


def _cells(document: PolicyDocument) -> dict[str, dict[int, dict[int, str]]]:
    evidence, limits = document.evidence, document.inputs.limits
    assert evidence is not None  # both callers look first
    hull = _Hull.of(evidence)
    return {
        name: {
            context: {
                gamma: _text(_of_gamma(evidence, hull, limits, name, context, gamma)) for gamma in document.table.gammas
            }
            for context in limits.context_buckets
        }
        for name in document.inputs.classes
    }


class _Hull:
    """Least and greatest of what was measured, over all classes."""

    def __init__(self) -> None:
        self.plain: list[float] = []
        self.speculative: list[float] = []
        self.gammas: set[int] = set()
        self.contexts: list[float] = []

    @classmethod
    def of(cls, evidence: Evidence) -> _Hull:
        hull = cls()
        for arms in evidence.points.values():
            for arm, points in arms.items():
                hull._add(arm, [(point[1], point[2]) for point in points])
        for arm, steps in evidence.steps.items():
            hull._add(arm, [(step[0], step[1]) for step in steps])
        return hull

    def _add(self, arm: str | int, points: list[tuple[float, float]]) -> None:
        if not points:
            return
        self.contexts += [context for _, context in points]
        if arm == "plain":
            self.plain += [batch for batch, _ in points]
        elif isinstance(arm, int):
            self.speculative += [batch for batch, _ in points]
            self.gammas.add(arm)

    def holds(self, batches: npt.NDArray[np.int64], gamma: int, context: int) -> npt.NDArray[np.bool_]:
        """Which batches lie within it at this gamma and context."""
        if not (self.plain and self.speculative):
            return np.zeros(batches.size, dtype=np.bool_)
        drafting = {known for known in self.gammas if known > 0}
        deep = gamma in self.gammas if gamma == 0 else bool(drafting) and min(drafting) <= gamma <= max(drafting)
        known = [seen for seen in self.contexts if seen > 0]
        long = not known or min(known) / NEAR_CONTEXT <= context <= max(known) * NEAR_CONTEXT
        if not (deep and long):
            return np.zeros(batches.size, dtype=np.bool_)
        low = max(math.floor(min(self.plain)), math.floor(min(self.speculative)))
        high = min(math.ceil(max(self.plain)), math.ceil(max(self.speculative)))
        return (batches >= low) & (batches <= high)


def _of_gamma(
    evidence: Evidence, hull: _Hull, limits: Limits, name: str, context: int, gamma: int
) -> npt.NDArray[np.int64]:
    batches = np.arange(1, limits.max_batch + 1)
    found = np.full(batches.size, _EXTRAPOLATED)
    counted = gamma <= evidence.counted_positions.get(name, 0)
    within = hull.holds(batches, gamma, context) & (batches * (gamma + 1) <= evidence.fitted_tokens * (1 + NEAR_BATCH))
    if counted:
        found[within] = _INTERPOLATED
    arms = evidence.points.get(name, {})
    found[_near(arms.get("plain", []), batches, context) & _near(arms.get(gamma, []), batches, context)] = _MEASURED
    return found


def _near(points: list[list[float]], batches: npt.NDArray[np.int64], context: int) -> npt.NDArray[np.bool_]:
    found = np.zeros(batches.size, dtype=np.bool_)
    for _, batch, seen, *_ in points:
        if seen == 0 or seen / NEAR_CONTEXT <= context <= seen * NEAR_CONTEXT:
            found |= np.abs(batches - batch) <= np.maximum(0.5, NEAR_BATCH * batches)
    return found


def _text(found: npt.NDArray[np.int64]) -> str:
    starts = np.concatenate(([0], np.flatnonzero(np.diff(found)) + 1))
    ends = np.concatenate((starts[1:], [found.size]))
    return ", ".join(
        f"{a + 1}{'' if b == a + 1 else f'-{b}'} {PROVENANCES[int(found[a])]}"
        for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
    )
