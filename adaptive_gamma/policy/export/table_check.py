"""Checking a schedule that an engine already has, or is about to get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adaptive_gamma.errors import ConfigurationError, nearest
from adaptive_gamma.policy.dead_band import edge_on_load
from adaptive_gamma.policy.export import sglang, tensorrt_llm, vllm
from adaptive_gamma.policy.export.engine import Gate, ServerOptions, Situation, gated, read_version
from adaptive_gamma.policy.export.mix import class_mix, meant_notes
from adaptive_gamma.policy.export.notes import Note
from adaptive_gamma.policy.export.prices import prices_of
from adaptive_gamma.policy.export.schedule import TAX_SOURCE, CellLoss, Step
from adaptive_gamma.policy.export.table_readers import READERS, ReadTable
from adaptive_gamma.policy.table import Policy

__all__ = ["TableOptions", "TableReport", "check_engine_table"]

_MANY_STEPS = 6
_LARGEST = 2**63 - 1
"""What an engine's own integers hold."""
_MOST_PRICED = 1024
_NO_VERSION = Note("note", "version_not_given", "give the engine's version: what it does with the table depends on it")
_NARROW = 1.25
_GATES: Mapping[str, tuple[Gate, ...]] = {
    "sglang": sglang.GATES,
    "tensorrt-llm": tensorrt_llm.GATES,
}


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What is known of the server that has the table. None is not known."""

    server: ServerOptions = field(default_factory=ServerOptions)
    max_batch: int | None = None
    """Largest number of running sequences (vLLM: max_num_seqs)."""
    max_gamma: int | None = None
    """The engine's maximum (num_speculative_tokens, speculative_num_steps, max_draft_len)."""
    capture_limit_tokens: int | None = None
    median_load: float | None = None
    mix: Mapping[str, float] | None = None
    """For the policy's judgement, as in an export."""


@dataclass(frozen=True, slots=True)
class TableReport:
    """What the engine makes of a table, and what there is to say of it."""

    engine: str
    steps: tuple[Step, ...]
    """Gamma by batch as the engine takes it, from 1 to ``max_batch``; empty where it rejects the table."""
    max_batch: int
    notes: tuple[Note, ...]
    cells: tuple[CellLoss, ...]
    """Predicted loss against each class's best gamma; empty without a policy or where the table is no fixed one."""
    mix_loss: CellLoss | None
    """The same for the mix of classes at the policy's middle context."""

    @property
    def refused(self) -> bool:
        return any(note.severity == "refusal" for note in self.notes)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        losses = [*self.cells, *([] if self.mix_loss is None else [self.mix_loss])]
        return {
            "engine": self.engine,
            "steps": [[s.first, s.last, s.gamma] for s in self.steps],
            "max_batch": self.max_batch,
            "refused": self.refused,
            "loss": [
                {
                    "class": c.request_class,
                    "context": c.context,
                    "mean": round(c.loss.mean, 6),
                    "worst": round(c.loss.worst, 6),
                    "worst_batch": c.loss.worst_batch,
                }
                for c in losses
            ],
            "notes": [note.to_json() for note in self.notes],
        }


def check_engine_table(
    engine: str, data: Any, options: TableOptions | None = None, policy: Policy | None = None
) -> TableReport:
    """Lint an engine's table.

    Args:
        engine: vllm, sglang or tensorrt-llm.
        data: parsed JSON or YAML: the table, or the configuration around it.
        options: what is known of the server.
        policy: judges the table by its prices, and gives limits that ``options`` leave open.

    Raises ConfigurationError for an unknown engine, a version that is none, or a class the policy lacks.
    """
    if engine not in READERS:
        raise ConfigurationError(
            "engine", "", f"no such engine: {engine!r}; there are {', '.join(READERS)}", nearest(engine, READERS)
        )
    known = options or TableOptions()
    read = READERS[engine](data, known.max_gamma)
    batches = known.max_batch or (policy.max_batch if policy is not None else read.last) or 1
    steps = _steps(read, batches)
    _check_size(batches, steps)
    notes = [*read.notes, *_gate_notes(engine, known, read, steps, policy)]
    notes += _common(engine, steps, read, known, policy)
    cells: tuple[CellLoss, ...] = ()
    mix_loss: CellLoss | None = None
    largest = max((step.gamma for step in steps), default=0)
    if policy is not None and steps and not read.exact:
        notes.append(Note("note", "not_priced", "slots with several candidates have no fixed gamma to be priced"))
    elif policy is not None and largest > _MOST_PRICED:
        notes.append(Note("note", "not_priced", f"gamma {largest} is beyond what is priced ({_MOST_PRICED})"))
    elif policy is not None and steps:
        notes += meant_notes(policy, known.mix)
        cells, mix_loss = _judged(policy, [s.gamma for s in steps for _ in range(s.first, s.last + 1)], known)
    return TableReport(engine, steps, batches, tuple(notes), cells, mix_loss)


def _steps(read: ReadTable, batches: int) -> tuple[Step, ...]:
    """Gamma by batch up to ``batches``. By range, for a table may name a last batch that no machine could count to."""
    if read.gamma_at is None:
        return ()
    firsts = [1, *(edge for edge in read.edges if 1 < edge <= batches)]
    steps: list[Step] = []
    for first, after in zip(firsts, [*firsts[1:], batches + 1], strict=True):
        gamma = read.gamma_at(first)
        if steps and steps[-1].gamma == gamma:
            steps[-1] = Step(steps[-1].first, after - 1, gamma)
        else:
            steps.append(Step(first, after - 1, gamma))
    return tuple(steps)


def _check_size(batches: int, steps: tuple[Step, ...]) -> None:
    for what, value in (("batch", batches), ("gamma", max((step.gamma for step in steps), default=0))):
        if value > _LARGEST:
            raise ConfigurationError(
                "engine table", what, f"expected at most {_LARGEST} (2^63 - 1), not {_shown(value)}"
            )


def _gate_notes(
    engine: str, known: TableOptions, read: ReadTable, steps: tuple[Step, ...], policy: Policy | None
) -> list[Note]:
    server = known.server
    version = read_version(server.version, engine)
    method = server.method or read.method
    has_zero = any(step.gamma == 0 for step in steps)
    if engine == "vllm":
        if method is None and policy is not None:
            method = vllm.vllm_method(policy, server)
        if version is None:
            vllm.check_method(server.method)
            return [_NO_VERSION]
        vllm.check_method(server.method)
        found = vllm.gate_notes(version, method, server, has_zero, constant=read.constant)
    else:
        found = gated(_GATES[engine], Situation(version, None, method, server.data_parallel, has_zero, read.constant))
    return [note for note in found if note.severity != "note"]


def _common(
    engine: str, steps: tuple[Step, ...], read: ReadTable, known: TableOptions, policy: Policy | None
) -> list[Note]:
    found: list[Note] = []
    limit = known.capture_limit_tokens
    if limit is None and policy is not None:
        limit = policy.cost.capture_limit_tokens
    for step in steps:
        tokens = step.last * (step.gamma + 1)
        if limit is not None and step.gamma > 0 and tokens > limit:
            fits = limit // (step.gamma + 1)
            found.append(
                Note(
                    "warning",
                    "capture_limit",
                    f"gamma {step.gamma} up to batch {step.last} is {tokens} tokens, beyond the {limit} captured ones: "
                    f"up to "
                    + (f"5x slower from batch {max(fits + 1, step.first)}" if fits < step.last else "5x slower"),
                    "vLLM blog 2026-08-14: 20.6 -> 104.5 ms beyond the limit",
                )
            )
    if limit is None and steps:
        found.append(Note("note", "capture_limit_unknown", "no capture limit given; that it is kept was not checked"))
    if known.median_load is not None and steps and known.median_load > steps[-1].last:
        words = f"the median load {known.median_load:g} lies beyond {steps[-1].last}, the last batch looked at"
        found.append(Note("warning", "median_load", words))
    if known.median_load is not None:
        found += [
            Note(
                "warning",
                "median_load",
                f"the edge at batch {step.first} stands on the median load {known.median_load:g}: gamma flips there",
                TAX_SOURCE,
            )
            for step in steps[1:]
            if edge_on_load(step.first, known.median_load)
        ]
    if len(steps) > _MANY_STEPS:
        found.append(Note("warning", "many_steps", f"{len(steps)} ranges; each edge is a load where gamma may flip"))
    found += [
        Note("note", "narrow", f"the range {step.first}..{step.last} is narrower than a load usually varies")
        for step in steps[1:-1]
        if step.first >= 4 and step.last < _NARROW * step.first
    ]
    zero = next((step for step in steps if step.gamma == 0), None)
    if zero is not None:
        beyond = engine == "tensorrt-llm" and zero.first > read.last
        where = (
            f"beyond batch {read.last}, the last key, the draft length is 0"
            if beyond
            else f"gamma is 0 from batch {zero.first}"
        )
        found.append(
            Note(
                "warning",
                "zero_gamma",
                f"{where}: on a speculative engine that is 6.6 % (concurrency 2) to 21.6 % (189) slower than plain "
                f"decoding; route that load to a plain replica",
                TAX_SOURCE,
            )
        )
    return found


def _judged(policy: Policy, gammas: list[int], known: TableOptions) -> tuple[tuple[CellLoss, ...], CellLoss]:
    limit = known.capture_limit_tokens or policy.cost.capture_limit_tokens
    candidates = sorted({0, *gammas, *range(max(policy.min_gamma, 1), policy.max_gamma + 1)})

    def loss(name: str, mix: Mapping[str, float], context: int) -> CellLoss:
        priced = prices_of(policy, mix, context, candidates, len(gammas), limit)
        return CellLoss(name, context, priced.loss_of(gammas))

    middle = policy.context_buckets[policy.context_bucket(None)]
    mix = class_mix(policy, known.mix)
    words = ", ".join(f"{name} {share:.0%}" for name, share in mix.items())
    cells = tuple(loss(name, {name: 1.0}, context) for name in policy.classes for context in policy.context_buckets)
    return cells, loss(f"mix: {words}", mix, middle)


def _shown(value: int) -> str:
    return str(value) if value < 10**30 else f"a number of {len(str(value))} digits"
