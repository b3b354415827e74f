"""The actuator and the part of the plugin inside of the engine, through real files: what one writes the other reads.
Skipped where the package holds no plugin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adaptive_gamma.engines import ActuatorSite, VllmScheduleActuator, actuator_for
from adaptive_gamma.errors import ActuatorError

governor = pytest.importorskip("adaptive_gamma.vllm_plugin.governor")


def lookup_of(ranges: list[list[int]]) -> list[int]:
    """Gamma by batch up to 64, index 0 unused; gaps and the tail carry the gamma before."""
    table, gamma = [0], 0
    for batch in range(1, 65):
        gamma = next((held for first, last, held in ranges if first <= batch <= last), gamma)
        table.append(gamma)
    return table


class Scheduler:
    def __init__(self, lookup: list[int]) -> None:
        self.dynamic_sd_lookup = lookup


class Engine:
    """A scheduler that the plugin governs, without threads."""

    def __init__(self, folder: Path, *, captured: frozenset[int] | None = None) -> None:
        startup = ((1, 64, 5),)
        self.now = 1_000_000.0
        self.scheduler = Scheduler(lookup_of([list(part) for part in startup]))
        limits = governor.EngineLimits("0.32.0", 5, 64, startup, captured)
        path = folder / "gamma.json"
        self.governor = governor.ScheduleGovernor(self.scheduler, limits, path, lookup_of=lookup_of, clock=self.clock)
        site = ActuatorSite(replica="r", file=path, clock=self.clock, unix_clock=self.clock)
        actuator: Any = actuator_for("vllm_schedule", site)
        self.actuator: VllmScheduleActuator = actuator

    def clock(self) -> float:
        return self.now

    async def look(self, batch: int = 0) -> None:
        self.governor.look()
        if batch:
            self.governor.begin_step()
            self.governor.end_step(batch, self.scheduler.dynamic_sd_lookup[batch])
            self.now += 0.5
            self.governor.look()
        await self.actuator.look()


async def test_a_schedule_goes_in_and_comes_out_again(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    await engine.look()
    assert (engine.actuator.gamma, engine.actuator.largest_batch, engine.actuator.settable) == (5, 64, None)
    for schedule in (((1, 8, 4), (9, 64, 1)), ((1, 64, 0),), ((1, 2, 5), (3, 64, 2))):
        await engine.actuator.change(schedule)
        await engine.look()
        assert engine.actuator.state == "verifying"
        await engine.look(12)
        assert (engine.actuator.state, engine.actuator.settled()) == ("verified", True)
        assert engine.scheduler.dynamic_sd_lookup == lookup_of([list(part) for part in schedule])
    await engine.actuator.withdraw()
    await engine.look(12)
    assert (engine.actuator.gamma, engine.actuator.problem) == (5, None)
    assert engine.scheduler.dynamic_sd_lookup[12] == 5


async def test_a_gamma_without_graphs_is_known_and_refused(tmp_path: Path) -> None:
    engine = Engine(tmp_path, captured=frozenset({0, 5}))
    await engine.look()
    assert engine.actuator.settable == frozenset({0, 5})
    await engine.actuator.change(3)
    await engine.look()
    with pytest.raises(ActuatorError, match="refused: no CUDA graphs were captured for gamma 3"):
        engine.actuator.settled()
    assert (engine.actuator.gamma, engine.actuator.problem) == (5, None)


async def test_a_plugin_that_refuses_to_work_says_why(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    files = pytest.importorskip("adaptive_gamma.vllm_plugin.files")
    files.refuse(tmp_path / "gamma.json", "vLLM 0.99 was not tested")
    await engine.actuator.look()
    assert engine.actuator.problem == "the plugin in the engine does nothing: vLLM 0.99 was not tested"
