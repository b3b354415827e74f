"""The loop that sets gammas: each second it asks for each replica what its gamma should be, and has it changed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Literal

from adaptive_gamma.config.settings import ControlSettings, ScrapeSettings
from adaptive_gamma.engines import GammaActuator, actuator_for
from adaptive_gamma.fleet.fleet import Fleet
from adaptive_gamma.fleet.gamma_control import AnswerWatch, GammaField, ReplicaControl, rules_of
from adaptive_gamma.fleet.replica import FleetReplica
from adaptive_gamma.routing.gamma_candidates import GammaPrices

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
        actuators: makes the actuator of a replica from the setting ``set_gamma`` and the replica's name.
    """

    def __init__(
        self,
        fleet: Fleet,
        policy: Callable[[], GammaPrices],
        clock: Callable[[], float] = time.monotonic,
        *,
        actuators: Callable[[str, str], GammaActuator] = actuator_for,
    ) -> None:
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
        self.on_change: Callable[[FleetReplica, int | None, float], None] | None = None
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
            if control is not None and control.actuator.name != way:
                self._drop(control)
                control = None
            if way == "none":
                continue
            if control is None:
                control = ReplicaControl(
                    replica, self._actuators(way, replica.name), settings, half_life_s=half_life_s, now=now,
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
        """Stop looking. What is set stays: the requests still open go on as they began."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

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
            elif control not in self._withdrawn:
                await control.withdraw(self._clock())
                self._withdrawn.add(control)
            await control.look(self._clock(), self._policy(), slo_tpot_s=self._slo_tpot_s, acting=acting)
        except _FAULTS:
            _log.exception("replica %s: a look at its gamma met a fault and is lost", control.replica.name)
        finally:
            self._looking.discard(control)

    def _drop(self, control: ReplicaControl) -> None:
        """The replica is gone, or its gamma is no longer to be set."""
        control.replica.control = None
        control.replica.ratio_of_answers = None
        control.replica.command_gamma(None)
        self._withdrawn.discard(control)

    def _note_change(self, replica: FleetReplica, gamma: int | None, at: float) -> None:
        if self.on_change is not None:
            self.on_change(replica, gamma, at)


def _report_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("the task %r ended", task.get_name(), exc_info=task.exception())
