"""``set_gamma: vllm_schedule``: the schedule of a running vLLM, set through the plugin inside of it.

vLLM itself has no way to take another gamma while it runs. The plugin ``adaptive_gamma.vllm_plugin`` gives it one, by a
route on the engine's port or by a file on a volume that both can reach, and tells what it does.

1. What is asked for carries a revision of our own. The schedule is in force, and the decision prices the replica with
   it, once the plugin tells that revision and gammas equal to those asked for.
2. The change counts as made when a step after that has drafted what the schedule says for the number of requests in
   it. Three steps that did not, and the engine is not believed any more: the schedule of its start-up is asked for.
3. Another revision than ours, or than the one found at the start, means that somebody else sets gamma: it is left to
   them. Two controllers do not fight; the one that was there first gives way.

A plugin that is not there, refuses to work, or is silent for 5 s ends setting, not routing: this is said once, and
looked at again every 10 s. A refused token is not tried again. A new start of the engine begins all of this anew.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Mapping
from typing import Any

from adaptive_gamma.engines._plugin_door import FileDoor, HttpDoor, PluginDoor
from adaptive_gamma.engines._plugin_state import PluginState, gamma_in, held_gamma, plugin_state, same_gammas
from adaptive_gamma.engines.actuator import ActuatorSite, ActuatorState, GammaRanges, GammaSet
from adaptive_gamma.errors import ActuatorError

__all__ = ["VllmScheduleActuator"]

_log = logging.getLogger("adaptive_gamma.engines")

_ALIVE_S = 5.0
"""The plugin writes once a second; silent for longer, and the engine is gone or hangs."""
_AGAIN_S = 10.0
_TAKEN_S = 10.0
_PROOFS = 3
"""Steps that contradict the schedule, with none between them that follows it, which settle it."""
_FOR_GOOD = frozenset({"foreign", "ignored", "unauthorized"})
"""Reasons that only a new start of the engine, or other settings, can end."""
_STILL_IN_FORCE = frozenset({"foreign", "silent", "gone", "malformed"})
"""Reasons which leave the schedule read last the best guess at what the engine does."""


class VllmScheduleActuator:
    """Sets the schedule of one vLLM, and sees to it that this has an effect.

    Args:
        site: the name to log, and the clocks.
        door: the way to the plugin.
    """

    name = "vllm_schedule"
    smallest_gamma = 0
    schedules = True
    paths: frozenset[str] = frozenset()
    field_names: frozenset[str] = frozenset()
    answer_mark = b""

    def __init__(self, site: ActuatorSite, door: PluginDoor) -> None:
        self._replica = site.replica
        self._clock = site.clock
        self._unix_clock = site.unix_clock
        self._door = door
        self._turn = asyncio.Lock()
        self._mark = f"adaptive-gamma-{secrets.token_hex(8)}"
        """What our revisions begin with."""
        self._writes = 0
        self._touched = False
        """Something of ours may be in force."""
        self._forget()

    @classmethod
    def at(cls, site: ActuatorSite) -> VllmScheduleActuator:
        """With the way that the settings name. Raises ValueError where they name none."""
        if site.file is not None:
            return cls(site, FileDoor(site.file))
        if site.token is None or site.calls is None:
            raise ValueError("vllm_schedule needs a file, or a token and calls to the engine")
        return cls(site, HttpDoor(site.calls(site.token), site.token))

    def _forget(self) -> None:
        """Nothing is known of the engine."""
        now = self._clock()
        self._state: PluginState | None = None
        self._started_at: float | None = None
        """The engine's last start, by its own clock."""
        self._asked_first_at = now
        self._heard_at: float | None = None
        """When the plugin was last seen to write."""
        self._problem: str | None = None
        self._reason = ""
        self._again_at = -math.inf
        self._failure: ActuatorError | None = None
        """Of the last change, to be told once."""
        self._accepted: str | None = None
        """The revision that may be in force beside ours."""
        self._accepting_until = math.inf
        self._wanted: GammaRanges | None = None
        """Asked for, and not seen at work yet."""
        self._revision: str | None = None
        """Of our last write."""
        self._asked_at = now
        self._undo: GammaRanges | None = None
        """What to ask for again, () being the start-up's, as a change came to nothing."""
        self._proved = False
        self._contradicted = 0
        self._judged: tuple[float, int] | None = None

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ActuatorState:
        if self._problem is not None:
            return "stopped"
        if self._wanted is not None:
            return "verifying"
        return "verified" if self._proved else "ready"

    @property
    def problem(self) -> str | None:
        return self._problem

    @property
    def waits_for(self) -> str | None:
        if self._problem is not None or self._heard_at is not None:
            return None
        return "the plugin in the engine has not been heard of yet"

    @property
    def gamma(self) -> GammaSet | None:
        state = self._state
        if state is None or (self._problem is not None and self._reason not in _STILL_IN_FORCE):
            return None
        return None if self._heard_at is None or not state.schedule else held_gamma(state)

    @property
    def largest_gamma(self) -> int | None:
        return None if self._state is None else self._state.largest_gamma

    @property
    def largest_batch(self) -> int | None:
        return None if self._state is None else self._state.largest_batch

    @property
    def settable(self) -> frozenset[int] | None:
        return None if self._state is None else self._state.settable

    def settled(self) -> bool:
        """Whether a step has been seen to follow what was asked for.

        Raises:
            ActuatorError: ``refused``, ``not_taken`` or ``restarted``, once, for the last change; else, while it is
                stopped, the reason of that.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._problem is not None:
            raise ActuatorError(self._reason, self._problem)
        return self._wanted is None

    def details(self) -> Mapping[str, Any]:
        state, heard = self._state, self._heard_at
        told: dict[str, Any] = {"way": self._door.kind, "age_s": None if heard is None else self._clock() - heard}
        if state is not None:
            told |= {**state.as_dict(), "ours": self._is_ours(state.revision)}
        return told

    # -- requests carry nothing ---------------------------------------------------------------------------------------

    def request_field(self) -> tuple[str, int] | None:
        return None

    def answered(self, sent: int | None, body: Mapping[str, object]) -> None:
        """Answers tell nothing of the schedule."""

    def refused(self, sent: int | None, status: int) -> None:
        """Nothing was sent."""

    # -- what is done -------------------------------------------------------------------------------------------------

    async def look(self) -> None:
        async with self._turn:
            if self._problem is None or self._clock() >= self._again_at:
                try:
                    self._take(await self._door.read())
                except ActuatorError as error:
                    self._missed(error)
            if self._undo is not None:
                await self._put_back()

    async def change(self, gamma: GammaSet) -> None:
        """Ask for a schedule, or for one gamma at every load.

        Raises:
            ActuatorError: ``stopped`` or ``not_yet``; ``not_a_gamma`` for one above the engine's largest; ``refused``,
                ``silent``, ``unwritable`` and the like as the way to the plugin has it.
        """
        async with self._turn:
            state = self._state
            if self._problem is not None:
                raise ActuatorError("stopped", self._problem)
            if state is None or self._heard_at is None:
                raise ActuatorError("not_yet", self.waits_for or "")
            ranges = ((1, state.largest_batch, gamma),) if isinstance(gamma, int) else gamma
            if not all(0 <= each <= state.largest_gamma for _, _, each in ranges):
                raise ActuatorError("not_a_gamma", f"the engine takes 0..{state.largest_gamma}")
            revision = self._next_revision()
            self._wanted, self._revision, self._asked_at = ranges, revision, self._clock()
            self._touched, self._proved, self._contradicted, self._judged = True, False, 0, None
            self._accepting_until = -math.inf
            try:
                told = await self._door.write(ranges, revision)
                if told is not None:
                    self._take(told)
            except ActuatorError as error:
                self._wanted = None
                if error.reason in ("absent", "unauthorized"):
                    self._stop(error.reason, error.detail)
                raise

    async def withdraw(self) -> None:
        """Ask for the schedule of the start-up, where one of ours may be in force.

        Raises:
            ActuatorError: that could not be done.
        """
        async with self._turn:
            if self._touched and self._reason == "unauthorized":
                raise ActuatorError(self._reason, self._problem or "")
            if self._touched and self._reason != "foreign":
                await self._back_to_startup()
            self._touched, self._wanted, self._proved, self._undo = False, None, False, None

    def restarted(self) -> None:
        self._forget()

    async def close(self) -> None:
        await self._door.close()

    # -- readings -----------------------------------------------------------------------------------------------------

    def _take(self, told: dict[str, Any]) -> None:
        """A state was read. Raises ActuatorError where it is none."""
        try:
            state = plugin_state(told)
        except ValueError as error:
            raise ActuatorError("malformed", f"the plugin's state makes no sense: {error}") from None
        now, before = self._clock(), self._state
        if self._started_at is not None and state.started_at != self._started_at:
            self._engine_restarted()
            before = None
        self._started_at = state.started_at
        if state.problem is not None:
            self._stop("plugin_refused", f"the plugin in the engine does nothing: {state.problem}")
            return
        if before is None:
            self._accepted, self._accepting_until = state.revision, now + _ALIVE_S
            if abs(self._unix_clock() - state.written_at) <= _ALIVE_S:
                self._heard_at = now
            else:  # left over from an engine that is gone, or of a clock that differs: the next writing tells
                self._asked_first_at = now
        elif state.written_at != before.written_at:
            self._heard_at = now
        self._state = state
        if now - (self._asked_first_at if self._heard_at is None else self._heard_at) > _ALIVE_S:
            self._stop("gone", f"the plugin has written nothing for {_ALIVE_S:g} s: the engine is gone, or hangs")
            return
        if self._heard_at is None:
            return
        if self._problem is not None and self._reason not in _FOR_GOOD:
            _log.info("replica %s: the plugin in the engine is heard of again; gamma can be set", self._replica)
            self._problem, self._reason = None, ""
        if now < self._accepting_until:
            self._accepted = state.revision
        if self._problem is None and not self._is_ours(state.revision) and state.revision != self._accepted:
            what = "its start-up schedule is back" if state.revision is None else f"revision {state.revision[:80]!r}"
            self._stop("foreign", f"somebody else sets the engine's schedule ({what}), and it is left to them")
        if self._problem is None:
            self._follow(state, now)

    def _follow(self, state: PluginState, now: float) -> None:
        """See what has become of the last change, and whether the engine goes on doing what it was asked to."""
        in_force = state.revision is not None and state.revision == self._revision
        if self._wanted is not None and not in_force:
            if state.refused is not None and state.refused[0] == self._revision:
                self._came_to_nothing("refused", state.refused[1])
            elif now - self._asked_at > _TAKEN_S:
                self._came_to_nothing("not_taken", f"the engine has not taken the schedule within {_TAKEN_S:g} s")
            return
        if not in_force:
            return
        self._accepted = state.revision
        if self._wanted is not None and not same_gammas(state.schedule, self._wanted, state.largest_batch):
            self._came_to_nothing("not_taken", f"the engine tells of another schedule, {list(state.schedule)[:8]}")
            return
        self._judge(state)

    def _judge(self, state: PluginState) -> None:
        """Hold the last step against the schedule."""
        step = (state.started_at, state.steps)
        if not state.steps_in_force or state.last_gamma is None or not state.last_batch or step == self._judged:
            return
        self._judged = step
        expected = gamma_in(state.schedule, state.last_batch)
        if state.last_gamma == expected:
            self._contradicted = 0
            if self._wanted is not None:
                _log.info(
                    "replica %s: the engine follows the schedule %s: gamma %d for %d requests",
                    self._replica, [list(part) for part in state.schedule], expected, state.last_batch,
                )  # fmt: skip
            self._wanted, self._proved = None, True
            return
        self._contradicted += 1
        if self._contradicted >= _PROOFS:
            self._undo = ()
            self._stop(
                "ignored",
                f"the engine does not follow its schedule: {_PROOFS} steps in a row drafted otherwise, the last "
                f"{state.last_gamma} tokens for {state.last_batch} requests where the schedule says {expected}",
            )

    def _missed(self, error: ActuatorError) -> None:
        """No state could be read."""
        now = self._clock()
        since = self._asked_first_at if self._heard_at is None else self._heard_at
        if error.reason == "silent" and now - since <= _ALIVE_S:
            return
        self._stop(error.reason, error.detail)

    def _engine_restarted(self) -> None:
        changing = self._wanted is not None
        _log.info("replica %s: the engine began anew; its schedule is that of its start-up", self._replica)
        self._forget()
        if changing:
            self._failure = ActuatorError("restarted", "the engine began anew before it had taken the schedule")

    def _came_to_nothing(self, reason: str, detail: str) -> None:
        """The last change. What was in force before is asked for again, so that it does not come into force late."""
        self._wanted = None
        self._failure = ActuatorError(reason, detail)
        state = self._state
        if reason != "refused" and state is not None:
            self._undo = () if same_gammas(state.schedule, state.startup, state.largest_batch) else state.schedule

    def _stop(self, reason: str, problem: str) -> None:
        if self._problem is not None and self._reason in _FOR_GOOD:
            return
        self._wanted, self._proved = None, False
        # One who set gamma and one who does not follow it are looked at on: the price follows what is in force.
        self._again_at = {"unauthorized": math.inf, "foreign": -math.inf}.get(reason, self._clock() + _AGAIN_S)
        if problem == self._problem:
            return
        self._problem, self._reason = problem, reason
        _log.error(
            "replica %s: gamma cannot be set: %s. From here on requests are only routed; %s",
            self._replica,
            problem,
            "a new start of the engine or other settings begin anew"
            if reason in _FOR_GOOD
            else f"it is tried again every {_AGAIN_S:g} s",
        )

    # -- writing ------------------------------------------------------------------------------------------------------

    async def _put_back(self) -> None:
        ranges, self._undo = self._undo, None
        try:
            if ranges:
                await self._door.write(ranges, self._next_revision())
            else:
                await self._back_to_startup()
        except ActuatorError as error:
            _log.warning("replica %s: the schedule before could not be brought back: %s", self._replica, error)

    async def _back_to_startup(self) -> None:
        try:
            told = await self._door.write(None, self._next_revision())
        except ActuatorError as error:
            if error.reason == "absent":
                return  # no plugin, no schedule of ours
            raise
        if told is not None:
            try:
                self._accepted = plugin_state(told).revision
            except ValueError:
                self._accepting_until = self._clock() + _ALIVE_S

    def _next_revision(self) -> str:
        self._writes += 1
        return f"{self._mark}-{self._writes}"

    def _is_ours(self, revision: str | None) -> bool:
        return revision is not None and revision.startswith(self._mark)
