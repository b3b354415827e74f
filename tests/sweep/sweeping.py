"""A sweep inside a test's event loop, against simulated engines."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from adaptive_gamma.bench import SweepRow
from adaptive_gamma.bench.sweep import ArmSpec, Journal, PromptSet, Sweep, SweepSettings, builtin_prompts, summarize
from adaptive_gamma.simulation.engine import EngineSettings, LinearStepClock, SimulatedEngine, serving

__all__ = ["RATES", "Watcher", "engine", "few", "simulated", "sweep", "told"]

RATES = {"structured": (0.9, 0.8, 0.8), "chat": (0.6, 0.5, 0.5), "unsure": (0.7, 0.6, 0.6)}


def engine(gamma: Any = None, **settings: Any) -> SimulatedEngine:
    """Fast enough for a test, slow enough for a client in the same event loop to see its steps."""
    clock = LinearStepClock(0.002, 0.00001, 0.0001, speculative=gamma is not None)
    return SimulatedEngine(EngineSettings(model="m", gamma=gamma, step_clock=clock, acceptance=RATES, **settings))


def simulated(gamma: Any = None, **settings: Any) -> AbstractAsyncContextManager[str]:
    """A running engine; gives its url."""
    return serving(engine(gamma, **settings))


@dataclass
class Watcher:
    """An observer that keeps what it is told."""

    plans: list[tuple[int, int]] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)
    rows: list[SweepRow] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    after_row: Any = None

    def planned(self, total: int, finished: int) -> None:
        self.plans.append((total, finished))

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def ran(self, row: SweepRow) -> None:
        self.rows.append(row)
        if self.after_row is not None:
            self.after_row()

    def remark(self, text: str) -> None:
        self.remarks.append(text)


def few(*arms: ArmSpec | str, **settings: Any) -> SweepSettings:
    """A small sweep."""
    prompts: PromptSet = settings.pop("prompts", builtin_prompts())
    standard: dict[str, Any] = {
        "concurrency": (1, 3),
        "repeats": 2,
        "output_tokens": 40,
        "least_requests": 3,
        "waves": 1,
    }
    specs = tuple(arm if isinstance(arm, ArmSpec) else ArmSpec(arm) for arm in arms)
    return SweepSettings(arms=specs, prompts=prompts, **(standard | settings))


async def sweep(
    settings: SweepSettings, folder: Path, *, watcher: Watcher | None = None, api_key: str | None = None
) -> Watcher:
    """Run it to its end; gives what was told."""
    watcher = watcher or Watcher()
    key = SecretStr(api_key) if api_key is not None else None
    with Journal(folder) as journal:
        await Sweep(settings, journal, watcher, clock=time.perf_counter, api_key=key).run()
    return watcher


def told(folder: Path) -> dict[str, Any]:
    """The summary of what is in a folder."""
    with Journal(folder) as journal:
        assert journal.plan is not None
        count = len(journal.rows)
        return summarize(journal.plan, journal.rows, journal.details, planned_runs=count, finished_runs=count)
