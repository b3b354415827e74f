"""What is legal in a policy and still worth a second look."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from adaptive_gamma.policy.dead_band import edge_on_load
from adaptive_gamma.policy.provenance import contradicted_points, provenance_ranges
from adaptive_gamma.policy.schema import (
    AutoregressiveInput,
    CellTable,
    ClassPrior,
    ParallelInput,
    PlainPoolInput,
    RooflineInput,
)
from adaptive_gamma.policy.table import Policy

__all__ = ["Finding", "lint_policy"]

_MANY_RANGES = 8
_NOISE = 0.05
"""A gain below this share is within the noise of most benchmarks (1-10 %)."""
_CHEAP_PASS = 0.06
_CHEAP_PARALLEL = 0.10
_FALLS = 0.85
"""Conditional acceptance whose last position is below this share of the first one falls."""


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
    cells += _extrapolated(policy)
    found = _once(cells, len(policy.table.classes) * len(policy.context_buckets))
    for name, prior in policy.inputs.classes.items():
        found += _prior_findings(policy, name, prior)
    found += _contradicted(policy)
    found += _physics_findings(policy)
    found += _limit_findings(policy)
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
    most = max((v for row in cell.speedup.values() for v in row if v is not None), default=0.0)
    if 1.0 <= most < 1.0 + _NOISE:
        found.append(
            Finding(f"{key}.speedup", f"gains {most - 1:.1%} at best, within the noise of a benchmark (1-10 %)")
        )
    if median_load is not None:
        edges = [first for first, _, _ in cell.best_gamma[1:] if edge_on_load(first, median_load)]
        found += [
            Finding(f"{key}.best_gamma", f"an edge at batch {edge} stands on the median load {median_load:g}")
            for edge in edges
        ]
    return found


def _prior_findings(policy: Policy, name: str, prior: ClassPrior) -> list[Finding]:
    """Traps of acceptance figures."""
    found: list[Finding] = []
    key = f"inputs.classes.{name}"
    if prior.reading == "conditional" and prior.rates is not None:
        found.append(
            Finding(
                f"{key}.reading",
                "conditional rates; engines report unconditional ones (accepted at the position / drafts)",
            )
        )
    known = len(prior.rates or ()) or (prior.line.positions if prior.line is not None else 0)
    curve = policy.curves[name].conditional
    if prior.reading == "conditional" and known >= 3 and curve[known - 1] < _FALLS * curve[0]:
        found.append(
            Finding(
                f"{key}.reading",
                f"conditional acceptance falls from {curve[0]:.2f} to {curve[known - 1]:.2f}; measured it is nearly "
                f"flat by position, and rates that fall are mostly unconditional ones: read so, longer drafts pay",
            )
        )
    longest = max(g for cell in policy.table.classes[name].values() for _, _, g in cell.best_gamma)
    if known and prior.plateau is None and longest > known:
        found.append(
            Finding(
                f"{key}.plateau",
                f"gamma {longest} is chosen, but acceptance is given for {known} positions; beyond them it is "
                f"extrapolated",
            )
        )
    return found


def _physics_findings(policy: Policy) -> list[Finding]:
    """Costs that published measurements contradict."""
    found: list[Finding] = []
    drafter, step = policy.inputs.drafter, policy.inputs.step_time
    if isinstance(drafter, AutoregressiveInput):
        share = drafter.pass_fraction if drafter.pass_fraction is not None else drafter.weight_fraction
        if share is not None and share < _CHEAP_PASS:
            found.append(
                Finding(
                    "inputs.drafter",
                    f"a drafter pass of {share:.1%} of a target step; measured are 10-14 % (vLLM issue #20780)",
                )
            )
    elif isinstance(drafter, ParallelInput) and drafter.weight_fraction < _CHEAP_PARALLEL:
        found.append(
            Finding(
                "inputs.drafter",
                f"a draft pass of {drafter.weight_fraction:.1%} of the target; measured are 17-26 % (vLLM blog "
                f"2026-08-14)",
            )
        )
    basic = step.plain if isinstance(step, PlainPoolInput) else step
    if isinstance(basic, RooflineInput) and basic.combine == "max":
        found.append(
            Finding(
                "inputs.step_time.combine",
                "the larger of memory and compute time is 25 % off measured steps on average; the power 2 fits them",
            )
        )
    return found


def _limit_findings(policy: Policy) -> list[Finding]:
    found: list[Finding] = []
    limits, limit = policy.inputs.limits, policy.cost.capture_limit_tokens
    least = max(limits.min_gamma, 1)
    if limit is None:
        found.append(
            Finding(
                "inputs.limits.capture_limit_tokens",
                "null: the table knows no captured graphs; on an engine with CUDA graphs leaving them costs up to 5x",
            )
        )
    elif limit < limits.max_batch * (least + 1):
        found.append(
            Finding(
                "inputs.limits.capture_limit_tokens",
                f"beyond batch {limit // (least + 1)} no draft fits {limit} captured tokens, so gamma is 0 there: cap "
                f"a speculative replica at that batch or capture more tokens",
            )
        )
    if limits.min_gamma == 0:
        untaxed = not any(tax for _, tax in policy.cost.zero_gamma_tax.points)
        found.append(
            Finding(
                "inputs.limits.min_gamma",
                "gamma 0 competes"
                + (" without a tax" if untaxed else "")
                + "; on a speculative engine it is 6.6 % to 21.6 % slower than plain decoding (vLLM issue #49548)",
            )
        )
    return found


def _batches(ranges: list[tuple[int, int]]) -> str:
    """``batch 8``, or ``batches 8 to 64``; of several ranges the first and last batch."""
    first, last = ranges[0][0], ranges[-1][1]
    return f"batch {first}" if first == last else f"batches {first} to {last}"


def _extrapolated(policy: Policy) -> list[Finding]:
    """Batches whose best gamma rests on no measurement."""
    if policy.evidence is None:
        return []
    found = []
    for name, contexts in policy.table.classes.items():
        for context, cell in contexts.items():
            unknown = [
                (max(first, start), min(last, end))
                for first, last, gamma in cell.best_gamma
                for start, end, word in provenance_ranges(policy.evidence, name, context, gamma)
                if word == "extrapolated" and max(first, start) <= min(last, end)
            ]
            if unknown:
                share = sum(end - start + 1 for start, end in unknown) / policy.max_batch
                found.append(
                    Finding(
                        f"table.classes.{name}.{context}.best_gamma",
                        f"extrapolated at {share:.0%} of the batches ({_batches(unknown)}); measure there",
                    )
                )
    return found


def _contradicted(policy: Policy) -> list[Finding]:
    """Measured points that the numbers the table is made of do not give."""
    if policy.evidence is None:
        return []
    found = []
    share = policy.inputs.limits.prompt_tokens_per_output_token
    traffic = f", made for {share:g} prompt tokens per output token," if share else ""
    of = contradicted_points(policy.evidence, policy.inputs.limits, policy.cost, policy.curves)
    for (name, arm), points in of.items():
        worst = max(points, key=lambda point: abs(point.error))
        more = f", and {len(points) - 1} more of this arm" if len(points) > 1 else ""
        found.append(
            Finding(
                f"evidence.points.{name}.{arm}",
                f"the table{traffic} lies {worst.error:+.0%} from the {1e3 * worst.seconds:.4g} ms a token measured at "
                f"batch {worst.batch:g}{more}: its step time or acceptance contradicts what it rests on",
            )
        )
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
