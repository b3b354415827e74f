"""Changing an engine's gamma while it runs. Each way of doing that is one file; this one has what they share.

An actuator that cannot make a change leaves the engine as it was and says why, by :class:`ActuatorError` or by
``problem``. It never takes an engine's word for a change where the engine can be seen at work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from pydantic import SecretStr

__all__ = ["ActuatorSite", "ActuatorState", "Drafting", "EngineCalls", "GammaActuator", "GammaRanges", "GammaSet"]

GammaRanges: TypeAlias = tuple[tuple[int, int, int], ...]
"""(first batch, last batch, gamma), both ends included, rising from 1; a gap and the tail carry the gamma before."""
GammaSet: TypeAlias = int | GammaRanges
"""A gamma for all loads, or one for each."""

ActuatorState: TypeAlias = Literal["ready", "verifying", "verified", "stopped"]
"""``ready``: nothing has been asked of the engine yet. ``verifying``: it has, and whether it does it is not known yet.
``verified``: it has been seen to do what it is asked. ``stopped``: it does not, or nobody can tell; it is as it was."""


class Drafting(NamedTuple):
    """What the answer to one request tells of the drafting for it."""

    steps: int
    """Passes of the target that may have verified a draft: no less than there were."""
    draft_tokens: int


class EngineCalls(Protocol):
    """HTTP towards one engine, the token included where there is one."""

    async def exchange(
        self, method: str, path: str, body: bytes | None = None, *, timeout_s: float, max_bytes: int
    ) -> tuple[int, bytes]:
        """Status and body of an answer; a redirect is one. Raises ScrapeError where there is no whole one."""

    async def close(self) -> None: ...


@dataclass(frozen=True)
class ActuatorSite:
    """Where an actuator works, and with what."""

    replica: str
    """The name to log."""
    calls: Callable[[SecretStr], EngineCalls] | None = None
    """Makes the calls to the engine's own port that carry a token."""
    token: SecretStr | None = None
    file: Path | None = None
    """What the engine reads its gamma from, in place of calls."""
    clock: Callable[[], float] = time.monotonic
    unix_clock: Callable[[], float] = time.time


class GammaActuator(Protocol):
    """One engine's gamma, settable. Made for one replica; not shared."""

    name: str
    """As the setting ``set_gamma`` has it."""
    smallest_gamma: int
    """The least that can be set: 0 where drafting can be switched off."""
    schedules: bool
    """Whether it takes a gamma for each load, and not only one for all."""

    paths: frozenset[str]
    """Of the requests that ``request_field`` goes with, and whose answers are worth a look."""
    field_names: frozenset[str]
    """What ``request_field`` may be called. A request whose client set one itself is left alone."""
    answer_mark: bytes
    """Stands in the JSON text of an answer, or in the line of a stream, that ``answered`` can read; empty: in none."""

    @property
    def state(self) -> ActuatorState: ...

    @property
    def problem(self) -> str | None:
        """Why it has stopped, in words; None while it has not."""

    @property
    def waits_for(self) -> str | None:
        """Why no change can be asked for yet, in words; None when one can, and once it has stopped."""

    @property
    def gamma(self) -> GammaSet | None:
        """What is known to be in force, where that may be another than the engine's own; None: the engine's own."""

    @property
    def largest_gamma(self) -> int | None:
        """The most that the engine says it can be set to; None where it does not say."""

    @property
    def largest_batch(self) -> int | None:
        """The most sequences that the engine says it runs at once; None where it does not say."""

    @property
    def settable(self) -> frozenset[int] | None:
        """The only gammas that the engine takes; None where it takes all up to the largest."""

    async def look(self) -> None:
        """See how the engine is. Called before each decision; takes a few seconds at most, and raises nothing."""

    async def change(self, gamma: GammaSet) -> None:
        """Ask the engine for a gamma; ``settled`` tells when it is in force.

        Raises:
            ActuatorError: it cannot be asked for, or refuses. It is as it was.
        """

    async def withdraw(self) -> None:
        """Let the engine's own gamma hold again.

        Raises:
            ActuatorError: that could not be done.
        """

    def settled(self) -> bool:
        """Whether what was asked for is in force; False while that is not known yet.

        Raises:
            ActuatorError: it is not and will not be: the engine is as it was.
        """

    def request_field(self) -> tuple[str, int] | None:
        """Name and value of what each request to the engine carries now; None where requests pass as they came."""

    def answered(self, sent: int | None, body: Mapping[str, object]) -> None:
        """An answer came to a request that carried ``sent``, or no field of ours."""

    def refused(self, sent: int | None, status: int) -> None:
        """The engine refused a request (4xx) that carried ``sent``, or no field of ours."""

    def restarted(self) -> None:
        """The engine began anew and may be another build: nothing known of it holds."""

    def details(self) -> Mapping[str, Any]:
        """What else there is to know, as plain data for ``/status``. Nothing secret."""

    async def close(self) -> None:
        """Let go of connections. What is set stays."""
