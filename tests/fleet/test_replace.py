"""Other replicas while requests are open: who stays keeps all, who leaves ends its work, who joins starts slowly."""

from __future__ import annotations

import asyncio
import math

import pytest
from pydantic import SecretStr

from adaptive_gamma.config.settings import HealthSettings, LoadSettings, ReplicaSettings, ScrapeSettings
from adaptive_gamma.fleet import Fleet, FleetOptions
from adaptive_gamma.routing import GammaSchedule
from tests.engines import pages
from tests.fleet.scene import Clock, a_fleet
from tests.support.acceptance_recorder import AcceptanceRecorder
from tests.support.gated_engine import until
from tests.support.scripted_engine import Reply, ScriptedEngine

PLACE = "http://127.0.0.1:1"


def _at(name: str, url: str = PLACE, **more: object) -> ReplicaSettings:
    return ReplicaSettings.model_validate({"name": name, "url": url, **more})


def _options(**more: object) -> FleetOptions:
    values = {"scrape": ScrapeSettings(), "health": HealthSettings(), "load": LoadSettings(), "api_key": None, **more}
    return FleetOptions(**values)  # type: ignore[arg-type]  # a test's shorthand


async def test_who_stays_keeps_its_state_and_its_readings() -> None:
    async with ScriptedEngine() as engine:
        engine.page("/metrics", pages.VLLM_0_33)
        fleet = a_fleet(_at("a", engine.url), _at("b", engine.url))
        await fleet.scrape_once()
        kept = fleet.by_name("b")
        with fleet.open_request("b", "chat"):
            fleet.replace([_at("c", engine.url), _at("b", engine.url)])
            assert [state.name for state in fleet.states] == ["c", "b"]
            assert fleet.by_name("b") is kept
            assert fleet.states[1] is kept.state
            assert (kept.state.in_flight, kept.state.running, kept.state.ramp_s) == (1, 7, 0.0)
            assert (fleet.states[0].running, fleet.states[0].ramp_s) == (None, 30.0)
            assert fleet.leaving == ()
        assert kept.state.in_flight == 0
        await fleet.stop()


async def test_who_leaves_gets_nothing_new_and_vanishes_with_its_last_request() -> None:
    lost: list[str] = []
    fleet = a_fleet(_at("a"), _at("b"))
    fleet.on_cache_lost = lost.append
    fleet.learning = recorder = AcceptanceRecorder()
    first, second = fleet.open_request("a", "chat"), fleet.open_request("a", "structured")
    leaving = fleet.by_name("a")
    with first:
        with second:
            fleet.replace([_at("b")])
            assert lost == recorder.forgotten == ["a"]
            assert [state.name for state in fleet.states] == ["b"]
            with pytest.raises(KeyError):
                fleet.open_request("a", "chat")
            assert fleet.by_name("a") is leaving, "its requests may still ask about it"
            rows = fleet.status()
            assert [(row["name"], row["leaving"], row["draining"], row["in_flight"]) for row in rows] == [
                ("b", False, False, 0),
                ("a", True, True, 2),
            ]
            for note in (fleet.note_success, fleet.note_failure, fleet.note_connect_failure):
                note("a")
            fleet.note_response("a", {"timings": {"draft_n": 3}})
        assert fleet.in_flight() == {"a": 1, "b": 0}
    assert fleet.in_flight() == {"b": 0}
    assert (fleet.leaving, leaving.state.in_flight) == ((), 0)
    with pytest.raises(KeyError):
        fleet.by_name("a")
    await fleet.stop()


async def test_removed_and_added_again_while_its_requests_are_open() -> None:
    clock = Clock()
    fleet = a_fleet(_at("a"), _at("b"), clock=clock)
    state = fleet.states[0]
    with fleet.open_request("a", "chat"):
        fleet.replace([_at("b")])
        fleet.replace([_at("a"), _at("b")])
        assert fleet.states[0] is state
        assert (state.in_flight, state.draining, fleet.leaving) == (1, False, ())
        assert state.ramp_until == clock.now + 30
        with fleet.open_request("a", "chat"):
            assert state.in_flight == 2
    assert state.in_flight == 0
    assert fleet.by_name("a").state is state, "it is no longer leaving, so it does not vanish"
    await fleet.stop()


async def test_another_address_is_another_replica_of_the_same_name() -> None:
    lost: list[str] = []
    fleet = a_fleet(_at("a"))
    fleet.on_cache_lost = lost.append
    old = fleet.states[0]
    with fleet.open_request("a", "chat"):
        fleet.replace([_at("a", "http://127.0.0.1:2")])
        new = fleet.states[0]
        assert new is not old
        assert (old.in_flight, new.in_flight, lost) == (1, 0, ["a"])
        assert fleet.in_flight() == {"a": 1}
        assert fleet.by_name("a").state is new
        with fleet.open_request("a", "chat"):
            assert (old.in_flight, new.in_flight, fleet.in_flight()) == (1, 1, {"a": 2})
            fleet.replace([_at("a")])
            assert fleet.states[0] is old, "back at the first address, where a request is still open"
        assert new.in_flight == 0
    assert (old.in_flight, fleet.leaving) == (0, ())
    await fleet.stop()


async def test_two_of_one_name_change_nothing() -> None:
    fleet = a_fleet(_at("a"))
    before = (fleet.replicas, fleet.states)
    with pytest.raises(ValueError, match="distinct"):
        fleet.replace([_at("b"), _at("b")], _options(load=LoadSettings(max_in_flight=1)))
    assert (fleet.replicas, fleet.states) == before
    assert fleet.states[0].max_in_flight is None
    await fleet.stop()


async def test_caps_are_the_replicas_own_or_those_of_all() -> None:
    fleet = a_fleet(_at("a"), _at("b", max_in_flight=9), load=LoadSettings(max_in_flight=4))
    assert [state.max_in_flight for state in fleet.states] == [4, 9]
    fleet.replace([_at("a", max_in_flight=2), _at("b")])
    assert [state.max_in_flight for state in fleet.states] == [2, 4]
    fleet.replace([_at("a"), _at("b")], _options())
    assert [state.max_in_flight for state in fleet.states] == [None, None]
    await fleet.stop()


async def test_other_settings_of_the_same_replica() -> None:
    fleet = a_fleet(_at("a", gamma=3, model="m"))
    state = fleet.states[0]
    assert (state.gamma, state.models) == (3, frozenset({"m"}))
    fleet.replace([_at("a", gamma=[[1, 8, 4]])])
    assert fleet.states[0] is state
    assert (state.gamma, state.models, state.ramp_until) == (GammaSchedule([(1, 8, 4)]), None, -math.inf)
    fleet.replace([_at("a", gamma=0, model="n")])
    assert (state.gamma, state.pool, state.models) == (0, "plain", frozenset({"n"}))
    await fleet.stop()


async def test_other_thresholds_hold_at_once() -> None:
    fleet = a_fleet(_at("a"))
    fleet.replace([_at("a")], _options(health=HealthSettings(down_after=1, ramp_s=7)))
    fleet.note_failure("a")
    assert not fleet.states[0].healthy
    await fleet.stop()


async def _looked_at(engine: ScriptedEngine, path: str, times: int) -> None:
    await until(lambda: sum(asked == path for asked, _ in engine.requests) >= times, f"{times} looks at {path}")


async def test_loops_follow_the_replicas() -> None:
    async with ScriptedEngine({"/health": Reply()}) as one, ScriptedEngine({"/health": Reply()}) as two:
        for engine in (one, two):
            engine.page("/metrics", pages.VLLM_0_33)
        fleet = Fleet(
            [_at("one", one.url)],
            scrape=ScrapeSettings(interval_s=0.01, timeout_s=5.0),
            health=HealthSettings(interval_s=0.01, timeout_s=5.0),
        )
        await fleet.start()
        await _looked_at(one, "/metrics", 2)
        assert fleet.looked
        fleet.replace([_at("two", two.url)])
        assert fleet.looked, "a replica that joins later does not make the fleet unready"
        await _looked_at(two, "/metrics", 2)
        await _looked_at(two, "/health", 2)
        await until(lambda: not _named("one"), "the loops of the replica that left end")
        assert len(_named("two")) == 2
        await fleet.stop()
        assert not _named("two")


def _named(name: str) -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name() in (f"scrape {name}", f"health {name}")]


async def test_other_intervals_and_another_key_make_the_loops_anew() -> None:
    async with ScriptedEngine({"/health": Reply(), "/ready": Reply()}) as engine:
        engine.page("/metrics", pages.VLLM_0_33)
        fleet = Fleet(
            [_at("a", engine.url)],
            scrape=ScrapeSettings(interval_s=60, timeout_s=5.0),
            health=HealthSettings(interval_s=60),
        )
        await fleet.start()
        await _looked_at(engine, "/metrics", 1)
        state = fleet.states[0]
        fleet.replace(
            [_at("a", engine.url)],
            _options(
                scrape=ScrapeSettings(interval_s=0.01, timeout_s=5.0, stale_after_s=9),
                health=HealthSettings(interval_s=0.01, path="/ready"),
                api_key=SecretStr("k"),
            ),
        )
        await _looked_at(engine, "/metrics", 3)
        await _looked_at(engine, "/ready", 2)
        assert engine.requests[-1][1]["authorization"] == "Bearer k"
        assert fleet.states[0] is state
        assert fleet.replicas[0].restarts == 0
        await fleet.stop()


async def test_a_fleet_without_a_loop_to_run_in_is_not_replaced() -> None:
    fleet = a_fleet(_at("a"))
    with pytest.raises(RuntimeError):
        await asyncio.to_thread(fleet.replace, [_at("b")])
    assert [replica.name for replica in fleet.replicas] == ["a"]
    await fleet.stop()
