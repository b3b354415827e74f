"""Engine side: lets the scheduler have a new schedule between two of its steps, and tells what it does with it.

A thread of its own watches the schedule file, checks what it finds and lays it ready. The scheduler's own thread takes
it when the next step begins, so a step never sees half a change; all that this costs a step is a comparison and a few
counts. The thread then writes what happened into the state file, and at least once a second that it is still there.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from adaptive_gamma.vllm_plugin.files import (
    FORMAT,
    FileError,
    Fingerprint,
    fingerprint,
    read_object,
    state_file_of,
    write_object,
)
from adaptive_gamma.vllm_plugin.schedule import Schedule, ScheduleError, parse_schedule

__all__ = ["EngineLimits", "ScheduleGovernor"]

_log = logging.getLogger("vllm.adaptive_gamma")

_LOOK_EVERY_S = 0.05
_WRITE_EVERY_S = 0.2
_ALIVE_EVERY_S = 1.0
_LONGEST_REVISION = 200


class EngineLimits(NamedTuple):
    """What the engine was started with."""

    version: str
    max_gamma: int
    """``num_speculative_tokens``."""
    max_batch: int
    """``max_num_seqs``."""
    startup_schedule: Schedule
    captured_gammas: frozenset[int] | None
    """Gammas that have full CUDA graphs; another would run without them. None: there is no such limit."""


class GovernedScheduler(Protocol):
    """What is set of a scheduler: gamma by number of requests in a step, index 0 unused."""

    dynamic_sd_lookup: list[int] | None


class _Ready(NamedTuple):
    """A checked schedule that waits for the next step."""

    schedule: Schedule
    revision: str | None
    lookup: list[int]


class ScheduleGovernor:
    """Governs one scheduler.

    Args:
        scheduler: held weakly: the governor ends with it.
        limits: of its engine.
        schedule_file: where schedules are asked for.
        lookup_of: vLLM's own way from a schedule to the list its scheduler reads.
        clock: Unix time in seconds.
    """

    def __init__(
        self,
        scheduler: GovernedScheduler,
        limits: EngineLimits,
        schedule_file: Path,
        *,
        lookup_of: Callable[[list[list[int]]], list[int]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._scheduler = weakref.ref(scheduler)
        self._limits = limits
        self._file = schedule_file
        self._state_file = state_file_of(schedule_file)
        self._lookup_of = lookup_of
        self._clock = clock
        self._startup_lookup = scheduler.dynamic_sd_lookup
        self._seen: Fingerprint | None = None
        self._ready: _Ready | None = None
        """Written by the watching thread, taken by the scheduler's."""
        self._in_force = _Ready(limits.startup_schedule, None, scheduler.dynamic_sd_lookup or [])
        self._refused: dict[str, str | None] | None = None
        self._steps = self._steps_in_force = 0
        self._last_batch: int | None = None
        self._last_gamma: int | None = None
        self._started_at = clock()
        self._written_at = 0.0
        self._written: tuple[object, ...] | None = None
        self._write_failed = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # -- the scheduler's thread ---------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """The schedule that lies ready holds from this step on."""
        ready = self._ready
        if ready is self._in_force or ready is None:
            return
        scheduler = self._scheduler()
        if scheduler is not None:
            scheduler.dynamic_sd_lookup = ready.lookup
            # In this order: the watching thread tells of no steps before the schedule they are counted for.
            self._steps_in_force = 0
            self._in_force = ready

    def end_step(self, batch: int, gamma: int) -> None:
        """A step was scheduled, with so many requests in it and so many tokens to draft for each."""
        if batch > 0:
            self._last_batch, self._last_gamma = batch, gamma
            self._steps += 1
            self._steps_in_force += 1

    # -- the watching thread ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Watch the file until :meth:`stop`, or until the scheduler is gone."""
        self._thread = threading.Thread(target=self._watch, name="adaptive-gamma schedule", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the watch, and give the scheduler the schedule it was started with."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        scheduler = self._scheduler()
        if scheduler is not None:
            scheduler.dynamic_sd_lookup = self._startup_lookup

    def look(self) -> None:
        """Take in a schedule file that was replaced, and tell what has changed since the last look."""
        found = fingerprint(self._file)
        if found is not None and found != self._seen:
            self._seen = found
            self._read()
        self._tell()

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_EVERY_S):
            if self._scheduler() is None:
                return
            self.look()

    def _read(self) -> None:
        try:
            asked = read_object(self._file)
        except FileError as error:
            self._refuse(None, f"the schedule file is of no use: {error}")
            return
        given = asked.get("revision")
        revision = given[:_LONGEST_REVISION] if isinstance(given, str) else None
        wanted = asked.get("schedule")
        try:
            schedule = (
                self._limits.startup_schedule
                if wanted is None and "schedule" in asked
                else parse_schedule(wanted, max_gamma=self._limits.max_gamma)
            )
            lookup = list(self._lookup_of([list(each) for each in schedule]))
            self._check_captured(lookup)
        except ValueError as error:  # ScheduleError is one, and so is what vLLM's own check raises
            self._refuse(revision, str(error))
            return
        self._refused = None
        self._ready = _Ready(schedule, revision, lookup)
        _log.info("adaptive-gamma: schedule %s holds from the next step on", _words(schedule))

    def _check_captured(self, lookup: list[int]) -> None:
        captured = self._limits.captured_gammas
        if captured is None:
            return
        missing = sorted(set(lookup[1:]) - captured)
        if missing:
            raise ScheduleError(
                f"no CUDA graphs were captured for gamma {', '.join(map(str, missing))}; "
                f"the start-up schedule has {', '.join(map(str, sorted(captured)))}"
            )

    def _refuse(self, revision: str | None, reason: str) -> None:
        self._refused = {"revision": revision, "reason": reason}
        _log.warning("adaptive-gamma: a schedule is refused: %s; the one before stays", reason)

    def _tell(self) -> None:
        """Write the state, where it has changed or is old."""
        now = self._clock()
        ready = self._ready or self._in_force
        facts = (ready, self._refused, self._steps, self._in_force)
        age = now - self._written_at
        at_once = self._written is None or facts[:2] != self._written[:2] or facts[3] is not self._written[3]
        if not at_once and 0.0 <= age < (_ALIVE_EVERY_S if facts == self._written else _WRITE_EVERY_S):
            return
        self._written, self._written_at = facts, now
        try:
            write_object(self._state_file, self._state(ready, now))
            self._write_failed = False
        except OSError as error:
            if not self._write_failed:
                _log.error("adaptive-gamma: the state file cannot be written: %s", error.strerror)
            self._write_failed = True

    def _state(self, ready: _Ready, now: float) -> dict[str, Any]:
        limits = self._limits
        applied = ready is self._in_force
        return {
            "format": FORMAT,
            "engine_version": limits.version,
            "status": "ready",
            "problem": None,
            "max_gamma": limits.max_gamma,
            "max_batch": limits.max_batch,
            "captured_gammas": None if limits.captured_gammas is None else sorted(limits.captured_gammas),
            "startup_schedule": [list(each) for each in limits.startup_schedule],
            "schedule": [list(each) for each in ready.schedule],
            "revision": ready.revision,
            "refused": self._refused,
            "steps": self._steps,
            "steps_in_force": self._steps_in_force if applied else 0,
            "last_gamma": self._last_gamma,
            "last_batch": self._last_batch,
            "started_at": self._started_at,
            "written_at": now,
        }


def _words(schedule: Schedule) -> str:
    return "; ".join(f"batch {first}-{last}: gamma {gamma}" for first, last, gamma in schedule)
