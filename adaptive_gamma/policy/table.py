"""A policy in use: prices and best gammas as plain look-ups."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from adaptive_gamma.errors import PolicyError
from adaptive_gamma.policy.build import Grid, build_grid
from adaptive_gamma.policy.check import check_inputs, check_table
from adaptive_gamma.policy.document import parse_document, parse_inputs
from adaptive_gamma.policy.provenance import check_evidence, with_provenance
from adaptive_gamma.policy.schema import SCHEMA, Evidence, PolicyDocument, PolicyInputs, PolicyTable
from adaptive_gamma.roofline import AcceptanceCurve, SpeculationCost

__all__ = ["CLASS_ALIASES", "Policy", "build_policy", "rebuild_policy"]

CLASS_ALIASES = {"code": "structured", "math": "structured", "prose": "chat"}
"""Words that mean a class wherever one is named."""
_EXPECTED_TO = 64


class Policy:
    """What a decision asks of a policy file. Every look-up is O(1); rows are built on first use and kept.

    A context length takes the bucket nearest by ratio; None takes the middle bucket. Batches beyond ``max_batch`` are
    extrapolated linearly from the last two entries. A gamma above ``max_gamma`` is computed like any other, so that a
    replica started with a longer draft than the policy would choose still has its true price.
    """

    def __init__(self, document: PolicyDocument, grid: Grid) -> None:
        inputs = document.inputs
        self.document = document
        self.name = document.name
        self.inputs: PolicyInputs = inputs
        self.classes: tuple[str, ...] = tuple(inputs.classes)
        self.default_class = inputs.default_class
        self.min_gamma = inputs.limits.min_gamma
        self.max_gamma = inputs.limits.max_gamma
        self.max_batch = inputs.limits.max_batch
        self.context_buckets: tuple[int, ...] = grid.contexts
        self.cost: SpeculationCost = grid.cost
        self.curves: Mapping[str, AcceptanceCurve] = grid.curves
        self._default_bucket = len(grid.contexts) // 2
        self._bucket_edges = [(a * b) ** 0.5 for a, b in pairwise(grid.contexts)]
        self._class_of = {name: name for name in self.classes}
        for alias, meant in CLASS_ALIASES.items():
            self._class_of.setdefault(alias, meant if meant in self.classes else self.default_class)
        gammas = np.arange(max(_EXPECTED_TO, self.max_gamma) + 1, dtype=np.float64)
        self._expected: dict[str, list[float]] = {
            name: curve.expected_tokens(gammas).tolist() for name, curve in grid.curves.items()
        }
        self._best: dict[str, list[list[int]]] = {
            name: [[row[0], *row] for row in grid.best[c].tolist()] for c, name in enumerate(self.classes)
        }
        self._plain_wins = {name: grid.plain_wins_from[c] for c, name in enumerate(self.classes)}
        self._step_rows: dict[tuple[int, int, bool], list[float]] = {}
        self._marginal_rows: dict[tuple[int, int, bool], list[float]] = {}
        terms = grid.cost.step.terms(self.context_buckets[self._default_bucket])
        self._token_seconds = terms.token_seconds

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], source: str) -> Policy:
        """From a parsed policy file; ``source`` names it in errors.

        Raises PolicyError for a wrong key, value or unit, and for a table that does not follow from the inputs.
        """
        document = parse_document(data, source)
        check_inputs(document.inputs, source)
        grid = build_grid(document.inputs, source)
        check_table(document, grid, source)
        check_evidence(document, source)
        return cls(document, grid)

    @property
    def description(self) -> str:
        return self.document.description

    @property
    def evidence(self) -> Evidence | None:
        """What was measured for it; None for a policy that was not built from a sweep."""
        return self.document.evidence

    @property
    def table(self) -> PolicyTable:
        """Best gamma by batch range, speed-ups and the batch from which plain wins, as the file stores them."""
        return self.document.table

    def class_for(self, name: str) -> str:
        """The policy's class for a name: itself, what an alias means, or the default class."""
        return self._class_of.get(name, self.default_class)

    def expected_tokens(self, request_class: str, gamma: int) -> float:
        """Tokens per step under the class's prior."""
        row = self._expected[self._class_of.get(request_class, self.default_class)]
        if 0 <= gamma < len(row):
            return row[gamma]
        return self.curves[self.class_for(request_class)].expected_tokens(gamma)

    def step_seconds(
        self, batch: int, gamma: int, context_tokens: float | None = None, speculative: bool = True
    ) -> float:
        """Seconds of a decode step of ``batch`` sequences (below 1 counts as 1).

        A plain replica (``speculative=False``) drafts nothing, so gamma is not looked at; gamma 0 on a speculative one
        pays the zero-gamma tax.
        """
        row = self.step_row(gamma, context_tokens, speculative)
        if batch <= self.max_batch:
            return row[batch] if batch >= 0 else row[0]
        return row[-1] + (batch - self.max_batch) * (row[-1] - row[-2])

    def step_row(self, gamma: int, context_tokens: float | None = None, speculative: bool = True) -> list[float]:
        """Seconds of a step by batch: index = batch, up to ``max_batch``; index 0 holds the value of batch 1.

        The list is kept and shared; callers only read it.
        """
        key = (gamma if speculative else 0, self.context_bucket(context_tokens), speculative)
        row = self._step_rows.get(key)
        if row is None:
            row = self._step_rows[key] = self._new_row(*key)
        return row

    def marginal_row(self, gamma: int, context_tokens: float | None = None, speculative: bool = True) -> list[float]:
        """What one more request costs by the number n already there: t(n+1) + n (t(n+1) - t(n)), in seconds per step.

        Index n = 0 .. max_batch - 1. Dividing by a class's expected tokens gives its marginal cost per token. The list
        is kept and shared; callers only read it.
        """
        key = (gamma if speculative else 0, self.context_bucket(context_tokens), speculative)
        row = self._marginal_rows.get(key)
        if row is None:
            steps = self.step_row(gamma, context_tokens, speculative)
            row = [after + n * (after - before) for n, (before, after) in enumerate(pairwise(steps))]
            self._marginal_rows[key] = row
        return row

    def best_gamma(self, request_class: str, batch: int, context_tokens: float | None = None) -> int:
        """The best allowed gamma; beyond ``max_batch`` that of the largest batch, cut to the capture limit."""
        row = self._best[self._class_of.get(request_class, self.default_class)][self.context_bucket(context_tokens)]
        if batch <= self.max_batch:
            return row[batch] if batch >= 0 else row[0]
        limit = self.cost.largest_gamma(batch)
        if limit is None or row[-1] <= limit:
            return row[-1]
        return limit if limit >= self.min_gamma else 0

    def largest_gamma(self, batch: int) -> int | None:
        """The largest gamma whose step is captured at a batch; None where the policy has no capture limit."""
        return self.cost.largest_gamma(batch)

    def speedup(self, request_class: str, batch: int, gamma: int, context_tokens: float | None = None) -> float:
        """Predicted tokens per second over those of a plain replica at the same batch, as in the table.

        With prompts in the traffic (``limits.prompt_tokens_per_output_token``) it is not the ratio of ``step_seconds``,
        which are of decoding alone.
        """
        expected = self.expected_tokens(request_class, gamma)
        prompts = self.inputs.limits.prompt_tokens_per_output_token * max(batch - 1, 0)
        if prompts:
            context = self.context_buckets[self.context_bucket(context_tokens)]
            seconds = self.cost.speculative_seconds(batch, gamma, context, prompts * expected)
            return float(expected * self.cost.plain_seconds(batch, context, prompts) / seconds)
        plain = self.step_seconds(batch, 0, context_tokens, speculative=False)
        return expected * plain / self.step_seconds(batch, gamma, context_tokens)

    def plain_wins_from(self, request_class: str, context_tokens: float | None = None) -> int | None:
        """The first batch from which no allowed gamma beats plain decoding; None where there is none in the table."""
        return self._plain_wins[self.class_for(request_class)][self.context_bucket(context_tokens)]

    def prefill_seconds(self, tokens: int) -> float:
        """What prompt tokens add to a step where compute binds: an upper bound where memory does."""
        return tokens * self._token_seconds

    def context_bucket(self, context_tokens: float | None) -> int:
        """The bucket whose prices a context has, counted from 0."""
        if context_tokens is None:
            return self._default_bucket
        return bisect_right(self._bucket_edges, context_tokens)

    def _new_row(self, gamma: int, bucket: int, speculative: bool) -> list[float]:
        if gamma < 0:
            raise ValueError(f"gamma must be >= 0, not {gamma}")
        batches, context = np.arange(1, self.max_batch + 1), self.context_buckets[bucket]
        if speculative:
            seconds = self.cost.speculative_seconds(batches, gamma, context)
        else:
            seconds = self.cost.plain_seconds(batches, context)
        row: list[float] = seconds.tolist()
        return [row[0], *row]

    def __repr__(self) -> str:
        return f"Policy({self.name!r}, classes={self.classes}, max_gamma={self.max_gamma}, max_batch={self.max_batch})"


def build_policy(
    inputs: PolicyInputs,
    *,
    name: str = "policy",
    description: str = "",
    sources: Sequence[str] = (),
    measured: Sequence[str] = (),
    assumed: Sequence[str] = (),
    evidence: Evidence | None = None,
    source: str = "inputs",
) -> Policy:
    """Make a policy, table included, from inputs.

    Raises PolicyError for inputs that contradict each other; ``source`` names where they came from.
    """
    data = {
        "schema": SCHEMA,
        "name": name,
        "description": description,
        "sources": list(sources),
        "measured": list(measured),
        "assumed": list(assumed),
        "inputs": inputs,
        "evidence": evidence,
    }
    return rebuild_policy(data, source)


def rebuild_policy(data: Mapping[str, Any], source: str) -> Policy:
    """Make a policy from a parsed policy file whose table is missing or out of date. Measured points are kept.

    Raises PolicyError for a wrong key, value or unit.
    """
    if "inputs" not in data:
        raise PolicyError(source, "inputs", "missing")
    inputs = parse_inputs(data["inputs"], source)
    check_inputs(inputs, source)
    grid = build_grid(inputs, source)
    document = parse_document({**data, "inputs": inputs, "table": grid.table()}, source)
    return Policy(with_provenance(document), grid)
