"""Gammas set on a fleet: one change at a time, engines that fail or lie, modes, reloads, restarts. Time is a test's."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from adaptive_gamma.config.settings import ControlSettings, ReplicaSettings
from adaptive_gamma.engines import (
    ActuatorSite,
    ActuatorState,
    GammaActuator,
    GammaSet,
    RequestAcceptance,
    actuator_for,
)
from adaptive_gamma.errors import ActuatorError
from adaptive_gamma.fleet import Fleet, GammaControl, GammaField
from adaptive_gamma.fleet.answer_track import AnswerTrack
from tests.engines import pages
from tests.fleet.scene import Clock, a_fleet
from tests.routing.flights import Prices
from tests.support.scripted_engine import ScriptedEngine

CHAT, COMPLETION = "/v1/chat/completions", "/completion"
PRICES = Prices(alpha={"chat": 0.7, "unsure": 0.7, "structured": 0.9})


@dataclass
class LiveEngine:
    """An engine whose gamma is set by a call, as a test wants it to go."""

    gamma: int = 8
    fails: bool = False
    asked: list[int] = field(default_factory=list)
    gate: asyncio.Event | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


class LiveActuator:
    """Sets a ``LiveEngine``'s gamma: a call that works at once, later, or not at all."""

    name = "per_request"
    smallest_gamma = 0
    schedules = False
    largest_gamma: int | None = None
    largest_batch: int | None = None
    settable: frozenset[int] | None = None
    paths: frozenset[str] = frozenset()
    field_names: frozenset[str] = frozenset()
    answer_mark = b""
    state: ActuatorState = "verified"
    problem: str | None = None
    waits_for: str | None = None

    def __init__(self, engine: LiveEngine) -> None:
        self.engine = engine
        self.gamma: GammaSet | None = None

    async def look(self) -> None: ...

    async def change(self, gamma: GammaSet) -> None:
        assert isinstance(gamma, int)
        self.engine.asked.append(gamma)
        self.engine.arrived.set()
        if self.engine.gate is not None:
            await self.engine.gate.wait()
        if self.engine.fails:
            raise ActuatorError("status_500", "the engine answered 500")
        self.engine.gamma = self.gamma = gamma

    async def withdraw(self) -> None:
        if self.engine.fails:
            raise ActuatorError("status_500", "the engine answered 500")
        self.engine.gamma, self.gamma = 8, None

    def settled(self) -> bool:
        return True

    def request_field(self) -> tuple[str, int] | None:
        return None

    def answered(self, sent: int | None, body: Mapping[str, object]) -> None: ...

    def refused(self, sent: int | None, status: int) -> None: ...

    def restarted(self) -> None:
        self.gamma = None

    def details(self) -> Mapping[str, Any]:
        return {}

    async def close(self) -> None: ...


@dataclass
class Scene:
    fleet: Fleet
    control: GammaControl
    server: ScriptedEngine
    clock: Clock

    def configure(self, mode: Literal["act", "observe"] = "act", **settings: Any) -> None:
        self.control.configure(ControlSettings(**settings), mode=mode, slo_tpot_s=None, half_life_s=30.0)

    async def second(self, load: int, *, tokens: int = 600) -> None:
        """A scrape that finds so many running, a look, and a second that passes."""
        text = pages.LLAMACPP_PLAIN.replace("requests_processing 4", f"requests_processing {load}")
        text = text.replace("requests_deferred 2", "requests_deferred 0")
        self.server.page("/metrics", text.replace("tokens_predicted_total 600", f"tokens_predicted_total {tokens}"))
        await self.fleet.scrape_once()
        await self.control.look_once()
        self.clock.now += 1.0

    async def seconds(self, count: int, load: int) -> None:
        for _ in range(count):
            await self.second(load)

    @property
    def gamma(self) -> object:
        return self.fleet.states[0].gamma

    @property
    def row(self) -> dict[str, Any]:
        return self.fleet.status()[0]

    def answers(self, count: int, own: int, heeds: bool, *, accepted: float = 0.5, path: str = CHAT) -> None:
        """Requests that are answered as a llama.cpp of that kind does: fields taken, timings told."""
        for _ in range(count):
            sent = self.control.field("r", path)
            drafted = own if sent is None or not heeds else min(sent.gamma, own)
            taken = round(40 * drafted * accepted)
            timings = {"predicted_n": 40 + taken, "draft_n": 40 * drafted, "draft_n_accepted": taken}
            body = {"timings": timings if drafted else {"predicted_n": 40}}
            watch = self.control.watch("r", path, None if sent is None else sent.gamma, "chat")
            if watch is not None:
                assert watch.mark == b'"timings"'
                watch.answered(body)


@contextlib.asynccontextmanager
async def scene(
    actuators: Callable[[str, ActuatorSite], GammaActuator] = actuator_for, prices: Prices = PRICES, **settings: Any
) -> AsyncIterator[Scene]:
    clock = Clock()
    async with ScriptedEngine() as server:
        server.page("/slots", pages.LLAMACPP_SLOTS_SPECULATIVE)
        replica = ReplicaSettings(name="r", url=server.url, engine="llamacpp", gamma=8, set_gamma="per_request")
        fleet = a_fleet(replica, clock=clock, policy=prices)
        control = GammaControl(fleet, lambda: prices, clock, actuators=actuators)
        made = Scene(fleet, control, server, clock)
        made.configure(**settings)
        try:
            yield made
        finally:
            await fleet.stop()


async def test_the_first_change_is_made_after_a_quarter_of_the_dwell() -> None:
    engine = LiveEngine()
    async with scene(lambda way, name: LiveActuator(engine)) as at:
        await at.seconds(15, 32)
        assert engine.asked == []
        await at.second(32)
        assert engine.asked == [engine.gamma] != [8]
        assert at.gamma == engine.gamma
        assert at.row["gamma"] == engine.gamma
        assert at.row["set_gamma"]["changes"] == {"gain": 1}
        assert at.row["set_gamma"]["own_gamma"] == 8


async def test_an_actuator_that_fails_leaves_the_engine_as_it_was_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = LiveEngine(fails=True)
    async with scene(lambda way, name: LiveActuator(engine)) as at:
        tries = []
        for second in range(500):
            before = len(engine.asked)
            await at.second(32)
            if len(engine.asked) > before:
                tries.append(second)
            assert engine.gamma == 8
            assert at.gamma == 8
        print(f"an actuator that fails: tried after {tries} s; gamma stays 8; {at.row['set_gamma']['failures']}")
        assert tries == [15, 75, 195, 435]
        assert at.row["set_gamma"]["failures"] == {"status_500": 4}
        assert at.row["set_gamma"]["changes"] == {}
        assert any("gamma was not changed: status_500: the engine answered 500" in r.message for r in caplog.records)
        engine.fails = False
        await at.seconds(470, 32)
        assert at.gamma == engine.gamma != 8


async def test_one_change_is_under_way_at_most() -> None:
    engine = LiveEngine(gate=asyncio.Event())
    async with scene(lambda way, name: LiveActuator(engine)) as at:
        await at.seconds(15, 32)
        assert engine.gate is not None
        look = asyncio.ensure_future(at.second(32))
        await engine.arrived.wait()
        for _ in range(100):
            at.clock.now += 1.0
            await at.control.look_once()
        assert len(engine.asked) == 1
        engine.gate.set()
        await look
        assert at.gamma == engine.gamma


@pytest.mark.parametrize("capture", [None, 192], ids=["costs", "capture limit"])
async def test_a_load_to_and_fro_over_an_edge_changes_gamma_once_a_minute_at_most(capture: int | None) -> None:
    engine, prices = LiveEngine(), Prices(alpha={"unsure": 0.7}, fixed=0.0201, capture_tokens=capture)
    async with scene(lambda way, name: LiveActuator(engine), prices) as at:
        changed = []
        for second in range(300):
            before = engine.gamma
            await at.second(31 if second % 2 else 33)
            if engine.gamma != before:
                changed.append((second, before, engine.gamma))
        print(f"31/33 every second for 5 minutes through scrapes, edge of the {capture or 'costs'}: changes {changed}")
        assert all(b[0] - a[0] >= 60 for a, b in itertools.pairwise(changed))
        assert len(changed) <= 2


async def test_per_request_is_believed_when_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with scene() as at:
        changes: list[tuple[str, object]] = []
        at.control.on_change = lambda replica, gamma, when: changes.append((replica.name, gamma))
        await at.seconds(70, 32)
        assert (
            " of the 64 steps needed have told how much the engine drafts by itself" in at.row["set_gamma"]["waits_for"]
        )
        assert at.control.field("r", CHAT) is None
        at.answers(3, 8, True)
        await at.second(32)
        sent = at.control.field("r", CHAT)
        assert sent is not None
        assert sent == GammaField("speculative.n_max", sent.gamma)
        assert at.control.field("r", "/v1/embeddings") is None
        assert at.control.field("other", CHAT) is None
        assert (at.gamma, at.row["set_gamma"]["state"]) == (8, "verifying")
        at.answers(3, 8, True)
        await at.second(32)
        assert (at.gamma, at.row["set_gamma"]["state"]) == (sent.gamma, "verified")
        assert changes == [("r", sent.gamma)]
        assert at.row["set_gamma"]["acceptance_ratio"] is not None
        assert at.fleet.states[0].acceptance_ratio is not None
        print(at.row["set_gamma"])
        assert any("the engine heeds speculative.n_max" in record.message for record in caplog.records)
        await at.seconds(2, 32)
        await at.second(32, tokens=10)
        await at.second(32, tokens=10)
        assert (at.gamma, at.row["set_gamma"]["state"]) == (8, "ready"), "a restart begins anew"
        assert changes == [("r", sent.gamma), ("r", 8)]


async def test_per_request_stops_when_ignored_and_the_fleet_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as at:
        at.answers(3, 8, False)
        await at.seconds(61, 32)
        assert at.control.field("r", CHAT) is not None
        at.answers(3, 8, False)
        assert at.control.field("r", CHAT) is None
        await at.seconds(100, 32)
        assert at.gamma == 8
        row = at.row
        assert row["set_gamma"]["state"] == "stopped"
        assert row["set_gamma"]["failures"] == {"ignored": 1}
        (note,) = [note for note in row["notes"] if "gamma" in note]
        print(note)
        assert note.startswith("gamma cannot be set: the engine ignores speculative.n_max: 3 answers in a row")
        assert at.control.watch("r", CHAT, None, "chat") is None
        assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1


async def test_per_request_found_to_be_ignored_later_falls_back_to_the_engines_gamma() -> None:
    async with scene() as at:
        at.answers(3, 8, True)
        await at.seconds(61, 32)
        at.answers(3, 8, True)
        await at.second(32)
        assert at.gamma != 8
        at.answers(3, 8, False)
        await at.second(32)
        assert (at.gamma, at.row["set_gamma"]["state"]) == (8, "stopped")


async def test_observing_decides_and_sets_nothing_and_takes_back_what_was_set() -> None:
    async with scene(mode="observe") as at:
        at.answers(3, 8, True)
        await at.seconds(70, 32)
        row = at.row["set_gamma"]
        assert (row["reason"], row["sent"], row["state"]) == ("gain", None, "ready")
        assert row["best"] not in (8, None)
        assert row["gain"] > row["margin"]
        at.configure("act")
        await at.second(32)
        at.answers(3, 8, True)
        await at.second(32)
        assert at.gamma == row["best"]
        assert at.control.field("r", CHAT) is not None
        at.configure("observe")
        assert at.control.field("r", CHAT) is None, "from the next request on"
        await at.second(32)
        assert at.gamma == 8


async def test_a_reload_that_takes_the_right_away_leaves_the_engines_own_gamma() -> None:
    async with scene() as at:
        at.answers(3, 8, True)
        await at.seconds(61, 32)
        at.answers(3, 8, True)
        await at.second(32)
        assert at.gamma != 8
        settings = at.fleet.replicas[0].settings
        at.configure("act", dwell_s=30)
        assert at.gamma != 8, "other settings, the same replica"
        at.fleet.replace([settings.model_copy(update={"set_gamma": "none"})])
        at.configure("act")
        assert (at.gamma, at.control.active, at.row["set_gamma"]) == (8, False, None)
        await at.second(32)
        at.fleet.replace([settings])
        at.configure("act")
        assert at.row["set_gamma"]["state"] == "ready"
        at.fleet.replace([settings.model_copy(update={"name": "other"})])
        at.configure("act")
        assert at.control.field("r", CHAT) is None
        assert [control.replica.name for control in at.control.controls] == ["other"]


async def test_a_fault_over_numbers_is_logged_and_the_next_look_is_made(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Prices):
        breaks = True

        def step_seconds(self, *args: Any, **more: Any) -> float:
            if self.breaks:
                raise ZeroDivisionError
            return super().step_seconds(*args, **more)

    engine, prices = LiveEngine(), Broken()
    async with scene(lambda way, name: LiveActuator(engine), prices) as at:
        await at.seconds(3, 32)
        assert any("met a fault and is lost" in record.message for record in caplog.records)
        prices.breaks = False
        await at.seconds(70, 32)
        assert engine.asked


async def test_the_loop_looks_by_itself_and_stops() -> None:
    engine = LiveEngine()
    async with scene(lambda way, name: LiveActuator(engine), interval_s=0.001, dwell_s=0.5) as at:
        await at.second(32)
        at.clock.now += 0.5
        await at.control.start()
        with pytest.raises(RuntimeError, match="already"):
            await at.control.start()
        async with asyncio.timeout(20):
            while not engine.asked:
                at.clock.now += 0.01
                await asyncio.sleep(0.001)
        await at.control.stop()
        assert at.gamma == engine.gamma


def _acceptance(steps: int, accepted: int, gamma: int) -> RequestAcceptance:
    return RequestAcceptance(None, gamma * steps, accepted, None, None, most_drafts=steps + 1)


def test_what_answers_tell_is_of_any_gamma() -> None:
    track = AnswerTrack(30.0)
    for _ in range(10):
        track.saw("chat", 1, _acceptance(40, 28, 1), 0.0)
        track.saw("structured", 4, _acceptance(40, 80, 4), 0.0)
        track.saw("chat", 0, _acceptance(40, 0, 1), 0.0)
    expected = 10 * 40 * (PRICES.expected_tokens("chat", 1) + PRICES.expected_tokens("structured", 4) - 2.0)
    assert track.ratio(PRICES) == pytest.approx(10 * (28 + 80) / expected)
    assert track.by_class() == {"chat": 400.0, "structured": 400.0}
    track.saw("chat", 1, _acceptance(1, 0, 1), 300.0)
    assert track.ratio(PRICES) is None, "ten half-lives later nothing is left to go by"
    track.forget()
    assert track.by_class() == {}
