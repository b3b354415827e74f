"""How many requests a replica is believed to have, by a picker that sees none end."""

from __future__ import annotations

from adaptive_gamma.envoy.picker.unseen_ends import BELIEVED_S, OpenEstimates
from tests.support.gateway import CODE, PROSE, busy_engine, picked, running_picker
from tests.support.scripted_engine import Reply


async def test_own_picks_count_until_the_engine_has_counted_them() -> None:
    now = [1000.0]
    async with busy_engine(0) as engine, running_picker([engine], options={"clock": lambda: now[0]}) as run:
        replica, ask = run.picker.fleet.replicas[0], run.gateway.ask
        state = replica.state
        for body in (CODE, PROSE, PROSE):
            assert picked(await ask(body))
        assert (state.in_flight, state.in_flight_at_scrape) == (3, 0)
        assert replica.in_flight_by_class == {"structured": 1, "chat": 2}
        engine.replies["/metrics"] = Reply(engine.replies["/metrics"].body.replace(b"} 0", b"} 7", 1))
        now[0] += 1.0
        await run.picker.fleet.scrape_once()
        run.picker.refresh()
        assert (state.in_flight, state.in_flight_at_scrape) == (7, 7)
        assert replica.in_flight_by_class == {"structured": 2, "chat": 5}
        assert picked(await ask(CODE))
        assert state.in_flight == 8
        now[0] += 0.01  # so soon that the engine may have counted without it
        await run.picker.fleet.scrape_once()
        run.picker.refresh()
        assert state.in_flight == 8


async def test_a_burst_between_two_scrapes_is_spread() -> None:
    async with busy_engine(0) as a, busy_engine(0) as b, running_picker([a, b]) as run:
        for _ in range(20):
            await run.gateway.ask(PROSE)
        assert [state.in_flight for state in run.picker.fleet.states] == [10, 10]


async def test_without_a_reading_picks_are_forgotten_after_a_while() -> None:
    now = [1000.0]
    async with busy_engine(4) as engine, running_picker([engine]) as run:
        fleet = run.picker.fleet
        fleet.states[0].running = None
        estimates = OpenEstimates(fleet, lambda: now[0])
        for _ in range(3):
            estimates.picked("r0", "chat")
        estimates.refresh()
        assert fleet.states[0].in_flight == 3
        now[0] += BELIEVED_S + 1
        estimates.picked("r0", "chat")
        estimates.refresh()
        assert fleet.states[0].in_flight == 1


async def test_a_replica_that_leaves_is_gone_at_once() -> None:
    async with busy_engine(4) as one, busy_engine(4) as two, running_picker([one, two]) as run:
        await run.gateway.ask(CODE, subset=[run.endpoints[0]])
        settings = run.picker.settings
        left = settings.model_copy(update={"replicas": settings.replicas[1:]})
        run.picker.apply(left, run.picker.policy)
        assert run.picker.fleet.leaving == ()
        assert picked(await run.gateway.ask(CODE)).endpoint == run.endpoints[1]
        run.picker.apply(settings, run.picker.policy)
        assert len(picked(await run.gateway.ask(CODE)).endpoint.split(",")) == 2
