"""One measured point of a sweep, whatever tool measured it, and its form as one line of JSON.

Seconds and tokens throughout. What a file does not say is None, never 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adaptive_gamma.bench.fields import Fields
from adaptive_gamma.bench.source import Source
from adaptive_gamma.errors import nearest

__all__ = ["ROW_SCHEMA", "Source", "SpeculationSeen", "StepSeen", "SweepRow", "row_from_json", "row_to_json"]

ROW_SCHEMA = "adaptive-gamma/sweep-row/v1"
MOST_GAMMA = 64


@dataclass(frozen=True, slots=True)
class SpeculationSeen:
    """What an engine said about its drafts.

    drafts: speculative steps counted; mean_length: tokens a step emits, the model's own one included;
    per_position: accepted at position i / drafts (UNCONDITIONAL), from the first position on;
    histogram: number of steps that accepted 0, 1, 2... drafts; cumulative: the server's total since its start
    (or its last reset), not this run's share; draft_tokens: tokens drafted in all; made_up_prompts: measured on random
    tokens or other prompts nobody sends, so true of this run's speed and of nothing else.
    """

    drafts: int | None = None
    mean_length: float | None = None
    per_position: tuple[float, ...] | None = None
    histogram: tuple[int, ...] | None = None
    cumulative: bool = False
    draft_tokens: int | None = None
    made_up_prompts: bool = False


@dataclass(frozen=True, slots=True)
class StepSeen:
    """One kind of engine step, timed directly.

    seconds: the median step; sequences: decoding sequences in it; tokens_per_sequence: query tokens of each (gamma + 1
    when verifying); scheduled_tokens: all tokens of the step, prefill included; context_tokens: mean KV length;
    includes_drafter: whether the drafter's time is part of ``seconds``.
    """

    seconds: float
    sequences: int
    tokens_per_sequence: float | None
    scheduled_tokens: int
    context_tokens: float | None
    includes_drafter: bool
    prefill_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One cell of a sweep as one run measured it.

    format: the importer's name; arm: the label under which the file tells its arms apart; gamma: draft tokens asked
    for, 0 drafts nothing; speculative: False is an engine without a drafter, True one that has it (with gamma 0: K=0),
    None not known; concurrency_asked: the client's cap; concurrency: measured mean of requests in flight;
    input_tokens, output_tokens: means per request; failed: errors, time-outs and requests cut off by the tool;
    run: tells repeats of a cell apart.
    """

    source: Source
    format: str
    engine: str | None = None
    engine_version: str | None = None
    model: str | None = None
    drafter: str | None = None
    dataset: str | None = None
    request_class: str | None = None
    arm: str | None = None
    gamma: int | None = None
    speculative: bool | None = None
    concurrency_asked: int | None = None
    concurrency: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    output_tokens_per_s: float | None = None
    tpot_p50_s: float | None = None
    tpot_p99_s: float | None = None
    tpot_mean_s: float | None = None
    ttft_p50_s: float | None = None
    acceptance: SpeculationSeen | None = None
    completed: int = 0
    failed: int = 0
    duration_s: float | None = None
    step: StepSeen | None = None
    run: str = ""


TEXTS = ("engine", "engine_version", "model", "drafter", "dataset", "request_class", "arm")
LENGTHS = ("input_tokens", "output_tokens")
TIMES_PER_TOKEN = ("tpot_p50_s", "tpot_p99_s", "tpot_mean_s")
TIMES = ("ttft_p50_s", "duration_s")
ROW_KEYS = {field.name for field in dataclasses.fields(SweepRow)} - {"source"} | {"schema"}
SEEN_KEYS = {field.name for field in dataclasses.fields(SpeculationSeen)}
STEP_KEYS = {field.name for field in dataclasses.fields(StepSeen)}


def row_to_json(row: SweepRow) -> dict[str, Any]:
    """The row as a JSON object without unknown values. The source is no part of it: it is where the row stands."""
    values: dict[str, Any] = {"schema": ROW_SCHEMA}
    for field in dataclasses.fields(row):
        value = getattr(row, field.name)
        if field.name == "source" or value is None:
            continue
        if isinstance(value, SpeculationSeen | StepSeen):
            value = {key: item for key, item in dataclasses.asdict(value).items() if item is not None}
            value = {key: list(item) if isinstance(item, tuple) else item for key, item in value.items()}
        values[field.name] = value
    return values


def row_from_json(values: Mapping[str, Any], source: Source) -> SweepRow:
    """The row that ``row_to_json`` wrote. Raises SweepError with the field's name for anything else."""
    fields = Fields(values, source)
    schema = fields.text("schema")
    if schema != ROW_SCHEMA:
        raise fields.error("schema", f"expected {ROW_SCHEMA!r}, got {schema!r}")
    _only(fields, ROW_KEYS)
    row_format = fields.text("format")
    if row_format is None:
        raise fields.error("format", "is missing")
    by_kind: dict[str, Any] = {
        **{key: fields.text(key) for key in TEXTS},
        **{key: fields.length(key) for key in LENGTHS},
        **{key: fields.seconds_per_token(key) for key in TIMES_PER_TOKEN},
        **{key: fields.seconds(key) for key in TIMES},
    }
    return SweepRow(
        source=source,
        format=row_format,
        speculative=fields.flag("speculative"),
        acceptance=_acceptance(fields.object("acceptance")),
        completed=fields.count("completed") or 0,
        failed=fields.count("failed") or 0,
        step=_step(fields.object("step")),
        run=fields.text("run") or "",
        gamma=fields.count("gamma", most=MOST_GAMMA),
        concurrency_asked=fields.concurrency("concurrency_asked"),
        concurrency=fields.load("concurrency"),
        output_tokens_per_s=fields.tokens_per_second("output_tokens_per_s"),
        **by_kind,
    )


def _acceptance(fields: Fields | None) -> SpeculationSeen | None:
    if fields is None:
        return None
    _only(fields, SEEN_KEYS)
    per_position = fields.numbers("per_position")
    if per_position is not None and max(per_position, default=0.0) > 1.0:
        raise fields.error("per_position", f"holds a rate above 1: {max(per_position):g}")
    return SpeculationSeen(
        drafts=fields.count("drafts"),
        mean_length=fields.number("mean_length", least=1.0),
        per_position=per_position,
        histogram=fields.counts("histogram"),
        cumulative=bool(fields.flag("cumulative")),
        draft_tokens=fields.count("draft_tokens"),
        made_up_prompts=bool(fields.flag("made_up_prompts")),
    )


def _step(fields: Fields | None) -> StepSeen | None:
    if fields is None:
        return None
    _only(fields, STEP_KEYS)
    includes_drafter = fields.flag("includes_drafter")
    if includes_drafter is None:
        raise fields.error("includes_drafter", "is missing")
    seconds = fields.seconds_per_token("seconds")
    if seconds is None:
        raise fields.error("seconds", "is missing")
    return StepSeen(
        seconds=seconds,
        sequences=fields.required_count("sequences"),
        tokens_per_sequence=fields.number("tokens_per_sequence"),
        scheduled_tokens=fields.required_count("scheduled_tokens"),
        context_tokens=fields.length("context_tokens"),
        includes_drafter=includes_drafter,
        prefill_tokens=fields.count("prefill_tokens") or 0,
    )


def _only(fields: Fields, known: set[str]) -> None:
    for key in fields.values:
        if key not in known:
            raise fields.error(key, "is not a key of a sweep row", nearest(key, known))
