"""Which gamma a replica runs with, out of what was configured and what the engine shows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from adaptive_gamma.engines import GammaSet
from adaptive_gamma.routing.replica import GammaSchedule, GammaSetting

__all__ = [
    "ConfiguredGamma",
    "EngineEvidence",
    "GammaFinding",
    "GammaMismatch",
    "configured_gamma",
    "find_gamma",
    "gamma_told",
    "ranges_of",
]

ConfiguredGamma: TypeAlias = GammaSetting | None
"""A number, a schedule, or None for ``auto``: the engine is asked."""


def configured_gamma(value: Literal["auto"] | int | Sequence[tuple[int, int, int]]) -> ConfiguredGamma:
    """The setting ``gamma`` of a replica. Raises ValueError for ranges that make no schedule."""
    if value == "auto":
        return None
    if isinstance(value, int):
        return value
    return GammaSchedule([(first, last, gamma) for first, last, gamma in value])


def gamma_told(told: GammaSet | None) -> GammaSetting | None:
    """What an actuator tells, as the decision reads it. Raises ValueError for ranges that make no schedule."""
    return told if told is None or isinstance(told, int) else GammaSchedule(told)


def ranges_of(setting: GammaSetting) -> GammaSet:
    """What the decision wants, as an actuator is asked for it."""
    return setting.ranges if isinstance(setting, GammaSchedule) else setting


@dataclass(slots=True)
class EngineEvidence:
    """What the engine has shown so far. What it does not show any more is kept: some engines create the series that
    tell only with the first draft after a start."""

    speculative: bool | None = None
    labels: int | None = None
    """Number of position labels: the configured gamma, or the largest of the engine's schedule."""
    response: int | None = None
    """The largest gamma seen in a response; where the engine reports only totals, no more than the true one."""

    def page(self, speculative: bool | None, labels: int | None) -> None:
        """Take in what a metrics page told."""
        if speculative is not None:
            self.speculative = speculative
        if labels is not None:
            self.labels = labels
        if self.speculative is False:
            self.labels = self.response = None

    def answer(self, gamma: int) -> None:
        """Take in what a response told."""
        self.response = max(gamma, self.response or 0)
        if self.speculative is None:
            self.speculative = True

    def restarted(self) -> None:
        """The engine started anew, perhaps with another gamma: only pages are asked again, responses are forgotten."""
        self.response = None


@dataclass(frozen=True, slots=True)
class GammaMismatch:
    """The configuration says one thing and the engine another; the engine is believed."""

    configured: int
    """The number, or the largest of the schedule."""
    engine: int | None
    """None: it speculates, with a gamma not known yet."""


@dataclass(frozen=True, slots=True)
class GammaFinding:
    """The gamma to price a replica with."""

    speculative: bool | None
    gamma: GammaSetting | None
    mismatch: GammaMismatch | None


def find_gamma(configured: ConfiguredGamma, seen: EngineEvidence) -> GammaFinding:
    """The engine's word over the configuration's, except that only the configuration can know a schedule.

    With a schedule configured the engine's labels are its largest gamma, no more: the schedule stays, the labels are
    checked against its largest. A response that only bounds gamma from below overrules a smaller configured number
    and leaves a larger one.
    """
    largest = configured.largest if isinstance(configured, GammaSchedule) else configured
    speculative = seen.speculative
    if speculative is None and largest is not None:
        speculative = largest > 0
    shown = seen.labels
    if shown is None and seen.response is not None and (largest is None or seen.response > largest):
        shown = seen.response
    if speculative is None:
        return GammaFinding(None, None, None)
    if not speculative:
        wrong = largest is not None and largest > 0
        return GammaFinding(False, 0, GammaMismatch(largest or 0, 0) if wrong else None)
    mismatch = None
    if largest is not None and ((shown is not None and shown != largest) or largest == 0):
        mismatch = GammaMismatch(largest, shown)
    if isinstance(configured, GammaSchedule) and largest != 0:
        return GammaFinding(True, configured, mismatch)
    if shown is not None:
        return GammaFinding(True, shown, mismatch)
    return GammaFinding(True, largest or None, mismatch)
