"""What is legal in a policy and still worth a second look."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from adaptive_gamma.policy.schema import CellTable
from adaptive_gamma.policy.table import Policy

__all__ = ["Finding", "lint_policy"]

_MANY_RANGES = 8
_DEAD_BAND = 0.1


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark on a policy."""

    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.key}: {self.message}"


def lint_policy(policy: Policy, median_load: float | None = None) -> list[Finding]:
    """Remarks on a policy that passed its checks.

    Args:
        policy: the policy.
        median_load: usual number of sequences on a replica; an edge of a range within 10 % of it is reported, for a
            schedule that flips there keeps flipping (vLLM issue #49548).
    """
    cells: list[Finding] = []
    for name, contexts in policy.table.classes.items():
        for context, cell in contexts.items():
            cells += _cell_findings(policy, f"table.classes.{name}.{context}", cell, median_load)
    found = _once(cells, len(policy.table.classes) * len(policy.context_buckets))
    for name, prior in policy.inputs.classes.items():
        if prior.reading == "conditional" and prior.rates is not None:
            found.append(
                Finding(
                    f"inputs.classes.{name}.reading",
                    "conditional rates; engines report unconditional ones (accepted at the position / drafts)",
                )
            )
    hardware, model = policy.inputs.hardware, policy.inputs.model
    if hardware is not None and model is not None and hardware.memory_bytes is not None:
        left = hardware.memory_bytes - model.weight_bytes
        if left <= 0:
            found.append(Finding("inputs.model.weight_bytes", "the weights do not fit in inputs.hardware.memory_bytes"))
        elif model.kv_bytes_per_token > 0:
            context = policy.context_buckets[len(policy.context_buckets) // 2]
            fits = int(left / (model.kv_bytes_per_token * context))
            if fits < policy.max_batch:
                found.append(
                    Finding(
                        "inputs.limits.max_batch",
                        f"memory holds at most about {fits} sequences of {context} tokens beside the weights",
                    )
                )
    return found


def _cell_findings(policy: Policy, key: str, cell: CellTable, median_load: float | None) -> list[Finding]:
    found: list[Finding] = []
    first_gamma = cell.best_gamma[0][2]
    if first_gamma == policy.max_gamma:
        found.append(
            Finding(f"{key}.best_gamma", f"gamma {first_gamma} is the edge of the search; a larger max_gamma may win")
        )
    if cell.plain_wins_from == 1:
        found.append(Finding(f"{key}.plain_wins_from", "this class never gains from the drafter"))
    elif cell.plain_wins_from is None:
        found.append(
            Finding(
                f"{key}.plain_wins_from",
                f"speculation wins up to batch {policy.max_batch}, the largest in the table; "
                "as far as your load stays below it, plain replicas are capacity lost",
            )
        )
    if len(cell.best_gamma) > _MANY_RANGES:
        found.append(
            Finding(f"{key}.best_gamma", f"{len(cell.best_gamma)} ranges; each edge is a load where gamma may flip")
        )
    if median_load is not None:
        edges = [first for first, _, _ in cell.best_gamma[1:] if abs(first - median_load) <= _DEAD_BAND * median_load]
        found += [
            Finding(f"{key}.best_gamma", f"an edge at batch {edge} stands on the median load {median_load}")
            for edge in edges
        ]
    return found


def _once(findings: list[Finding], cells: int) -> list[Finding]:
    """A remark that is the same for every cell of the table, said once."""
    counts = Counter((finding.key.rpartition(".")[2], finding.message) for finding in findings)
    merged: dict[Finding, None] = {}
    for finding in findings:
        column = finding.key.rpartition(".")[2]
        everywhere = cells > 1 and counts[column, finding.message] == cells
        merged[Finding(f"table.*.{column}", finding.message) if everywhere else finding] = None
    return list(merged)
