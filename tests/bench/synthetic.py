"""Rows as an engine of known step time would be measured."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from adaptive_gamma.bench import Source, SpeculationSeen, SweepRow
from adaptive_gamma.roofline import AcceptanceCurve, AutoregressiveDrafter, LinearStep, PassSeconds, SpeculationCost

COST = SpeculationCost(LinearStep(6e-3, 2e-5, 4e-8), AutoregressiveDrafter(PassSeconds(0.5e-3)))
CURVES = {"structured": AcceptanceCurve.two_parameter(0.85, 0.8), "chat": AcceptanceCurve.two_parameter(0.6, 0.5)}
LOADS = (1, 4, 16, 64)


def row(**changes: object) -> SweepRow:
    """A plain run at concurrency 4."""
    values: dict[str, object] = {
        "source": Source("rows.jsonl", 1),
        "format": "own",
        "engine": "vllm",
        "model": "Qwen3-8B",
        "gamma": 0,
        "speculative": False,
        "concurrency_asked": 4,
        "concurrency": 3.9,
        "input_tokens": 300.0,
        "output_tokens": 200.0,
        "output_tokens_per_s": 380.0,
        "tpot_p50_s": 0.010,
        "tpot_mean_s": 0.0101,
        "completed": 40,
        "run": "1",
    }
    return SweepRow(**(values | changes))  # type: ignore[arg-type]  # the tests give right types


def drafted(gamma: int = 3, drafts: int = 4000, **changes: object) -> SweepRow:
    """A speculative run at concurrency 4, with rates 0.8, 0.64, ... by position."""
    rates = tuple(0.8**i for i in range(1, gamma + 1))
    seen = SpeculationSeen(drafts=drafts, mean_length=1.0 + sum(rates), per_position=rates, draft_tokens=gamma * drafts)
    values: dict[str, object] = {
        "gamma": gamma,
        "speculative": True,
        "drafter": "eagle3",
        "acceptance": seen,
        "tpot_p50_s": 0.005,
        "tpot_mean_s": 0.0051,
        "output_tokens_per_s": 760.0,
    }
    return row(**(values | changes))


def measured(
    *,
    gammas: Sequence[int | None] = (None, 1, 3, 5),
    loads: Sequence[int] = LOADS,
    classes: Sequence[str] = ("structured", "chat"),
    runs: int = 3,
    noise: float = 0.005,
    seed: int = 1,
    input_tokens: float = 300.0,
    output_tokens: float = 200.0,
) -> Iterator[SweepRow]:
    """A whole sweep of ``COST`` and ``CURVES``; gamma None is the plain arm."""
    dice = random.Random(seed)
    line = 0
    for gamma in gammas:
        for name in classes:
            for load in loads:
                for run in range(runs):
                    line += 1
                    expected = 1.0 if not gamma else CURVES[name].expected_tokens(gamma)
                    prefill = (load - 1) * expected * input_tokens / output_tokens
                    context = input_tokens + output_tokens / 2
                    seconds = (
                        COST.plain_seconds(load, context, prefill)
                        if gamma is None
                        else COST.speculative_seconds(load, gamma, context, prefill)
                    )
                    tpot = float(seconds) / expected * dice.gauss(1.0, noise)
                    common = {
                        "source": Source("measured.jsonl", line),
                        "concurrency_asked": load,
                        "concurrency": float(load),
                        "input_tokens": input_tokens,
                        "output_tokens": output_tokens,
                        "tpot_p50_s": tpot,
                        "tpot_mean_s": tpot,
                        "output_tokens_per_s": load / tpot * output_tokens / (output_tokens - 1.0),
                        "request_class": name,
                        "run": f"{run}",
                        "completed": 100,
                    }
                    if gamma is None:
                        yield row(**common)
                        continue
                    drafts = round(100 * (output_tokens - 1) / expected)
                    rates = tuple(float(rate) for rate in CURVES[name].unconditional(gamma))
                    seen = SpeculationSeen(drafts, expected, rates, draft_tokens=drafts * gamma) if gamma else None
                    yield row(**common, gamma=gamma, speculative=True, drafter="eagle3", acceptance=seen)


def at_line(one: SweepRow, line: int) -> SweepRow:
    """The row as another line of its file."""
    return replace(one, source=Source(one.source.file, line))
