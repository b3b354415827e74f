"""From a policy to a schedule of few ranges: batch to gamma, whatever engine it is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from adaptive_gamma.errors import ConfigurationError, ExportRefused
from adaptive_gamma.policy.dead_band import edge_on_load
from adaptive_gamma.policy.export.mix import class_mix, meant_notes
from adaptive_gamma.policy.export.notes import Note
from adaptive_gamma.policy.export.prices import Loss, Prices, prices_of
from adaptive_gamma.policy.export.search import Candidate, fewest_ranges
from adaptive_gamma.policy.table import Policy
from adaptive_gamma.roofline import FloatArray

__all__ = ["CellLoss", "Schedule", "ScheduleOptions", "Step", "make_schedule", "steps_of"]

_WORST_TO_MEAN = 5.0
"""A merged schedule may lose this many times the tolerance at its worst batch."""
TAX_SOURCE = "vLLM issue #49548"


@dataclass(frozen=True, slots=True)
class Step:
    """One range of batches with one gamma; both ends are in it."""

    first: int
    last: int
    gamma: int


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """What a schedule is made for. None takes the policy's value."""

    mix: Mapping[str, float] | None = None
    """Shares of the running sequences by class; None is the default class alone."""
    context_tokens: float | None = None
    """The context whose prices count; None is the policy's middle bucket."""
    median_load: float | None = None
    """Usual number of running sequences: no edge is placed on it."""
    max_steps: int = 4
    tolerance: float = 0.005
    """Ranges are merged as far as the mean predicted loss stays below this share (and the worst below 5 times it)."""
    allow_zero: bool = False
    zero_margin: float = 0.05
    """Share by which gamma 0 must win before it is chosen: benchmark noise is 1-10 %."""
    max_batch: int | None = None
    """The engine's largest number of running sequences."""
    max_gamma: int | None = None
    capture_limit_tokens: int | None = None
    no_capture_limit: bool = False


@dataclass(frozen=True, slots=True)
class CellLoss:
    """What the one table costs a class at a context, against that class's own best gamma at each batch."""

    request_class: str
    context: int
    loss: Loss


@dataclass(frozen=True, slots=True)
class Schedule:
    """Gamma by batch in few ranges, without a gap from 1 to ``max_batch``."""

    steps: tuple[Step, ...]
    max_batch: int
    """The engine must not run more sequences than this."""
    capture_limit_tokens: int | None
    mix: dict[str, float]
    context: int
    free_steps: tuple[Step, ...]
    """The best gamma at each batch, nothing merged."""
    merging: Loss
    """What ``steps`` loses against ``free_steps``."""
    cells: tuple[CellLoss, ...]
    static_gamma: int
    """The best single gamma."""
    static: Loss
    plain_wins_from: int | None
    """First batch from which plain decoding beats every gamma above 0, for the mix."""
    notes: tuple[Note, ...] = ()

    @property
    def max_gamma(self) -> int:
        return max(step.gamma for step in self.steps)

    @property
    def has_zero(self) -> bool:
        return any(step.gamma == 0 for step in self.steps)

    @property
    def constant(self) -> int | None:
        """The gamma of a schedule of one range; None where there are more, and for 0, which no engine takes so."""
        return self.steps[0].gamma if len(self.steps) == 1 and self.steps[0].gamma > 0 else None

    def gamma_at(self, batch: int) -> int:
        """The gamma at a batch; beyond the last range that of the last one."""
        return next((step.gamma for step in self.steps if batch <= step.last), self.steps[-1].gamma)


def steps_of(gamma_by_batch: Sequence[int]) -> tuple[Step, ...]:
    """Runs of equal gammas; ``gamma_by_batch[b - 1]`` is the gamma at batch b."""
    steps: list[Step] = []
    for batch, gamma in enumerate(gamma_by_batch, 1):
        if steps and steps[-1].gamma == gamma:
            steps[-1] = Step(steps[-1].first, batch, gamma)
        else:
            steps.append(Step(batch, batch, gamma))
    return tuple(steps)


def make_schedule(policy: Policy, options: ScheduleOptions, *, first_is_largest: bool = False) -> Schedule:
    """The schedule of fewest ranges whose predicted loss stays within the tolerance.

    ``first_is_largest``: the engine takes no later gamma above the first one.

    Raises ConfigurationError for options out of range, ExportRefused where no gamma fits the capture limit.
    """
    mix = class_mix(policy, options.mix)
    limit = _limit(policy, options)
    gammas = _gammas(policy, options)
    wanted = options.max_batch if options.max_batch is not None else policy.max_batch
    _check(options, wanted)
    batches = _batches(wanted, gammas[0], limit)
    if batches < 1:
        raise ExportRefused(
            "schedule",
            "capture limit",
            f"{limit} captured tokens leave no room for gamma {gammas[0]} even at one sequence; raise the limit",
        )
    bucket = policy.context_bucket(options.context_tokens)
    prices = prices_of(policy, mix, policy.context_buckets[bucket], gammas, batches, limit)
    searched = fewest_ranges(
        _cost(prices, options.zero_margin), options.max_steps, _may_start(options.median_load), first_is_largest
    )
    # The least gamma may run at every batch, so there always is a schedule of one range.
    candidates = [candidate for candidate in searched if candidate is not None]
    chosen = _few_enough(candidates, prices, options.tolerance)
    free = [prices.gammas[i] for i in np.where(prices.allowed, prices.speedup, -np.inf).argmax(axis=0)]
    table = [prices.gammas[i] for i in chosen.rows]
    static = prices.gammas[int(candidates[0].rows[0])]
    made = Schedule(
        steps=steps_of(table),
        max_batch=batches,
        capture_limit_tokens=limit,
        mix=mix,
        context=policy.context_buckets[bucket],
        free_steps=steps_of(free),
        merging=prices.loss_of(table),
        cells=_cells(policy, table, gammas, batches, limit),
        static_gamma=static,
        static=prices.loss_of([static] * batches),
        plain_wins_from=prices.plain_wins_from(),
    )
    return replace(made, notes=_notes(policy, made, options, wanted))


def _limit(policy: Policy, options: ScheduleOptions) -> int | None:
    if options.no_capture_limit:
        return None
    if options.capture_limit_tokens is not None:
        return options.capture_limit_tokens
    return policy.cost.capture_limit_tokens


def _gammas(policy: Policy, options: ScheduleOptions) -> list[int]:
    most = policy.max_gamma if options.max_gamma is None else min(policy.max_gamma, options.max_gamma)
    least = max(policy.min_gamma, 1)
    if most < least:
        raise ConfigurationError(
            "schedule", "max gamma", f"expected at least {least}, the policy's smallest gamma, not {options.max_gamma}"
        )
    return [*([0] if options.allow_zero else []), *range(least, most + 1)]


def _check(options: ScheduleOptions, wanted: int) -> None:
    if not 1 <= options.max_steps <= 64:
        raise ConfigurationError("schedule", "steps", f"expected 1..64, not {options.max_steps}")
    if not 1 <= wanted <= 65536:
        raise ConfigurationError("schedule", "max batch", f"expected 1..65536, not {wanted}")
    for name, share in (("tolerance", options.tolerance), ("zero margin", options.zero_margin)):
        if not 0 <= share < 1:
            raise ConfigurationError("schedule", name, f"expected a share in 0..1 (5 % is 0.05), not {share!r}")
    if options.median_load is not None and not options.median_load >= 1:
        raise ConfigurationError("schedule", "median load", f"expected at least 1, not {options.median_load!r}")


def _batches(wanted: int, least_gamma: int, limit: int | None) -> int:
    """Batches that the least gamma can serve within the limit."""
    return wanted if limit is None or least_gamma == 0 else min(wanted, limit // (least_gamma + 1))


def _cost(prices: Prices, zero_margin: float) -> FloatArray:
    """What a choice costs at each batch: the share lost; gamma 0 must win by the margin."""
    lost = prices.losses()
    if prices.gammas[0] == 0:
        lost[0] += zero_margin
    weighted: FloatArray = lost * prices.weights
    return weighted


def _may_start(median_load: float | None) -> Callable[[int], bool]:
    return lambda batch: median_load is None or not edge_on_load(batch, median_load)


def _few_enough(candidates: Sequence[Candidate], prices: Prices, tolerance: float) -> Candidate:
    """The candidate of fewest ranges within the tolerance of the best one; else the best one."""
    losses = [prices.loss_of([prices.gammas[i] for i in candidate.rows]) for candidate in candidates]
    reached = losses[-1]
    for candidate, loss in zip(candidates, losses, strict=True):
        worst_allowed = max(_WORST_TO_MEAN * tolerance, reached.worst)
        if loss.mean <= reached.mean + tolerance and loss.worst <= worst_allowed:
            return candidate
    return candidates[-1]


def _cells(
    policy: Policy, table: Sequence[int], gammas: Sequence[int], batches: int, limit: int | None
) -> tuple[CellLoss, ...]:
    return tuple(
        CellLoss(name, context, prices_of(policy, {name: 1.0}, context, gammas, batches, limit).loss_of(table))
        for name in policy.classes
        for context in policy.context_buckets
    )


def _notes(policy: Policy, made: Schedule, options: ScheduleOptions, wanted: int) -> tuple[Note, ...]:
    found = meant_notes(policy, options.mix)
    limit = made.capture_limit_tokens
    if limit is None:
        found.append(
            Note(
                "warning",
                "capture_limit_unknown",
                "no capture limit is known: the table may leave the captured graphs, which costs up to 5x; give the "
                "engine's limit (vLLM's own ceiling is 512 tokens on H200, 1024 on data-center Blackwell)",
                "vLLM PR #54418, vLLM blog 2026-08-14",
            )
        )
    if made.max_batch < wanted:
        least = min(step.gamma for step in made.steps)
        found.append(
            Note(
                "warning",
                "capture_limit",
                f"beyond {made.max_batch} sequences gamma {least} leaves the {limit} captured tokens; the flags cap "
                f"the replica there. To run {wanted}, capture {wanted * (least + 1)} tokens, or route the rest to a "
                "plain replica",
                "vLLM blog 2026-08-14: 20.6 -> 104.5 ms beyond the limit",
            )
        )
    if limit is not None and made.has_zero and made.max_batch > limit:
        found.append(
            Note("warning", "capture_limit", f"beyond {limit} sequences even plain decoding leaves the captured graphs")
        )
    buckets = policy.context_buckets
    if options.context_tokens is not None and not buckets[0] <= options.context_tokens <= buckets[-1]:
        found.append(
            Note(
                "warning",
                "context_outside",
                f"context {options.context_tokens:.0f} lies outside of the policy's buckets "
                f"({', '.join(map(str, buckets))}); the prices of {made.context} count. Build the policy with "
                f"--context {options.context_tokens:.0f}",
            )
        )
    if wanted > policy.max_batch:
        found.append(
            Note(
                "note",
                "beyond_table",
                f"batches {policy.max_batch + 1}..{min(wanted, made.max_batch)} lie beyond the policy's table; they "
                "are priced by its model",
            )
        )
    if options.median_load is not None and options.median_load > made.max_batch:
        found.append(
            Note("warning", "median_load", f"the median load lies beyond {made.max_batch}, the last batch of the table")
        )
    if made.has_zero:
        found.append(
            Note(
                "warning",
                "zero_gamma",
                "gamma 0 on a speculative engine is not plain decoding: measured 6.6 % slower per token at "
                "concurrency 2 and 21.6 % at 189; a plain replica for that load serves it faster",
                TAX_SOURCE,
            )
        )
        if not any(tax for _, tax in policy.cost.zero_gamma_tax.points):
            found.append(
                Note(
                    "warning",
                    "zero_gamma_untaxed",
                    "the policy prices gamma 0 at no tax (inputs.limits.zero_gamma_tax): the table uses it too early",
                )
            )
    elif made.plain_wins_from is not None:
        found.append(
            Note(
                "note",
                "route_to_plain",
                f"from {made.plain_wins_from} sequences plain decoding is predicted to be faster than any gamma; route "
                "that load to a plain replica rather than let this one draft 0, which is 6.6 % to 21.6 % slower",
                TAX_SOURCE,
            )
        )
    return tuple(found)
