"""The loop that sets gammas: each second it asks for each replica what its gamma should be, and has it changed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from adaptive_gamma.config.settings import ControlSettings, ScrapeSettings
from adaptive_gamma.engines import ActuatorSite, GammaActuator, actuator_for
from adaptive_gamma.fleet.fleet import Fleet
from adaptive_gamma.fleet.gamma_control import AnswerWatch, GammaField, ReplicaControl, rules_of
from adaptive_gamma.fleet.replica import FleetReplica
from adaptive_gamma.fleet.scrape import EngineClient
from adaptive_gamma.routing.gamma_candidates import GammaPrices
from adaptive_gamma.routing.replica import GammaSetting

__all__ = ["GammaControl"]

_log = logging.getLogger("adaptive_gamma.fleet")
_FAULTS = (ArithmeticError, ValueError, TypeError, LookupError)
"""What a look can raise by a fault of ours over numbers nobody foresaw: it is logged and lost, the next is made."""


class GammaControl:
    """Sets the gamma of those replicas whose settings allow it; the others are not looked at.

    While only observing it decides and sets nothing, and what was set before is withdrawn.

    Args:
        fleet: the replicas.
        policy: prices, as they are now.
        clock: the fleet's: monotonic seconds.
        actuators: makes an actuator from the setting ``set_gamma`` and where it is to work.
        unix_clock: seconds since 1970, as engines date what they write.
    """

    def __init__(
        self,
        fleet: Fleet,
        policy: Callable[[], GammaPrices],
        clock: Callable[[], float] = time.monotonic,
        *,
        actuators: Callable[[str, ActuatorSite], GammaActuator] = actuator_for,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self._unix_clock = unix_clock
        self._actuators = actuators
        self._fleet = fleet
        self._policy = policy
        self._clock = clock
        self._settings = ControlSettings()
        self._half_life_s = ScrapeSettings().half_life_s
        self._slo_tpot_s: float | None = None
        self._mode: Literal["act", "observe"] = "observe"
        self._controls: dict[FleetReplica, ReplicaControl] = {}
        self._by_name: dict[str, ReplicaControl] = {}
        self.active = False
        """Whether there is a replica whose gamma can be set."""
        self.field_names: frozenset[str] = frozenset()
        """Fields that requests may be given. One whose client set such a field itself is to be left alone."""
        self._task: asyncio.Task[None] | None = None
        self._looking: set[ReplicaControl] = set()
        self._withdrawn: set[ReplicaControl] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self.on_change: Callable[[FleetReplica, GammaSetting | None, float], None] | None = None
        """Called with a replica, its gamma from now on and the time, at each change."""

    @property
    def controls(self) -> tuple[ReplicaControl, ...]:
        return tuple(self._by_name.values())

    def configure(
        self,
        settings: ControlSettings,
        *,
        mode: Literal["act", "observe"],
        slo_tpot_s: float | None,
        half_life_s: float,
    ) -> None:
        """Go on with these settings, and with the replicas that the fleet has now."""
        self._settings, self._mode, self._slo_tpot_s, self._half_life_s = settings, mode, slo_tpot_s, half_life_s
        now = self._clock()
        controls: dict[FleetReplica, ReplicaControl] = {}
        for replica in self._fleet.replicas:
            way = replica.settings.set_gamma
            control = self._controls.pop(replica, None)
            if control is not None and (control.actuator.name, control.way_in) != (way, replica.settings.gamma_control):
                # By another way to the same engine what is set stays, and the next actuator finds it there.
                self._drop(control, leave=control.actuator.name == way)
                control = None
            if way == "none":
                continue
            if control is None:
                control = ReplicaControl(
                    replica, self._actuators(way, self._site(replica)), settings, half_life_s=half_life_s, now=now,
                    changed=self._note_change,
                )  # fmt: skip
                replica.control = control
            control.pilot.rules = rules_of(settings)
            control.answers.half_life_s = half_life_s
            controls[replica] = control
        for control in self._controls.values():
            self._drop(control)
        self._controls = controls
        self._by_name = {replica.name: control for replica, control in controls.items()}
        self.active = bool(controls)
        self.field_names = frozenset[str]().union(*(control.actuator.field_names for control in controls.values()))

    async def start(self) -> None:
        """Start looking."""
        if self._task is not None:
            raise RuntimeError("gammas are being set already")
        self._task = asyncio.create_task(self._run(), name="gamma control")
        self._task.add_done_callback(_report_end)

    async def stop(self) -> None:
        """Stop looking. What is set stays: open requests go on as they began, and a schedule fits any load."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.gather(*self._ending, return_exceptions=True)
        for control in self.controls:
            await control.actuator.close()

    async def look_once(self) -> None:
        """Look at every replica whose gamma can be set."""
        for control in self.controls:
            await self._look(control)

    # -- the request path ---------------------------------------------------------------------------------------------

    def field(self, replica: str, path: str) -> GammaField | None:
        """What a request to a replica is to carry; None where it passes as it came."""
        control = self._by_name.get(replica)
        if control is None or self._mode != "act" or path not in control.actuator.paths:
            return None
        return control.field()

    def watch(self, replica: str, path: str, sent: int | None, request_class: str) -> AnswerWatch | None:
        """Who is to be told of the answer to a request that carried ``sent``; None where nobody is."""
        control = self._by_name.get(replica)
        if control is None or path not in control.actuator.paths or control.problem is not None:
            return None
        return AnswerWatch(control, sent, request_class, self._clock)

    def refused(self, replica: str, sent: int | None, status: int) -> None:
        """A request was refused by the engine as wrong (400, 422)."""
        control = self._by_name.get(replica)
        if control is not None:
            control.actuator.refused(sent, status)

    # -- looks --------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                for control in self.controls:
                    # Each by itself: one actuator that waits for its engine holds up no other.
                    task = loop.create_task(self._look(control), name=f"gamma of {control.replica.name}")
                    running.add(task)
                    task.add_done_callback(running.discard)
                    task.add_done_callback(_report_end)
                    await asyncio.sleep(0)
                due = max(due + self._settings.interval_s, loop.time())
                await asyncio.sleep(due - loop.time())
        finally:
            for task in running:
                task.cancel()

    async def _look(self, control: ReplicaControl) -> None:
        if control in self._looking:
            return
        self._looking.add(control)
        acting = self._mode == "act"
        try:
            if acting:
                self._withdrawn.discard(control)
            elif control not in self._withdrawn and await control.withdraw(self._clock()):
                self._withdrawn.add(control)
            await control.look(self._clock(), self._policy(), slo_tpot_s=self._slo_tpot_s, acting=acting)
        except _FAULTS:
            _log.exception("replica %s: a look at its gamma met a fault and is lost", control.replica.name)
        finally:
            self._looking.discard(control)

    def _drop(self, control: ReplicaControl, *, leave: bool = False) -> None:
        """The replica is gone, or its gamma is no longer to be set, or (``leave``) is to be set by another way.

        What was set is withdrawn, where it has to be: in the running event loop, which a reload always has.
        """
        control.dropped = True
        control.replica.control = None
        control.replica.ratio_of_answers = None
        if not leave:
            control.replica.command_gamma(None)
        self._withdrawn.discard(control)
        if control.actuator.schedules:
            ending = asyncio.get_running_loop().create_task(self._end(control, leave=leave))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            ending.add_done_callback(_report_end)

    async def _end(self, control: ReplicaControl, *, leave: bool) -> None:
        if not leave:
            await control.withdraw(self._clock())
        await control.actuator.close()

    def _site(self, replica: FleetReplica) -> ActuatorSite:
        """What an actuator needs to work on a replica."""
        way_in = replica.settings.gamma_control
        return ActuatorSite(
            replica=replica.name,
            calls=lambda token: EngineClient(replica.url, token),
            token=None if way_in is None else way_in.token,
            file=None if way_in is None or way_in.file is None else Path(way_in.file),
            clock=self._clock,
            unix_clock=self._unix_clock,
        )

    def _note_change(self, replica: FleetReplica, gamma: GammaSetting | None, at: float) -> None:
        if self.on_change is not None:
            self.on_change(replica, gamma, at)


def _report_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("the task %r ended", task.get_name(), exc_info=task.exception())
