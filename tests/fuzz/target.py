"""What a fuzz target is, and the bounds that each of its examples is held to."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.database import ExampleDatabase
from hypothesis.strategies import SearchStrategy

__all__ = ["MOST_CPU_S", "Target", "TooSlow", "bounded"]

MOST_CPU_S = 5.0
"""Seconds of CPU that one example may take. The slowest honest one takes some 0.3 s; what runs away takes minutes."""


class TooSlow(AssertionError):
    """An example took more CPU time than any input of its size may."""


@dataclass(frozen=True)
class Target:
    """A parser under test: examples of its input, and what must hold for each of them.

    ``check`` calls the parser, lets through no error but those designed, and asserts what must be true of the rest.
    """

    name: str
    examples: SearchStrategy[Any]
    check: Callable[[Any], None]

    def property(
        self, most: int, database: ExampleDatabase | None = None, *, derandomize: bool = False
    ) -> Callable[[], None]:
        """The target as a property of hypothesis with ``most`` examples."""

        @settings(
            max_examples=most,
            deadline=None,
            database=None if derandomize else database,
            derandomize=derandomize,
            report_multiple_bugs=False,
            phases=[Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(self.examples)
        def holds(example: Any) -> None:
            self.check(example)

        return holds


@contextmanager
def bounded(seconds: float = MOST_CPU_S) -> Iterator[None]:
    """Raise TooSlow once the block has used so much CPU time. In the main thread; regular expressions are cut off."""

    def too_slow(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"an example took more than {seconds:g} s of CPU time")

    before = signal.signal(signal.SIGPROF, too_slow)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
