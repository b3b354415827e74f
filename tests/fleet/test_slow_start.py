"""A replica that comes back, restarts or joins later is priced above its load for a while, and its cache is cold."""

from __future__ import annotations

import math

from adaptive_gamma.config.settings import ReplicaSettings
from adaptive_gamma.fleet import Fleet
from tests.fleet.scene import Clock, a_fleet, page, watched
from tests.support.scripted_engine import Reply, ScriptedEngine


def _cold(fleet: Fleet) -> list[str]:
    """The names whose cache was reported lost, as they come."""
    lost: list[str] = []
    fleet.on_cache_lost = lost.append
    return lost


async def test_at_the_start_of_the_process_nothing_ramps() -> None:
    clock = Clock()
    async with ScriptedEngine({"/health": Reply()}) as engine, watched(engine, clock) as fleet:
        lost = _cold(fleet)
        engine.page("/metrics", page())
        await fleet.scrape_once()
        await fleet.check_health_once()
        state = fleet.states[0]
        assert (state.ramp_until, state.ramp_s, lost) == (-math.inf, 0.0, [])
        assert fleet.status()[0]["ramping"] is False


async def test_back_from_down() -> None:
    clock = Clock()
    async with ScriptedEngine({"/health": Reply()}) as engine, watched(engine, clock) as fleet:
        lost = _cold(fleet)
        for _ in range(3):
            fleet.note_connect_failure("r")
        assert not fleet.states[0].healthy
        assert lost == [], "it is not back yet"
        await fleet.check_health_once()
        await fleet.check_health_once()
        state = fleet.states[0]
        assert (state.healthy, state.ramp_until, state.ramp_s, lost) == (True, clock.now + 30, 30.0, ["r"])
        assert fleet.status()[0]["ramping"] is True
        clock.now += 30
        assert fleet.status()[0]["ramping"] is False
        await fleet.check_health_once()
        assert (state.ramp_until, lost) == (clock.now, ["r"]), "staying up is no return"


async def test_a_restart_that_no_probe_noticed() -> None:
    clock = Clock()
    async with ScriptedEngine() as engine, watched(engine, clock) as fleet:
        lost = _cold(fleet)
        for generated in (9000, 9500, 60):
            engine.page("/metrics", page(generated=generated))
            await fleet.scrape_once()
            clock.now += 1
        assert lost == ["r"]
        assert fleet.states[0].ramp_until == clock.now - 1 + 30
        assert fleet.states[0].healthy


async def test_an_engine_that_wakes_up() -> None:
    clock = Clock()
    async with ScriptedEngine() as engine, watched(engine, clock) as fleet:
        lost = _cold(fleet)
        for awake in (False, True):
            engine.page("/metrics", page(awake=awake))
            await fleet.scrape_once()
        assert lost == ["r"]
        assert fleet.states[0].ramp_s == 30


async def test_a_ramp_of_0_is_none() -> None:
    clock = Clock()
    async with ScriptedEngine({"/health": Reply()}) as engine:
        fleet = a_fleet(ReplicaSettings(name="r", url=engine.url), clock=clock, health={"ramp_s": 0})
        lost = _cold(fleet)
        for _ in range(3):
            fleet.note_failure("r")
        assert not fleet.states[0].healthy
        await fleet.check_health_once()
        await fleet.check_health_once()
        state = fleet.states[0]
        assert (state.healthy, state.ramp_until, state.ramp_s, lost) == (True, -math.inf, 0.0, ["r"])
        await fleet.stop()


async def test_failed_answers_take_a_replica_down_and_any_other_answer_is_forgiven() -> None:
    async with ScriptedEngine({"/health": Reply()}) as engine, watched(engine) as fleet:
        for _ in range(5):
            fleet.note_failure("r")
            fleet.note_failure("r")
            fleet.note_success("r")
        assert fleet.states[0].healthy
        for _ in range(3):
            fleet.note_failure("r")
            await fleet.check_health_once()
        assert not fleet.states[0].healthy
        for name in ("somebody", "else"):
            fleet.note_failure(name)
            fleet.note_success(name)
            fleet.note_connect_failure(name)
            fleet.note_response(name, {})
