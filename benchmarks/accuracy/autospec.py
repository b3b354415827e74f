"""SGLang AutoSpec, Qwen3-235B: gamma chosen for batches that were not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from adaptive_gamma.roofline.calibrate import (
    Calibration,
    Experts,
    ModelNumbers,
    Observation,
    RankedModel,
    calibrate,
    compare_models,
)

from .report import Goal, Study, Table, notes_of, parameters_table, percent, ranking_table
from .sources import read_measured

__all__ = ["autospec_study"]

_NUMBERS = ModelNumbers(2 * 235.1e9, 2 * 22.2e9, 0.0, Experts(128, 8, 2 * 227.1e9))
"""Of the model's card: 235 billion parameters, 22 active, 8 of 128 experts."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A gamma for a batch that was not fitted."""

    batch: float
    chosen: int
    best: int
    regret: float
    """Share of the best fixed gamma's throughput that is lost."""
    error: float
    """Mean absolute error of the predicted time per token over all gammas."""


@dataclass(frozen=True, slots=True)
class Split:
    fitted: tuple[float, ...]
    ranked: list[RankedModel]
    choices: tuple[Choice, ...]

    @property
    def regret(self) -> float:
        return float(np.mean([choice.regret for choice in self.choices]))


def autospec_study(every_split: bool = True) -> Study:
    """Every second batch fitted, the others tested; the other way round; each batch left out; every choice of four."""
    source, rows = read_measured("autospec_qwen3_235b.csv")
    seen = [
        Observation(
            batch=float(row["batch"]),
            gamma=int(row["gamma"]),
            speculative=True,
            context_tokens=0.0,
            prefill_tokens=0.0,
            seconds_per_token=float(row["batch"]) / float(row["output_tokens_per_s"]),
        )
        for row in rows
    ]
    batches = sorted({o.batch for o in seen})
    even, odd = _split(seen, batches[::2]), _split(seen, batches[1::2])
    one_out = [_split(seen, [b for b in batches if b != left]) for left in batches]
    lines = [
        _line("every second batch", even),
        _line("the others", odd),
        _summary("each batch left out", one_out),
    ]
    words = [
        "The model is known to be a mixture of experts with an EAGLE chain, so the candidates are a mixture of experts "
        "and a table, with an autoregressive drafter; there is no plain replica, and acceptance is not given. Absolute "
        "numbers are therefore weakly told (see the intervals): a slower step and a higher acceptance look alike. What "
        "is told is which gamma is best.",
    ]
    if every_split:
        all_splits = [_split(seen, chosen) for chosen in combinations(batches, 4)]
        lines.append(_summary("every choice of four batches", all_splits))
        worst = max(all_splits, key=lambda s: s.regret)
        words.append(
            f"Over all {len(all_splits)} ways to fit four of the seven batches, "
            f"{sum(s.regret <= 0.01 for s in all_splits)} stay within 1 %; the worst is {percent(worst.regret)}, "
            f"fitted on batches {_listed(worst.fitted)}: far extrapolation is not safe."
        )
    best = even.ranked[0]
    found = calibrate(_of(seen, even.fitted), model=best.family, drafter=best.drafter, numbers=_NUMBERS)
    words.append(notes_of(found))
    return Study(
        title="SGLang AutoSpec, Qwen3-235B-A22B",
        question="Fitted on half of the batches, how much throughput does the chosen gamma lose against the best fixed "
        "gamma on the other half?",
        source=source,
        goals=(
            Goal(f"fitted on batches {_listed(even.fitted)}, mean regret on the others", even.regret, 0.01),
            Goal(f"fitted on batches {_listed(odd.fitted)}, mean regret on the others", odd.regret, 0.01),
        ),
        words=tuple(words),
        tables=(
            Table(
                "Regret on batches that took no part in the fit",
                ("fitted on", "model chosen", "mean regret", "worst regret of a batch", "mean error of the time"),
                tuple(lines),
            ),
            _choices(even, odd),
            ranking_table(f"Choice on batches {_listed(even.fitted)}", even.ranked),
            ranking_table(f"Choice on batches {_listed(odd.fitted)}", odd.ranked),
            parameters_table(found),
        ),
    )


def _of(seen: Sequence[Observation], batches: Sequence[float]) -> list[Observation]:
    return [o for o in seen if o.batch in batches]


def _split(seen: Sequence[Observation], fitted: Sequence[float]) -> Split:
    ranked = compare_models(_of(seen, fitted), drafters=["autoregressive"], numbers=_NUMBERS)
    found = ranked[0].calibration
    assert found is not None
    tested = sorted({o.batch for o in seen} - set(fitted))
    return Split(tuple(fitted), ranked, tuple(_chosen(found, _of(seen, [batch])) for batch in tested))


def _chosen(found: Calibration, arms: Sequence[Observation]) -> Choice:
    (curve,) = found.curves.values()
    cost = found.cost()
    times = {
        o.gamma: float(cost.speculative_seconds(o.batch, o.gamma, 0) / curve.expected_tokens(o.gamma)) for o in arms
    }
    seen = {o.gamma: o.seconds_per_token for o in arms}
    chosen, best = min(times, key=times.__getitem__), min(seen, key=seen.__getitem__)
    error = float(np.mean([abs(times[g] / seen[g] - 1.0) for g in seen]))
    return Choice(arms[0].batch, chosen, best, 1.0 - seen[best] / seen[chosen], error)


def _line(name: str, split: Split) -> tuple[str, ...]:
    return _row(f"{name} ({_listed(split.fitted)})", [split])


def _summary(name: str, splits: Sequence[Split]) -> tuple[str, ...]:
    return _row(f"{name} ({len(splits)} fits)", splits)


def _row(name: str, splits: Sequence[Split]) -> tuple[str, ...]:
    choices = [choice for split in splits for choice in split.choices]
    models = sorted({split.ranked[0].family.name for split in splits})
    return (
        name,
        " or ".join(models),
        percent(float(np.mean([split.regret for split in splits]))),
        percent(max(choice.regret for choice in choices)),
        percent(float(np.mean([choice.error for choice in choices]))),
    )


def _choices(*splits: Split) -> Table:
    rows = [
        (_listed(split.fitted), f"{c.batch:g}", str(c.chosen), str(c.best), percent(c.regret))
        for split in splits
        for c in split.choices
    ]
    return Table("Choices", ("fitted on", "batch", "chosen gamma", "best gamma", "throughput lost"), tuple(rows))


def _listed(batches: Sequence[float]) -> str:
    return ", ".join(f"{batch:g}" for batch in batches)
