"""Cells into what a calibration takes: the time per token of a decoding batch, with context and prompt tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from adaptive_gamma.bench.cells import Cell, Cells
from adaptive_gamma.bench.curves import ClassCurve, class_curves
from adaptive_gamma.bench.importers.finding import Findings, ImportFinding
from adaptive_gamma.bench.row import SweepRow
from adaptive_gamma.roofline import draft_length_varies
from adaptive_gamma.roofline.calibrate import Observation

__all__ = ["STEP_CLASS", "SweepObservations", "decoding_batch", "sweep_observations"]

STEP_CLASS = "(single steps)"
"""Class of steps that were timed directly: they tell a step's time and nothing of acceptance."""
MOST_SHORT = 0.15
"""Share of draft tokens that may be missing (drafts cut off at a request's end) for a step to count as B (g + 1)."""
LEAST_DRAFTED = 0.75
"""Share of the output that steps with drafts must have made; below it the other steps' time is in the mix."""


@dataclass(frozen=True, slots=True)
class SweepObservations:
    """What a sweep tells a calibration: observations, acceptance by class, and what was left out and why."""

    observations: tuple[Observation, ...]
    curves: dict[str, ClassCurve]
    rows: tuple[SweepRow, ...]
    """The rows that the observations were made of, in their order."""
    findings: tuple[ImportFinding, ...]

    @property
    def has_plain(self) -> bool:
        """Whether an engine without a drafter was measured."""
        return not all(one.speculative for one in self.observations)


def sweep_observations(
    cells: Cells, *, prompts_cached: bool = False, fit_acceptance: bool = False
) -> SweepObservations:
    """One observation for each run of each cell, and for each kind of single step.

    Args:
        cells: of one engine, model and drafter.
        prompts_cached: the prompts were in the engine's prefix cache, so that steps held no prompt tokens.
        fit_acceptance: take speculative runs without any acceptance, whose tokens per step are then fitted; an engine
            that drafted nothing looks the same, so this must be known from elsewhere.
    """
    findings = Findings()
    batches = {row.source: batch for cell in cells.cells for row, batch in _batches(cell)}
    rows = [row for cell in cells.cells for row in cell.rows]
    mixed = _mixed_totals(rows)
    observations: list[tuple[SweepRow, Observation]] = []
    for row in rows:
        problem = _acceptance_problem(row, row.source in mixed, fit_acceptance)
        if problem is not None:
            findings.refused(row.source, problem, "acceptance")
            continue
        observations.append((row, _of_run(row, batches[row.source], prompts_cached)))
    curves = class_curves([row for row, _ in observations], findings)
    observations += [(row, seen) for row in cells.steps if (seen := _of_step(row, findings)) is not None]
    kept = _of_known_context(observations, findings)
    return SweepObservations(
        tuple(seen for _, seen in kept), curves, tuple(row for row, _ in kept), tuple(findings.items)
    )


def decoding_batch(row: SweepRow) -> float | None:
    """How many sequences decode together, as a sequence that decodes sees it; itself included.

    Tokens/s x time per token is the mean number that decode at any time (Little's law); over the N in flight it is the
    share p of its time that a request decodes. To one that decodes, each of the others does so with p: 1 + (N - 1) p. A
    request that waits for its first token is in flight and not in the batch. Without a time or a rate, the
    concurrency measured, else the one asked for.
    """
    in_flight = row.concurrency or (None if row.concurrency_asked is None else float(row.concurrency_asked))
    tpot = row.tpot_mean_s or row.tpot_p50_s
    if not (tpot and row.output_tokens_per_s):
        return in_flight
    later = 1.0 if not row.output_tokens else max(row.output_tokens - 1.0, 0.0) / row.output_tokens
    decoding = row.output_tokens_per_s * later * tpot
    if in_flight is None:
        return decoding if decoding > 0 else None
    return 1.0 + max(in_flight - 1.0, 0.0) * min(decoding / in_flight, 1.0)


def _batches(cell: Cell) -> Iterator[tuple[SweepRow, float]]:
    """Each run with the batch of its cell: runs of a cell differ by chance, and a table needs one entry for them."""
    known = [batch for row in cell.rows if (batch := decoding_batch(row)) is not None]
    for row in cell.rows:
        yield row, float(f"{median(known):.6g}")


def _of_run(row: SweepRow, batch: float, prompts_cached: bool) -> Observation:
    gamma, tpot = row.gamma or 0, row.tpot_p50_s or row.tpot_mean_s
    assert tpot  # cells hold only runs that have a time and a load
    per_step = row.acceptance.mean_length if gamma and row.acceptance is not None else None
    prefill = 0.0
    if not prompts_cached and row.input_tokens and row.output_tokens:
        # While a sequence decodes, the prompts in its steps are those of the others.
        prefill = max(batch - 1.0, 0.0) * (per_step or 1.0) * row.input_tokens / row.output_tokens
    return Observation(
        batch=batch,
        gamma=gamma,
        speculative=bool(row.speculative),
        context_tokens=(row.input_tokens or 0.0) + 0.5 * (row.output_tokens or 0.0),
        prefill_tokens=prefill,
        seconds_per_token=tpot,
        tokens_per_step=None if per_step is None else min(per_step, gamma + 1.0),
        request_class=row.request_class,
        run=row.run,
        failed_share=row.failed / max(row.completed + row.failed, 1),
        label=str(row.source),
        load=float(row.concurrency_asked or row.concurrency or batch),
    )


def _acceptance_problem(row: SweepRow, mixed: bool, fit_acceptance: bool) -> str | None:
    """Why a speculative run's time per token cannot be made into a step's time, or None."""
    gamma, seen = row.gamma, row.acceptance
    if not gamma:
        return None
    if seen is None or seen.mean_length is None:
        if fit_acceptance:
            return None
        return (
            f"not known at gamma {gamma}: the engine may have drafted nothing (--fit-acceptance takes it all the same)"
        )
    if seen.mean_length > (gamma + 1.0) * (1 + 1e-6):
        return f"{seen.mean_length:g} tokens a step are more than gamma {gamma} can give"
    if mixed:
        return "is a server's total over several classes or data sets, so it is none of this run"
    if draft_length_varies(seen.drafts, seen.draft_tokens, gamma, MOST_SHORT) and seen.drafts:
        length = (seen.draft_tokens or 0) / seen.drafts
        return f"drafts had {length:.2f} of {gamma} tokens on average, so a step is not batch x (gamma + 1) tokens"
    if seen.drafts and row.output_tokens and not seen.cumulative:
        made = seen.drafts * seen.mean_length / (row.completed * max(row.output_tokens - 1.0, 1.0))
        if made < LEAST_DRAFTED:
            return f"only {made:.0%} of the output came from steps with drafts; the others' time is in the mix"
    return None


def _mixed_totals(rows: Sequence[SweepRow]) -> set[object]:
    """Sources of rows whose acceptance is a server's running total over more than one kind of traffic."""
    kinds: dict[int | None, set[tuple[str | None, str | None]]] = defaultdict(set)
    for row in rows:
        if row.acceptance is not None and row.acceptance.cumulative:
            kinds[row.gamma].add((row.dataset, row.request_class))
    return {
        row.source
        for row in rows
        if row.acceptance is not None and row.acceptance.cumulative and len(kinds[row.gamma]) > 1
    }


def _of_step(row: SweepRow, findings: Findings) -> Observation | None:
    step = row.step
    assert step is not None  # Cells.steps holds only such rows
    gamma = row.gamma or 0
    if step.tokens_per_sequence is not None and abs(step.tokens_per_sequence - gamma - 1.0) > 1e-6:
        findings.refused(
            row.source, f"{step.tokens_per_sequence:g} tokens a sequence are not those of gamma {gamma}", "step"
        )
        return None
    if step.seconds <= 0 or step.sequences <= 0:
        findings.refused(row.source, "a step without time or sequences", "step")
        return None
    return Observation(
        batch=float(step.sequences),
        gamma=gamma,
        speculative=bool(row.speculative),
        context_tokens=step.context_tokens or 0.0,
        prefill_tokens=float(step.prefill_tokens),
        seconds_per_token=step.seconds,
        tokens_per_step=1.0,
        request_class=STEP_CLASS,
        run=row.run,
        label=str(row.source),
        includes_drafter=step.includes_drafter,
    )


def _of_known_context(
    seen: Sequence[tuple[SweepRow, Observation]], findings: Findings
) -> list[tuple[SweepRow, Observation]]:
    """All of them where none knows its context; else those that do, for 0 would say that the others have none."""
    if not any(observation.context_tokens for _, observation in seen):
        return list(seen)
    for row, observation in seen:
        if not observation.context_tokens:
            findings.refused(row.source, "no context length, while other rows have one", "input_tokens")
    return [(row, observation) for row, observation in seen if observation.context_tokens]
