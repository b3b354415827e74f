"""In-flight counts through everything that can happen to a fleet: exact at every step, 0 at the end, never negative."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from adaptive_gamma.config.settings import HealthSettings, LoadSettings, ReplicaSettings, ScrapeSettings
from adaptive_gamma.engines import EngineReading
from adaptive_gamma.errors import ScrapeError
from adaptive_gamma.fleet import Fleet, FleetOptions, FleetReplica, OpenRequest
from tests.fleet.scene import Clock

T = TypeVar("T")
NAMES = ("a", "b", "c")
ADDRESSES = ("http://127.0.0.1:1", "http://127.0.0.1:2")
CLASSES = ("chat", "structured", "unsure")
PLACES = st.tuples(st.sampled_from(ADDRESSES), st.sampled_from([0, 3]), st.none() | st.integers(1, 4))
FLEETS = st.dictionaries(st.sampled_from(NAMES), PLACES, min_size=1)


def _settings(replicas: dict[str, tuple[str, int, int | None]]) -> list[ReplicaSettings]:
    return [
        ReplicaSettings(name=name, url=url, gamma=gamma, max_in_flight=cap)
        for name, (url, gamma, cap) in replicas.items()
    ]


class InFlight(RuleBasedStateMachine):
    """A fleet, and beside it the list of what is open at which name and address."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.open: list[tuple[OpenRequest, tuple[str, str], str]] = []
        self.ended: list[OpenRequest] = []
        self.seen: set[FleetReplica] = set()
        self.lost: Counter[str] = Counter()

    def in_loop(self, act: Callable[[], T]) -> T:
        async def run() -> T:
            return act()

        return self.runner.run(run())

    @initialize(replicas=FLEETS)
    def begin(self, replicas: dict[str, tuple[str, int, int | None]]) -> None:
        self.fleet = self.in_loop(
            lambda: Fleet(_settings(replicas), scrape=ScrapeSettings(), health=HealthSettings(), clock=self.clock)
        )
        self.fleet.on_cache_lost = lambda name: self.lost.update([name])

    def _pick(self, which: int) -> FleetReplica:
        return self.fleet.replicas[which % len(self.fleet.replicas)]

    # -- what requests do ---------------------------------------------------------------------------------------------

    @rule(which=st.integers(0, 9), request_class=st.sampled_from(CLASSES))
    def begin_request(self, which: int, request_class: str) -> None:
        replica = self._pick(which)
        request = self.fleet.open_request(replica.name, request_class).__enter__()
        self.open.append((request, (replica.name, replica.url), request_class))

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 99), fault=st.sampled_from([None, RuntimeError("x"), asyncio.CancelledError()]))
    def end_request(self, which: int, fault: BaseException | None) -> None:
        request, _, _ = self.open.pop(which % len(self.open))
        request.__exit__(None if fault is None else type(fault), fault, None)
        self.ended.append(request)

    @precondition(lambda self: self.ended)
    @rule(which=st.integers(0, 99))
    def end_again(self, which: int) -> None:
        self.ended[which % len(self.ended)].__exit__(None, None, None)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 99))
    def begin_again(self, which: int) -> None:
        with pytest.raises(RuntimeError):
            self.open[which % len(self.open)][0].__enter__()

    @rule(name=st.sampled_from(NAMES), note=st.sampled_from(["success", "failure", "connect_failure"]))
    def note(self, name: str, note: str) -> None:
        getattr(self.fleet, f"note_{note}")(name)

    # -- what engines do ----------------------------------------------------------------------------------------------

    @rule(which=st.integers(0, 9), ok=st.booleans(), times=st.integers(1, 3))
    def probe(self, which: int, ok: bool, times: int) -> None:
        for _ in range(times):
            self._pick(which).took_probe(None if ok else ScrapeError("timeout"))

    @rule(which=st.integers(0, 9), generated=st.integers(0, 99), awake=st.sampled_from([True, False, None]))
    def read(self, which: int, generated: int, awake: bool | None) -> None:
        replica = self._pick(which)
        reading = EngineReading(running=1, waiting=0, generation_tokens=float(generated), awake=awake)
        replica.took_reading(reading, started_at=self.clock(), in_flight_at_start=replica.state.in_flight, prior=None)

    @rule(which=st.integers(0, 9))
    def miss(self, which: int) -> None:
        self._pick(which).missed_reading(ScrapeError("connect"), self.clock())

    @rule(seconds=st.sampled_from([0.0, 1.0, 40.0, 4000.0, -1.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    # -- what the operator does ---------------------------------------------------------------------------------------

    @rule(replicas=FLEETS, cap=st.none() | st.integers(1, 3), ramp_s=st.sampled_from([0.0, 30.0]))
    def reload(self, replicas: dict[str, tuple[str, int, int | None]], cap: int | None, ramp_s: float) -> None:
        before = {(replica.name, replica.url): replica for replica in self.fleet.replicas}
        lost = self.lost.copy()
        options = FleetOptions(ScrapeSettings(), HealthSettings(ramp_s=ramp_s), LoadSettings(max_in_flight=cap), None)
        self.in_loop(lambda: self.fleet.replace(_settings(replicas), options))
        after = {(replica.name, replica.url): replica for replica in self.fleet.replicas}
        assert list(after) == [(name, url) for name, (url, _, _) in replicas.items()]
        assert all(after[key] is before[key] for key in after.keys() & before.keys())
        assert self.lost - lost == Counter(name for name, _ in before.keys() - after.keys())
        for (name, _), replica in after.items():
            own = replicas[name][2]
            assert replica.state.max_in_flight == (cap if own is None else own)

    # -- what holds ---------------------------------------------------------------------------------------------------

    @invariant()
    def counts_are_exact(self) -> None:
        expected = Counter(place for _, place, _ in self.open)
        present = (*self.fleet.replicas, *self.fleet.leaving)
        self.seen.update(present)
        assert len({(replica.name, replica.url) for replica in present}) == len(present)
        for replica in self.seen:
            place = (replica.name, replica.url)
            count = replica.state.in_flight
            assert count >= 0
            if replica in present:
                assert count == expected[place]
                classes = Counter(request_class for _, where, request_class in self.open if where == place)
                assert replica.in_flight_by_class == dict(classes)
            else:
                assert count == 0, "what is open nobody could see"
        assert all(replica.state.in_flight > 0 for replica in self.fleet.leaving)
        assert sum(replica.state.in_flight for replica in present) == len(self.open)
        names = {replica.name for replica in present}
        assert self.fleet.in_flight() == {name: sum(p[0] == name for _, p, _ in self.open) for name in names}
        assert [state.name for state in self.fleet.states] == [replica.name for replica in self.fleet.replicas]

    def teardown(self) -> None:
        if hasattr(self, "fleet"):
            while self.open:
                self.open.pop()[0].__exit__(None, None, None)
            assert all(replica.state.in_flight == 0 for replica in self.seen)
            assert self.fleet.leaving == ()
            self.runner.run(self.fleet.stop())
        self.runner.close()


InFlight.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestInFlight = InFlight.TestCase
