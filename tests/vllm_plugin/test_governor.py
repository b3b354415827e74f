"""The governor over a scheduler of the same shape as vLLM's: a list read at each step."""

from __future__ import annotations

import gc
import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from adaptive_gamma.vllm_plugin.files import write_object
from adaptive_gamma.vllm_plugin.governor import EngineLimits, ScheduleGovernor

MAX_BATCH = 8


class Scheduler:
    """Schedules as vLLM does: gamma by the number of requests in the step."""

    def __init__(self) -> None:
        self.dynamic_sd_lookup: list[int] | None = lookup_of([[1, MAX_BATCH, 5]])


def lookup_of(schedule: list[list[int]]) -> list[int]:
    lookup = [0] * (MAX_BATCH + 1)
    for first, last, gamma in schedule:
        for batch in range(first, MAX_BATCH + 1):
            if batch >= first:
                lookup[batch] = gamma
        del last
    return lookup


class Engine:
    """A scheduler, its governor, and a clock that stands still."""

    def __init__(self, directory: Path, captured: frozenset[int] | None = None) -> None:
        self.now = 1000.0
        self.file = directory / "gamma.json"
        self.scheduler = Scheduler()
        self.governor = ScheduleGovernor(
            self.scheduler,
            EngineLimits("0.32.0", 5, MAX_BATCH, ((1, MAX_BATCH, 5),), captured),
            self.file,
            lookup_of=lookup_of,
            clock=lambda: self.now,
        )
        self.governor.look()

    def ask(self, schedule: object, revision: str | None = "r1") -> None:
        write_object(self.file, {"format": 1, "revision": revision, "schedule": schedule})
        self.governor.look()

    def step(self, batch: int) -> int:
        self.governor.begin_step()
        assert self.scheduler.dynamic_sd_lookup is not None
        gamma = self.scheduler.dynamic_sd_lookup[batch]
        self.governor.end_step(batch, gamma)
        return gamma

    def state(self) -> dict[str, Any]:
        self.now += 1.0
        self.governor.look()
        state: dict[str, Any] = json.loads((self.file.parent / "gamma.state.json").read_text())
        return state


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


def test_a_schedule_holds_from_the_next_step_on_and_not_before(engine: Engine) -> None:
    assert engine.step(3) == 5
    engine.ask([[1, 4, 2], [5, 8, 0]])
    assert engine.scheduler.dynamic_sd_lookup == lookup_of([[1, 8, 5]])
    state = engine.state()
    assert (state["revision"], state["schedule"], state["steps_in_force"]) == ("r1", [[1, 4, 2], [5, 8, 0]], 0)
    assert [engine.step(batch) for batch in (4, 5)] == [2, 0]
    state = engine.state()
    assert (state["steps"], state["steps_in_force"], state["last_gamma"], state["last_batch"]) == (3, 2, 0, 5)


def test_what_is_no_schedule_is_refused_and_the_one_before_stays(engine: Engine) -> None:
    engine.ask([[1, 8, 2]])
    engine.ask([[2, 8, 1]], "r2")
    state = engine.state()
    assert state["refused"] == {"revision": "r2", "reason": "the first range must start at batch 1, not at 2"}
    assert (state["revision"], state["schedule"]) == ("r1", [[1, 8, 2]])
    assert engine.step(1) == 2
    engine.ask([[1, 8, 1]], "r3")
    assert engine.state()["refused"] is None
    assert engine.step(1) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 2}', b"\xff\xfe", b"[" * 100_000, b" " * (2 << 20)])
def test_a_file_that_is_none_of_ours_is_refused(engine: Engine, content: bytes) -> None:
    engine.file.write_bytes(content)
    state = engine.state()
    assert state["refused"]["revision"] is None
    assert state["refused"]["reason"].startswith("the schedule file is of no use: it ")
    assert engine.step(1) == 5


def test_a_pipe_in_the_place_of_the_file_does_not_stop_the_watch(engine: Engine) -> None:
    os.mkfifo(engine.file)
    engine.governor.look()
    assert engine.state()["refused"]["reason"] == "the schedule file is of no use: it is not JSON"


def test_null_is_the_schedule_of_the_start_and_a_missing_key_is_not(engine: Engine) -> None:
    engine.ask([[1, 8, 0]])
    assert engine.step(1) == 0
    engine.ask(None, "back")
    assert engine.step(1) == 5
    write_object(engine.file, {"format": 1, "revision": "none"})
    engine.governor.look()
    assert engine.state()["refused"]["revision"] == "none"


def test_gammas_without_graphs_are_refused(tmp_path: Path) -> None:
    engine = Engine(tmp_path, frozenset({0, 2, 5}))
    engine.ask([[1, 4, 3], [5, 8, 2]])
    reason = engine.state()["refused"]["reason"]
    assert reason == "no CUDA graphs were captured for gamma 3; the start-up schedule has 0, 2, 5"
    engine.ask([[1, 4, 2], [5, 8, 0]], "r2")
    assert engine.state()["captured_gammas"] == [0, 2, 5]
    assert engine.step(4) == 2


def test_a_step_without_requests_is_none(engine: Engine) -> None:
    engine.governor.begin_step()
    engine.governor.end_step(0, 5)
    assert (engine.state()["steps"], engine.state()["last_gamma"]) == (0, None)


def test_the_state_is_written_when_it_changes_and_once_a_second(engine: Engine) -> None:
    path = engine.file.parent / "gamma.state.json"

    def written() -> float:
        at: float = json.loads(path.read_text())["written_at"]
        return at

    assert written() == 1000.0
    engine.now = 1000.9
    engine.governor.look()
    assert written() == 1000.0
    engine.now = 1001.0
    engine.governor.look()
    assert written() == 1001.0
    engine.step(1)
    engine.now = 1001.1
    engine.governor.look()
    assert written() == 1001.0, "steps are told of five times a second at most"
    engine.ask([[1, 8, 1]])
    assert written() == 1001.1, "a schedule at once"


def test_a_directory_that_takes_no_file_is_said_once(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    engine.file.parent.joinpath("gamma.state.json").unlink()
    engine.file.parent.joinpath("gamma.state.json").mkdir()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            engine.now += 2.0
            engine.governor.look()
    assert len(caplog.records) == 1
    assert "cannot be written" in caplog.text
    assert engine.step(1) == 5


def test_it_watches_by_itself_and_ends_with_its_scheduler(engine: Engine) -> None:
    engine.governor.start()
    write_object(engine.file, {"format": 1, "revision": "watched", "schedule": [[1, 8, 4]]})
    deadline = time.monotonic() + 10.0
    while engine.step(1) != 4:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    name = "adaptive-gamma schedule"
    assert name in {thread.name for thread in threading.enumerate()}
    engine.governor.stop()
    assert engine.scheduler.dynamic_sd_lookup == lookup_of([[1, 8, 5]])
    assert name not in {thread.name for thread in threading.enumerate()}


def test_the_watch_ends_when_the_scheduler_is_gone(engine: Engine) -> None:
    engine.governor.start()
    (thread,) = (each for each in threading.enumerate() if each.name == "adaptive-gamma schedule")
    engine.scheduler = Scheduler()
    gc.collect()
    thread.join(10.0)
    assert not thread.is_alive()
