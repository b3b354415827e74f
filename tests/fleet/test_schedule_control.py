"""Schedules set on a fleet, through the plugin's two faces: Fleet and GammaControl as they run, with a test's clock."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from adaptive_gamma.config.settings import ControlSettings, ReplicaSettings
from adaptive_gamma.fleet import Fleet, GammaControl
from adaptive_gamma.fleet.metric_families import fleet_families
from adaptive_gamma.routing import DecisionLimits, GammaSchedule, RequestNeeds, decide
from tests.fleet.scene import Clock, a_fleet
from tests.routing.flights import Prices
from tests.support.schedule_plugin import FileFace, HttpFace, SchedulePlugin

TOKEN = "s3cret-Token"
PRICES = Prices(alpha={"chat": 0.7, "unsure": 0.7, "structured": 0.9})
WAYS = ("http", "file")


@dataclass
class Scene:
    fleet: Fleet
    control: GammaControl
    plugin: SchedulePlugin
    http: HttpFace
    file: FileFace
    clock: Clock

    def configure(self, mode: Literal["act", "observe"] = "act", **settings: Any) -> None:
        self.control.configure(ControlSettings(**settings), mode=mode, slo_tpot_s=None, half_life_s=30.0)

    async def second(self, load: int, *, rate: float = 0.7) -> None:
        """Thirty steps of the engine with so many requests, a look of the plugin, a scrape and a look of ours."""
        if load:
            self.plugin.step(load, rate=rate, count=30)
        self.http.running = load
        self.file.tick()
        await self.fleet.scrape_once()
        await self.control.look_once()
        self.clock.now += 1.0

    async def seconds(self, count: int, load: int, *, rate: float = 0.7) -> None:
        for _ in range(count):
            await self.second(load, rate=rate)

    @property
    def gamma(self) -> object:
        return self.fleet.states[0].gamma

    @property
    def row(self) -> dict[str, Any]:
        return self.fleet.status()[0]

    @property
    def set(self) -> dict[str, Any]:
        row: dict[str, Any] = self.row["set_gamma"]
        return row

    def replace(self, **change: Any) -> None:
        settings = self.fleet.replicas[0].settings
        self.fleet.replace(
            [ReplicaSettings(**{**settings.model_dump(), "gamma_control": settings.gamma_control, **change})]
        )


@contextlib.asynccontextmanager
async def scene(
    way: str, folder: Path, prices: Prices = PRICES, *, token: str = TOKEN, **settings: Any
) -> AsyncIterator[Scene]:
    clock = Clock()
    plugin = SchedulePlugin(clock)
    async with HttpFace(plugin, TOKEN) as http:
        way_in = {"token": token} if way == "http" else {"file": str(folder / "gamma.json")}
        replica = ReplicaSettings(name="r", url=http.url, set_gamma="vllm_schedule", gamma_control=way_in)  # type: ignore[arg-type]  # as YAML gives it
        fleet = a_fleet(replica, clock=clock, policy=prices)
        control = GammaControl(fleet, lambda: prices, clock, unix_clock=clock)
        made = Scene(fleet, control, plugin, http, FileFace(plugin, folder / "gamma.json"), clock)
        made.configure(**settings)
        try:
            yield made
        finally:
            await control.stop()
            await fleet.stop()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_schedule_is_set_after_a_quarter_dwell_and_prices_the_replica(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        told: list[object] = []
        at.control.on_change = lambda replica, gamma, when: told.append(gamma)
        await at.seconds(14, 48)
        assert (at.gamma, at.plugin.taken) == (5, [])
        await at.seconds(6, 48)
        row = at.set
        print(row)
        assert isinstance(at.gamma, GammaSchedule)
        assert [list(part) for part in at.gamma.ranges] == at.plugin.schedule == row["gamma"] == row["best_schedule"]
        assert (row["state"], row["problem"], row["reason"], row["changes"]) == ("verified", None, "dwell", {"gain": 1})
        assert row["engine"]["ours"] is True
        assert row["engine"]["last_gamma"] == at.gamma.at(48)
        assert told[-1] == at.gamma
        assert at.row["gamma"] == at.gamma.at(48)
        assert at.row["gamma_schedule"] == row["gamma"]
        assert at.row["scheduled_gamma"] == at.gamma.at(48)
        assert TOKEN not in str(at.row)
        chosen = decide(
            RequestNeeds("chat"), at.fleet.states, PRICES, now=at.clock.now, tie_break=0.0,
            limits=DecisionLimits(),
        )  # fmt: skip
        assert chosen is not None
        assert chosen.gamma == at.gamma.at(49), "the decision prices the schedule in force"


async def test_a_swinging_load_needs_one_schedule(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        for _ in range(3):
            await at.seconds(60, 2)
            await at.seconds(60, 60)
        print(at.plugin.taken, at.set["changes"])
        assert len(at.plugin.taken) == 1
        assert at.plugin.gamma_at(2) > at.plugin.gamma_at(60)
        await at.seconds(120, 31)
        before = list(at.plugin.taken)
        for second in range(120):
            await at.second(31 if second % 2 else 33)
        assert at.plugin.taken == before, "31 and 33 in turn change nothing"


async def test_acceptance_under_a_schedule_is_seen_without_bias(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        for second in range(200):
            await at.second(2 if second % 2 else 50, rate=0.6)
        assert isinstance(at.gamma, GammaSchedule)
        row = at.row
        print(row["acceptance"], row["acceptance_ratio"], row["variable_draft_length"], row["drafted_by_position"])
        assert row["drafted_by_position"] is True
        assert row["variable_draft_length"] is True
        assert row["acceptance"] == pytest.approx([0.6] * len(row["acceptance"]), abs=1e-4)
        expected = sum(b * (PRICES.expected_tokens("unsure", at.gamma.at(b)) - 1.0) for b in (2, 50))
        seen = sum(b * sum(0.6**k for k in range(1, at.gamma.at(b) + 1)) for b in (2, 50))
        assert row["acceptance_ratio"] == pytest.approx(seen / expected, rel=0.02)
        assert row["notes"] == []


async def test_observing_decides_shows_and_sets_nothing(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path, mode="observe") as at:
        await at.seconds(80, 48)
        assert at.plugin.taken == []
        assert not at.file.path.exists()
        assert (at.gamma, at.set["reason"], at.set["state"]) == (5, "gain", "ready")
        assert at.set["best_schedule"] is not None
        at.configure("act")
        await at.seconds(4, 48)
        assert isinstance(at.gamma, GammaSchedule)
        at.configure("observe")
        await at.seconds(2, 48)
        assert at.row["gamma"] == 5
        assert at.plugin.schedule == at.plugin.startup, "and takes back what was set"
        count = len(at.plugin.taken)
        await at.seconds(80, 48)
        assert len(at.plugin.taken) == count


async def test_a_reload_switches_it_off_and_on(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        await at.seconds(64, 48)
        assert isinstance(at.gamma, GammaSchedule)
        with at.fleet.open_request("r", "chat"):
            at.replace(set_gamma="none")
            at.configure()
            assert (at.control.active, at.row["set_gamma"]) == (False, None)
            await at.control.stop()  # waits for what is being taken back
            await at.second(48)
            assert at.plugin.schedule == at.plugin.startup
            assert at.gamma == 5
            at.replace(set_gamma="vllm_schedule")
            at.configure()
            await at.seconds(64, 48)
            assert isinstance(at.gamma, GammaSchedule)
            assert at.fleet.states[0].in_flight == 1, "what was open is open"


async def test_a_reload_with_another_token_leaves_the_schedule_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene("http", tmp_path) as at:
        await at.seconds(64, 48)
        in_force = at.gamma
        taken = len(at.plugin.taken)
        at.http.token = "an0ther"
        await at.second(48)
        assert "gamma_control.token" in str(at.set["problem"])
        assert any("gamma cannot be set" in note for note in at.row["notes"])
        at.replace(gamma_control={"token": "an0ther"})
        at.configure()
        await at.seconds(70, 48)
        assert (at.set["problem"], at.gamma, len(at.plugin.taken)) == (None, in_force, taken)
        for secret in (TOKEN, "an0ther"):
            assert secret not in caplog.text
            assert secret not in str(at.row)


@pytest.mark.parametrize("start", ["absent", "unavailable"])
async def test_an_engine_without_the_plugin_is_only_routed_to(
    start: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene("http", tmp_path) as at:
        at.http.fault = start
        await at.seconds(130, 48)
        row = at.row
        assert (at.gamma, row["set_gamma"]["state"], row["set_gamma"]["reason"]) == (5, "stopped", "unknown")
        assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
        assert any(note.startswith("gamma cannot be set: ") for note in row["notes"])
        assert row["healthy"] is True
        pages = {each.name: list(each.rows) for each in fleet_families(at.fleet, at.clock.now, None)}
        assert pages["adaptive_gamma_actuator_stopped"] == [("", ("r",), 1.0)]
        at.http.fault = None
        await at.seconds(80, 48)
        assert isinstance(at.gamma, GammaSchedule)
        pages = {each.name: list(each.rows) for each in fleet_families(at.fleet, at.clock.now, None)}
        assert pages["adaptive_gamma_actuator_stopped"] == [("", ("r",), 0.0)]
        assert pages["adaptive_gamma_gamma_schedule"] == [
            ("", ("r", str(first)), gamma) for first, _, gamma in at.plugin.schedule
        ]


async def test_an_engine_that_refuses_is_asked_ever_more_rarely(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        at.plugin.refuses = "no CUDA graphs were captured for gamma 2"
        tries = []
        for second in range(260):
            before = at.set["failures"] if at.fleet.replicas[0].control is not None else {}
            await at.second(48)
            if at.set["failures"] != before:
                tries.append(second)
        print(f"{way}: refused after {tries} s, {at.set['failures']}")
        assert at.set["failures"] == {"refused": 3}
        assert [b - a >= 59 for a, b in itertools.pairwise(tries)] == [True, True]
        assert (at.gamma, at.set["problem"]) == (5, None)


async def test_an_engine_that_does_otherwise_goes_back_to_its_own(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        await at.seconds(60, 48)
        at.plugin.disobeys = 5
        await at.seconds(10, 48)
        assert at.set["state"] == "stopped"
        assert at.set["failures"] == {"ignored": 1}
        assert (at.gamma, at.plugin.schedule) == (5, at.plugin.startup)


async def test_another_controller_is_left_alone_and_priced(way: str, tmp_path: Path) -> None:
    async with scene(way, tmp_path) as at:
        await at.seconds(64, 48)
        at.file.write_as_another([[1, 64, 3]], "theirs")
        at.file.tick()
        await at.seconds(100, 48)
        assert (at.gamma, at.plugin.revision, at.set["state"]) == (3, "theirs", "stopped")
        assert "somebody else" in str(at.set["problem"])
        at.configure("observe")
        await at.seconds(3, 48)
        assert at.plugin.revision == "theirs", "theirs is not taken back"


async def test_a_restart_of_the_engine_begins_anew(tmp_path: Path) -> None:
    async with scene("http", tmp_path) as at:
        await at.seconds(64, 48)
        assert isinstance(at.gamma, GammaSchedule)
        at.plugin.restart()
        await at.second(48)
        assert at.gamma == 5
        assert at.row["restarts"] == 1
        taken = len(at.plugin.taken)
        await at.seconds(12, 48)
        assert len(at.plugin.taken) == taken, "a quarter of a dwell first"
        await at.seconds(10, 48)
        assert isinstance(at.gamma, GammaSchedule)


async def test_a_drafter_that_accepts_nothing_is_switched_off_and_probed(way: str, tmp_path: Path) -> None:
    prices = Prices(draft=0.006, alpha={"chat": 0.6, "unsure": 0.6})
    async with scene(way, tmp_path, prices, probe_every_s=120) as at:
        await at.seconds(70, 8, rate=0.01)
        assert at.plugin.gamma_at(8) == 0
        assert at.row["gamma"] == 0
        await at.seconds(190, 8, rate=0.01)
        print(at.set["changes"], at.plugin.taken)
        assert at.set["changes"] == {"gain": 1, "probe": 1, "probe_over": 1}
        assert at.plugin.gamma_at(8) == 0


async def test_a_change_under_way_when_setting_ends_prices_nothing(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload may end the setting of gamma while the engine is being asked for a change."""
    async with scene(way, tmp_path) as at:
        (control,) = at.control.controls
        change, asked, goes_on = control.actuator.change, asyncio.Event(), asyncio.Event()

        async def slow(gamma: Any) -> None:
            await change(gamma)
            asked.set()
            await goes_on.wait()

        monkeypatch.setattr(control.actuator, "change", slow)
        told: list[object] = []
        at.control.on_change = lambda replica, gamma, when: told.append(gamma)
        while not asked.is_set():
            second = asyncio.ensure_future(at.second(48))
            await asyncio.wait({second, waiting := asyncio.ensure_future(asked.wait())}, return_when="FIRST_COMPLETED")
            waiting.cancel()
        at.replace(set_gamma="none")
        at.configure()
        goes_on.set()
        await second
        assert (at.gamma, at.fleet.replicas[0].commanded_gamma) == (5, None)
        assert at.row["set_gamma"] is None
        assert told == []
