"""What the plugin inside of vLLM tells of itself, out of the JSON it writes. What does not add up is not believed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adaptive_gamma.engines._bounds import LARGEST_GAMMA
from adaptive_gamma.engines.actuator import GammaRanges, GammaSet

__all__ = ["FORMAT", "PluginState", "gamma_in", "held_gamma", "plugin_state", "same_gammas", "short_text"]

FORMAT = 1
_MOST_BATCHES = 8192
_MOST_RANGES = 4096
_LONGEST_TEXT = 300


@dataclass(frozen=True, slots=True)
class PluginState:
    """One reading. Where the plugin refuses to work, only ``problem`` and the times are known."""

    problem: str | None
    """Why it does nothing, where it does nothing."""
    started_at: float
    """Unix seconds of the engine's clock."""
    written_at: float
    version: str | None = None
    largest_gamma: int = 0
    largest_batch: int = 0
    settable: frozenset[int] | None = None
    """The only gammas it takes, where CUDA graphs were captured for these alone."""
    startup: GammaRanges = ()
    schedule: GammaRanges = ()
    """In force from the next engine step on."""
    revision: str | None = None
    """Of that schedule; None: it is the one of the start-up."""
    refused: tuple[str | None, str] | None = None
    """Revision and reason of the last schedule it did not take."""
    steps: int = 0
    steps_in_force: int = 0
    last_gamma: int | None = None
    last_batch: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """For ``/status``."""
        return {
            "engine_version": self.version,
            "max_gamma": self.largest_gamma,
            "max_batch": self.largest_batch,
            "captured_gammas": None if self.settable is None else sorted(self.settable),
            "startup_schedule": [list(part) for part in self.startup],
            "schedule": [list(part) for part in self.schedule],
            "revision": self.revision,
            "steps_in_force": self.steps_in_force,
            "last_gamma": self.last_gamma,
            "last_batch": self.last_batch,
        }


def plugin_state(told: Mapping[str, object]) -> PluginState:
    """Raises ValueError, in words, for what is no state of this format."""
    if told.get("format") != FORMAT:
        raise ValueError(f"expected format {FORMAT}, not {short_text(told.get('format'))}")
    started_at, written_at = _time(told, "started_at"), _time(told, "written_at")
    if told.get("status") == "refused":
        return PluginState(short_text(told.get("problem")) or "it does not say why", started_at, written_at)
    if told.get("status") != "ready":
        raise ValueError(f"unknown status {short_text(told.get('status'))}")
    largest_gamma, largest_batch = _count(told, "max_gamma"), _count(told, "max_batch")
    if largest_gamma is None or largest_gamma > LARGEST_GAMMA:
        raise ValueError(f"max_gamma must be a number 0..{LARGEST_GAMMA}")
    if largest_batch is None or not 1 <= largest_batch <= _MOST_BATCHES:
        raise ValueError(f"max_batch must be a number 1..{_MOST_BATCHES}")
    return PluginState(
        problem=None,
        started_at=started_at,
        written_at=written_at,
        version=short_text(told.get("engine_version")) or None,
        largest_gamma=largest_gamma,
        largest_batch=largest_batch,
        settable=_settable(told.get("captured_gammas")),
        startup=_schedule(told, "startup_schedule"),
        schedule=_schedule(told, "schedule"),
        revision=_revision(told.get("revision")),
        refused=_refused(told.get("refused")),
        steps=_count(told, "steps") or 0,
        steps_in_force=_count(told, "steps_in_force") or 0,
        last_gamma=_count(told, "last_gamma"),
        last_batch=_count(told, "last_batch"),
    )


def gamma_in(ranges: GammaRanges, batch: int) -> int:
    """The gamma of a schedule at a batch, as vLLM reads it."""
    gamma = ranges[0][2]
    for first, _, held in ranges:
        if first > batch:
            break
        gamma = held
    return gamma


def held_gamma(state: PluginState) -> GammaSet:
    """What holds for the batches that the engine can have; one number where that is the same for all."""
    most = state.largest_batch
    ranges = tuple((first, min(last, most), gamma) for first, last, gamma in state.schedule if first <= most)
    gammas = {gamma for _, _, gamma in ranges}
    return gammas.pop() if len(gammas) == 1 else ranges


def same_gammas(one: GammaRanges, other: GammaRanges, largest_batch: int) -> bool:
    """Whether two schedules hold the same gamma at every batch, however they are written."""
    starts = {first for first, _, _ in (*one, *other) if first <= largest_batch}
    return all(gamma_in(one, batch) == gamma_in(other, batch) for batch in starts)


def short_text(value: object) -> str:
    """Another program's words for a message of ours: on one line, and bounded; empty for None."""
    if value is None:
        return ""
    text = "".join(letter if letter.isprintable() else " " for letter in str(value)[: _LONGEST_TEXT * 2])
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "..."


def _time(told: Mapping[str, object], key: str) -> float:
    value = told.get(key)
    try:
        time_s = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:  # a number of hundreds of digits
        time_s = math.nan
    if not math.isfinite(time_s):
        raise ValueError(f"{key} must be a time")
    return time_s


def _count(told: Mapping[str, object], key: str) -> int | None:
    value = told.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{key} must be a whole number")
    return value


def _settable(value: object) -> frozenset[int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, int) and 0 <= each <= LARGEST_GAMMA for each in value):
        raise ValueError("captured_gammas must be a list of gammas")
    return frozenset(value)


def _schedule(told: Mapping[str, object], key: str) -> GammaRanges:
    value = told.get(key)
    wrong = ValueError(f"{key} must be a list of [first batch, last batch, gamma] that starts at 1, without overlap")
    if not isinstance(value, list) or not 1 <= len(value) <= _MOST_RANGES:
        raise wrong
    ranges = []
    for part in value:
        if not isinstance(part, list) or len(part) != 3 or any(type(number) is not int for number in part):
            raise wrong
        ranges.append((part[0], part[1], part[2]))
    last = 0
    for first, end, gamma in ranges:
        if not last < first <= end or not 0 <= gamma <= LARGEST_GAMMA:
            raise wrong
        last = end
    if ranges[0][0] != 1:
        raise wrong
    return tuple(ranges)


def _revision(value: object) -> str | None:
    """Anybody's: it is shown, so it is bounded and can be written as UTF-8."""
    return None if value is None else short_text(value)


def _refused(value: object) -> tuple[str | None, str] | None:
    if not isinstance(value, Mapping):
        return None
    return _revision(value.get("revision")), short_text(value.get("reason")) or "it does not say why"
