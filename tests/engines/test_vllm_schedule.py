"""The actuator of the plugin inside of vLLM, both ways in: what it believes, and all that can go wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr

from adaptive_gamma.engines import ActuatorSite, VllmScheduleActuator, actuator_for
from adaptive_gamma.engines._plugin_state import gamma_in, plugin_state, same_gammas
from adaptive_gamma.errors import ActuatorError
from adaptive_gamma.fleet.scrape import EngineClient
from tests.support.schedule_plugin import FileFace, HttpFace, SchedulePlugin

TOKEN = "s3cret-Token"
LOW = ((1, 8, 4), (9, 64, 1))


@dataclass
class Scene:
    """An actuator before a plugin. Seconds pass when a test says so, for both."""

    plugin: SchedulePlugin
    http: HttpFace | None
    file: FileFace | None
    actuator: VllmScheduleActuator
    clock: list[float]

    async def second(self, batch: int = 0, seconds: float = 1.0) -> None:
        """The engine steps, the plugin looks, time passes, the actuator looks."""
        self.clock[0] += seconds
        if batch:
            self.plugin.step(batch)
        self.tick()
        await self.actuator.look()

    def tick(self) -> None:
        if self.file is not None:
            self.file.tick()

    async def set(self, schedule: tuple[tuple[int, int, int], ...] = LOW, batch: int = 4) -> None:
        await self.second()
        await self.actuator.change(schedule)
        await self.second(batch)
        await self.second(batch)
        assert self.actuator.settled()
        assert self.actuator.state == "verified"

    def asked(self) -> int:
        """Schedules asked for so far."""
        if self.http is not None:
            return sum(method != "GET" for method, _, _ in self.http.requests)
        return len(self.plugin.taken)


WAYS = ("http", "file")


@contextlib.asynccontextmanager
async def scene(way: str, folder: Path, *, token: str = TOKEN) -> AsyncIterator[Scene]:
    clock = [1_000_000.0]
    plugin = SchedulePlugin(lambda: clock[0])

    def site(**more: object) -> ActuatorSite:
        times = {"clock": lambda: clock[0] - 900_000.0, "unix_clock": lambda: clock[0]}
        return ActuatorSite(replica="r", **times, **more)  # type: ignore[arg-type]  # each way gives its own

    async with HttpFace(plugin, TOKEN) as http:
        if way == "http":
            made = actuator_for(
                "vllm_schedule", site(token=SecretStr(token), calls=lambda given: EngineClient(http.url, given))
            )
        else:
            made = actuator_for("vllm_schedule", site(file=folder / "gamma.json"))
        assert isinstance(made, VllmScheduleActuator)
        face = FileFace(plugin, folder / "gamma.json") if way == "file" else None
        try:
            yield Scene(plugin, http if way == "http" else None, face, made, clock)
        finally:
            await made.close()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def seen(actuator: VllmScheduleActuator) -> tuple[object, object, object]:
    return actuator.state, actuator.gamma, actuator.problem


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


# -- what is believed -------------------------------------------------------------------------------------------------


async def test_a_schedule_is_asked_for_read_back_and_seen_at_work(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        actuator = at.actuator
        assert actuator.waits_for == "the plugin in the engine has not been heard of yet"
        with pytest.raises(ActuatorError, match="not_yet"):
            await actuator.change(LOW)
        await at.second()
        assert seen(actuator) == ("ready", 5, None)
        assert actuator.waits_for is None
        assert (actuator.largest_gamma, actuator.largest_batch, actuator.settable) == (5, 64, None)
        assert at.asked() == 0, "looking sets nothing"
        await actuator.change(LOW)
        await at.second()
        assert (actuator.state, actuator.gamma, actuator.settled()) == ("verifying", LOW, False), "no step yet"
        await at.second(12)
        assert (actuator.state, actuator.gamma, actuator.settled()) == ("verified", LOW, True)
        assert at.plugin.last_gamma == 1
        details = actuator.details()
        assert (details["way"], details["ours"], details["schedule"]) == (way, True, [[1, 8, 4], [9, 64, 1]])
        await actuator.change(0)
        await at.second(12)
        await at.second(12)
        assert (actuator.gamma, actuator.settled(), at.plugin.last_gamma) == (0, True, 0)
        await actuator.withdraw()
        await at.second(12)
        assert (actuator.gamma, at.plugin.schedule) == (5, at.plugin.startup)
        assert (actuator.state, actuator.problem) == ("ready", None)


async def test_nothing_set_nothing_withdrawn(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        await at.second()
        await at.actuator.withdraw()
        await at.second()
        assert at.asked() == 0
        assert not (tmp_path / "gamma.json").exists()


async def test_a_schedule_written_otherwise_is_the_same(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        await at.second()
        await at.actuator.change(LOW)
        at.tick()
        at.plugin.schedule = [[1, 2, 4], [5, 8, 4], [9, 10, 1]]
        await at.second(3)
        assert at.actuator.settled()


async def test_ranges_beyond_the_largest_batch_are_none(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        at.plugin.startup = at.plugin.schedule = [[1, 10, 4], [11, 2**40, 2], [2**40 + 1, 2**41, 0]]
        await at.second()
        assert seen(at.actuator) == ("ready", ((1, 10, 4), (11, 64, 2)), None)
        at.plugin.startup = at.plugin.schedule = [[1, 2**40, 2]]
        await at.second()
        assert seen(at.actuator) == ("ready", 2, None)


async def test_gammas_without_graphs_are_told(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        at.plugin.captured = [1, 5]
        await at.second()
        assert at.actuator.settable == frozenset({1, 5})


async def test_the_file_is_whole_private_and_alone(tmp_path: Path) -> None:
    async with scene("file", tmp_path) as at:
        await at.second()
        await at.actuator.change(LOW)
        path = tmp_path / "gamma.json"
        asked = json.loads(path.read_text())
        assert (asked["format"], asked["schedule"]) == (1, [[1, 8, 4], [9, 64, 1]])
        assert stat.S_IMODE(path.stat().st_mode) & 0o137 == 0, "no word for others, nothing to run"
        assert sorted(os.listdir(tmp_path)) == ["gamma.json", "gamma.state.json"]
        before = asked["revision"]
        at.tick()
        await at.second()
        await at.actuator.change(3)
        assert json.loads(path.read_text())["revision"] != before


async def test_what_was_in_force_before_is_taken_over(way: str, tmp_path: Path) -> None:
    """As after a restart of ours: its schedule is priced, and replaced when it is time."""
    async with scene(way, tmp_path) as at:
        at.plugin.take([[1, 64, 2]], "of-an-earlier-life")
        await at.second()
        assert (at.actuator.gamma, at.actuator.state) == (2, "ready")
        for _ in range(10):
            await at.second(5)
        assert at.actuator.problem is None
        await at.set()
        assert at.actuator.gamma == LOW


# -- what goes wrong --------------------------------------------------------------------------------------------------


async def test_a_plugin_that_is_not_there_is_said_once_and_found_when_it_comes(
    way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(way, tmp_path) as at:
        tick = at.tick
        if at.http is not None:
            at.http.fault = "absent"
        else:
            at.file, hidden = None, at.file
            at.tick = lambda: None  # type: ignore[method-assign]  # the plugin writes nothing
        for _ in range(60):
            await at.second()
            with pytest.raises(ActuatorError, match="absent"):
                at.actuator.settled()
        assert (at.actuator.state, at.actuator.gamma) == ("stopped", None)
        with pytest.raises(ActuatorError, match="stopped"):
            await at.actuator.change(LOW)
        (said,) = errors(caplog)
        print(said)
        assert "routed" in said
        if at.http is not None:
            at.http.fault = None
        else:
            at.file, at.tick = hidden, tick  # type: ignore[method-assign]
        for _ in range(11):
            await at.second()
        assert at.actuator.problem is None
        await at.set()
        assert len(errors(caplog)) == 1


async def test_a_plugin_that_refuses_to_work(way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with scene(way, tmp_path) as at:
        at.plugin.problem = "it was not tested with vLLM 0.99"
        at.plugin.hangs = True  # such a state is written once
        for _ in range(60):
            await at.second()
        assert at.actuator.problem == "the plugin in the engine does nothing: it was not tested with vLLM 0.99"
        assert at.actuator.gamma is None
        assert len(errors(caplog)) == 1
        at.plugin.problem, at.plugin.hangs = None, False
        at.plugin.restart()
        for _ in range(11):
            await at.second()
        assert seen(at.actuator) == ("ready", 5, None)


@pytest.mark.parametrize("fault", ["forbidden", "echo", "token"])
async def test_a_token_that_is_refused_is_not_tried_again(
    fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene("http", tmp_path, token="wr0ng" if fault == "token" else TOKEN) as at:
        assert at.http is not None
        at.http.fault = None if fault == "token" else fault
        for _ in range(100):
            await at.second()
        assert len(at.http.requests) == 1
        with pytest.raises(ActuatorError, match="unauthorized"):
            at.actuator.settled()
        (said,) = errors(caplog)
        print(said)
        for words in (caplog.text, str(at.actuator.problem), str(at.actuator.details()), repr(at.actuator)):
            assert TOKEN not in words
            assert "wr0ng" not in words
        at.actuator._touched = True  # as if set before the token was refused
        with pytest.raises(ActuatorError, match="unauthorized"):
            await at.actuator.withdraw()
        assert len(at.http.requests) == 1, "nor for that"
        at.http.fault = None
        at.actuator.restarted()
        await at.second()
        assert len(at.http.requests) == 2, "a new start of the engine is a new chance"


@pytest.mark.parametrize("fault", ["unavailable", "silent", "gone"])
async def test_a_short_silence_is_forgiven_and_a_long_one_said(
    fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "silent":
        monkeypatch.setattr("adaptive_gamma.engines._plugin_door._READ_S", 0.2)
    async with scene("http", tmp_path) as at:
        assert at.http is not None
        await at.set()

        async def breaks() -> None:
            assert at.http is not None
            if fault == "gone":
                await at.http.close()
            else:
                at.http.fault = fault

        await breaks()
        for _ in range(5):
            await at.second(4)
        assert (at.actuator.problem, at.actuator.gamma) == (None, LOW)
        for _ in range(40):
            await at.second(4)
        with pytest.raises(ActuatorError, match="silent"):
            at.actuator.settled()
        (said,) = errors(caplog)
        print(said)
        assert at.actuator.gamma == LOW, "what was read last is the best guess"
        at.http.fault = None
        if fault == "gone":
            await at.http.open()
        for _ in range(11):
            await at.second(4)
        assert (at.actuator.problem, at.actuator.gamma) == (None, LOW)


@pytest.mark.parametrize("fault", ["redirect", "huge", "garbage"])
async def test_answers_that_are_no_state(fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with scene("http", tmp_path) as at:
        assert at.http is not None
        at.http.fault = fault
        for _ in range(9):
            await at.second()
        assert len(at.http.requests) == 1, "no redirect is followed, and nobody is pestered"
        with pytest.raises(ActuatorError, match="malformed"):
            at.actuator.settled()
        assert len(errors(caplog)) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"status": "well"}, {"max_gamma": 65}, {"max_gamma": True}, {"max_batch": 0}, {"schedule": None},
        {"schedule": []}, {"schedule": [[2, 3, 1]]}, {"schedule": [[1, 3, 1], [3, 4, 1]]}, {"schedule": [[1, 3, -1]]},
        {"startup_schedule": [[1, 2]]}, {"steps": -1}, {"steps": 1.5}, {"written_at": "now"}, {"written_at": None},
        {"started_at": float("nan")}, {"captured_gammas": [1, "2"]}, {"started_at": 10**400}, {"max_batch": 8193},
    ],
)  # fmt: skip
def test_states_that_make_no_sense(change: dict[str, object]) -> None:
    state = SchedulePlugin(lambda: 1.0).state()
    assert plugin_state(state).problem is None
    with pytest.raises(ValueError, match=r"."):
        plugin_state({**state, **change})


@pytest.mark.parametrize("revision", ["\ud800", "r" * 900_000, {"a": "\u2028"}])
def test_a_revision_of_another_can_be_shown(revision: object) -> None:
    told = {**SchedulePlugin(lambda: 1.0).state(), "revision": revision, "refused": {"revision": revision}}
    state = plugin_state(told)
    assert state.revision is not None
    assert state.refused is not None
    assert state.refused[0] == state.revision
    assert len(state.revision.encode()) <= 300


async def test_a_state_file_that_is_no_state(tmp_path: Path) -> None:
    async with scene("file", tmp_path) as at:
        for content in ("", "[]", "{", '{"format": 1}', "x" * (1 << 21), "[" * 100_000):
            (tmp_path / "gamma.state.json").write_text(content)
            at.actuator.restarted()
            await at.actuator.look()
            with pytest.raises(ActuatorError, match="malformed"):
                at.actuator.settled()


async def test_a_pipe_in_the_place_of_the_state_file_holds_nothing_up(tmp_path: Path) -> None:
    async with scene("file", tmp_path) as at:
        (tmp_path / "gamma.state.json").unlink(missing_ok=True)
        os.mkfifo(tmp_path / "gamma.state.json")
        async with asyncio.timeout(5):
            await at.actuator.look()
        with pytest.raises(ActuatorError, match="malformed"):
            at.actuator.settled()


async def test_an_engine_that_is_gone_or_hangs(way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with scene(way, tmp_path) as at:
        await at.set()
        at.plugin.hangs = True
        for _ in range(5):
            await at.second()
        assert at.actuator.problem is None
        for _ in range(40):
            await at.second()
        with pytest.raises(ActuatorError, match="gone"):
            at.actuator.settled()
        (said,) = errors(caplog)
        print(said)
        at.plugin.hangs = False
        for _ in range(11):
            await at.second(4)
        assert (at.actuator.problem, at.actuator.gamma) == (None, LOW)


async def test_a_state_left_over_from_an_engine_that_is_gone_is_not_believed(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        at.plugin.hangs = True
        at.plugin.state()
        for _ in range(5):
            await at.second(seconds=2.0 if at.clock[0] > 1_000_000.0 else 60.0)
            assert at.actuator.gamma is None
        assert at.actuator.problem is not None
        assert "written nothing" in at.actuator.problem


async def test_a_clock_that_differs_is_no_silence(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        at.plugin.clock = lambda: at.clock[0] - 3600.0
        at.plugin.restart()
        await at.second()
        assert (at.actuator.problem, at.actuator.gamma) == (None, None)
        await at.set()
        assert (at.actuator.problem, at.actuator.gamma) == (None, LOW)


async def test_a_schedule_that_is_refused_is_told_once_and_another_may_be_asked_for(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        await at.second()
        at.plugin.refuses = "no CUDA graphs were captured for gamma 4"
        if way == "http":
            with pytest.raises(ActuatorError, match="refused: no CUDA graphs"):
                await at.actuator.change(LOW)
        else:
            await at.actuator.change(LOW)
            await at.second()
            with pytest.raises(ActuatorError, match="refused: no CUDA graphs"):
                at.actuator.settled()
        assert at.actuator.settled()
        assert (at.actuator.problem, at.actuator.gamma, at.actuator.state) == (None, 5, "ready")
        at.plugin.refuses = None
        await at.set()


async def test_a_gamma_above_the_engines_largest_is_not_sent(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        await at.second()
        with pytest.raises(ActuatorError, match="not_a_gamma"):
            await at.actuator.change(((1, 64, 6),))
        assert at.asked() == 0


async def test_a_schedule_that_is_not_taken_does_not_come_into_force_late(tmp_path: Path) -> None:
    async with scene("file", tmp_path) as at:
        await at.second()
        at.plugin.deaf = True
        await at.actuator.change(LOW)
        for _ in range(10):
            await at.second(4)
            assert not at.actuator.settled()
        await at.second(4)
        with pytest.raises(ActuatorError, match="not_taken"):
            at.actuator.settled()
        assert json.loads((tmp_path / "gamma.json").read_text())["schedule"] is None, (
            "the start-up's is asked for again"
        )
        at.plugin.deaf = False
        await at.second(4)
        assert (at.actuator.gamma, at.actuator.problem) == (5, None)


async def test_a_change_without_an_answer_may_come_into_force_and_is_priced_then(tmp_path: Path) -> None:
    async with scene("http", tmp_path) as at:
        await at.second()
        at.plugin.deaf = True
        with pytest.raises(ActuatorError, match="silent: the engine did not take it within 1 s"):
            await at.actuator.change(LOW)
        assert (at.actuator.gamma, at.actuator.settled()) == (5, True)
        assert at.http is not None
        at.plugin.deaf = False
        _, _, asked = at.http.requests[-1]
        at.plugin.take(asked["schedule"], asked["revision"])
        await at.second(4)
        assert (at.actuator.gamma, at.actuator.problem) == (LOW, None)


async def test_an_engine_that_does_something_else_is_found_out(
    way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(way, tmp_path) as at:
        await at.second()
        at.plugin.disobeys = 5
        await at.actuator.change(LOW)
        for _ in range(4):
            await at.second(30)
        with pytest.raises(ActuatorError, match="ignored"):
            at.actuator.settled()
        (said,) = errors(caplog)
        print(said)
        assert "5 tokens for 30 requests where the schedule says 1" in said
        for _ in range(30):
            await at.second(30)
        assert at.plugin.schedule == at.plugin.startup, "the start-up's is asked for"
        assert at.actuator.gamma is None
        at.plugin.disobeys = None
        at.plugin.restart()
        for _ in range(11):
            await at.second(4)
        assert at.actuator.problem is None, "a new start begins anew"


async def test_one_step_that_differs_is_no_proof(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        await at.set()
        for _ in range(5):
            at.plugin.disobeys = 5
            await at.second(30)
            await at.second(30)
            at.plugin.disobeys = None
            await at.second(30)
        assert at.actuator.problem is None


@pytest.mark.parametrize("taken_back", [False, True])
async def test_somebody_else_is_noticed_said_and_left_alone(
    taken_back: bool, way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(way, tmp_path) as at:
        await at.set()
        asked = at.asked()
        if taken_back:
            at.plugin.take(None, None)
        elif at.file is not None:
            at.file.write_as_another([[1, 64, 3]], "theirs")
            asked += 1
        else:
            at.plugin.take([[1, 64, 3]], "theirs")
        for _ in range(100):
            await at.second(4)
        with pytest.raises(ActuatorError, match="foreign"):
            at.actuator.settled()
        (said,) = errors(caplog)
        print(said)
        assert ("its start-up schedule is back" if taken_back else "'theirs'") in said
        assert at.actuator.gamma == (5 if taken_back else 3), "priced with what is in force"
        await at.actuator.withdraw()
        at.tick()
        assert at.asked() == asked + (way == "file" and taken_back), "nothing more of ours"
        assert at.plugin.revision == (None if taken_back else "theirs")


async def test_two_controllers_do_not_fight(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        site = ActuatorSite(replica="b", clock=lambda: at.clock[0], unix_clock=lambda: at.clock[0])
        other = VllmScheduleActuator(site, at.actuator._door)
        await at.second()
        await other.look()
        await at.actuator.change(LOW)
        for _ in range(10):
            await at.second(4)
            await other.look()
        assert at.actuator.state == "verified"
        assert other.problem is None or "somebody else" in other.problem
        if other.problem is None:
            await other.change(3)
            for _ in range(10):
                await at.second(4)
                await other.look()
        assert sorted([at.actuator.state, other.state]) == ["stopped", "verified"]


async def test_a_restart_of_the_engine_begins_anew(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        await at.set()
        at.clock[0] += 30.0
        at.plugin.restart()
        await at.second(4)
        assert (at.actuator.state, at.actuator.problem, at.actuator.gamma) == ("ready", None, 5)
        await at.set()
        await at.actuator.change(2)
        at.clock[0] += 30.0
        at.plugin.restart()
        at.plugin.deaf = True
        await at.second(4)
        with pytest.raises(ActuatorError, match="restarted"):
            at.actuator.settled()
        assert at.actuator.settled()


async def test_a_folder_that_takes_no_file(tmp_path: Path) -> None:
    async with scene("file", tmp_path) as at:
        await at.second()
        (tmp_path / "gamma.json").mkdir()
        with pytest.raises(ActuatorError, match="unwritable"):
            await at.actuator.change(LOW)
        assert sorted(os.listdir(tmp_path)) == ["gamma.json", "gamma.state.json"], "no left-over"
        assert (at.actuator.gamma, at.actuator.problem) == (5, None)


def test_a_way_is_needed() -> None:
    with pytest.raises(ValueError, match="needs a file, or a token"):
        actuator_for("vllm_schedule", ActuatorSite(replica="r"))


def test_gammas_as_vllm_reads_them() -> None:
    gaps = ((1, 4, 3), (8, 10, 1))
    assert [gamma_in(gaps, batch) for batch in (1, 4, 5, 7, 8, 10, 11, 500)] == [3, 3, 3, 3, 1, 1, 1, 1]
    assert same_gammas(gaps, ((1, 7, 3), (8, 64, 1)), 64)
    assert not same_gammas(gaps, ((1, 7, 3), (8, 64, 2)), 64)
    assert same_gammas(gaps, ((1, 7, 3), (8, 20, 1), (21, 64, 0)), 20), "beyond the largest batch nothing counts"
