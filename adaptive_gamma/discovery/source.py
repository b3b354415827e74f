"""What all sources of endpoints have in common: a loop that does not end, and what is known of how it fares."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable

from adaptive_gamma.config import ServiceSettings
from adaptive_gamma.discovery.endpoints import Found
from adaptive_gamma.discovery.pace import Backoff, Pace
from adaptive_gamma.errors import DiscoveryError

__all__ = ["Source"]

_log = logging.getLogger("adaptive_gamma.discovery")
_FAULTS = (ArithmeticError, ValueError, TypeError, LookupError)
"""What an answer that nobody foresaw can raise in the code that reads it: a fault of ours, logged and counted, after
which the next look is made all the same."""


class Source(ABC):
    """One place that is asked, again and again, which endpoints there are. A failure leaves the last answer standing.

    Args:
        place: what is asked, in words for logs and ``/status``.
        pace: time and chance.
        retry_max_s: longest wait after a failure.
        changed: called when the endpoints are others than before.
    """

    kind: str

    def __init__(self, place: str, pace: Pace, retry_max_s: float, changed: Callable[[], None]) -> None:
        self.place = place
        self.heard_at: float | None = None
        """When the place last said something that could be used; None when it never has."""
        self.error: DiscoveryError | None = None
        """Why the last try failed; None when it did not."""
        self.error_since: float | None = None
        """When the failures began that have lasted since."""
        self.failures: Counter[str] = Counter()
        """Failures by reason, since the start."""
        self.looked = asyncio.Event()
        """Set once the first look has ended, with or without success."""
        self._pace = pace
        self._backoff = Backoff(pace, retry_max_s)
        self._changed = changed
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    def found(self, service: ServiceSettings) -> Found:
        """The endpoints known now, as this service's settings take them."""

    @abstractmethod
    def adopt(self, before: Source) -> None:
        """Begin with what another source of the same place knew last."""

    @abstractmethod
    async def _look(self) -> float:
        """Ask, and take what is said; the seconds after which to ask again.

        May go on for as long as the place has something to say. Raises DiscoveryError.
        """

    def start(self) -> None:
        """Begin to ask. Must be called in the running event loop."""
        self._task = asyncio.create_task(self._run(), name=f"discovery {self.place}")
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Ask no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                wait_s = await self._look()
            except DiscoveryError as error:
                self._failed(error)
                wait_s = self._backoff.next_s()
            except _FAULTS as fault:
                _log.error("discovery: a look at %s met a fault and is lost", self.place, exc_info=fault)
                self._failed(DiscoveryError("internal", type(fault).__name__))
                wait_s = self._backoff.next_s()
            await self._pace.sleep(wait_s)

    def _heard(self, missing: DiscoveryError | None = None) -> None:
        """The place has said something that can be used, and perhaps not everything."""
        self.heard_at = self._pace.now()
        if missing is not None:
            self._failed(missing)
            return
        if self.error is not None:
            _log.info("discovery: %s answers again", self.place)
        self.error = self.error_since = None
        self.looked.set()

    def _failed(self, error: DiscoveryError) -> None:
        """A try came to nothing; said once, not with every try."""
        if self.error is None or self.error.reason != error.reason:
            _log.warning("discovery: %s: %s (what is known of it stays)", self.place, error)
        if self.error_since is None:
            self.error_since = self._pace.now()
        self.error = error
        self.failures[error.reason] += 1
        self.looked.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A loop that ends by itself has met a fault of ours; what it knew last stays, and the log says why."""
        if not task.cancelled() and task.exception() is not None:
            _log.error("the loop %r ended", task.get_name(), exc_info=task.exception())
            self.looked.set()
