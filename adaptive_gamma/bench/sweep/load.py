"""Closed-loop load: so many requests open at a time, until a list of them is done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import TracebackType

from adaptive_gamma.bench.sweep.asking import CONNECT, Asked, RequestForm, RequestOutcome, Slot
from adaptive_gamma.bench.sweep.http import Address, Clock
from adaptive_gamma.engines import EngineReading
from adaptive_gamma.errors import ConnectError

__all__ = ["GaugeMeans", "LoadResult", "OpenRequests", "run_load"]

_FIRST_LOOK_S = 0.25
_LOOK_EVERY_S = 1.0
"""Seconds between two looks at the engine's gauges: a metrics page of a large engine costs it some milliseconds."""


class OpenRequests:
    """How many requests are open, as a mean over time."""

    def __init__(self) -> None:
        self.now = 0
        self.last_change: float | None = None
        self._area = 0.0
        self._spent = 0.0

    def change(self, by: int, at: float) -> None:
        """``by`` more (or fewer) are open from ``at`` on."""
        if self.last_change is not None:
            self._area += self.now * (at - self.last_change)
            self._spent += at - self.last_change
        self.last_change = at
        self.now += by

    @property
    def mean(self) -> float | None:
        """From the first change to the last; None where no time passed."""
        return self._area / self._spent if self._spent > 0 else None


@dataclass(frozen=True, slots=True)
class GaugeMeans:
    """What the engine's own gauges said while the load ran."""

    looks: int = 0
    running: float | None = None
    waiting: float | None = None


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What came of a load. Seconds on the clock it was given."""

    outcomes: tuple[RequestOutcome, ...]
    duration_s: float
    """From the first request to the end of the last answer."""
    mean_open: float | None
    gauges: GaugeMeans

    @property
    def whole(self) -> tuple[RequestOutcome, ...]:
        """The answers that are whole."""
        return tuple(outcome for outcome in self.outcomes if outcome.failure is None)


async def run_load(
    address: Address,
    form: RequestForm,
    work: Sequence[Asked],
    concurrency: int,
    *,
    clock: Clock,
    timeout_s: float,
    look: Callable[[], Awaitable[EngineReading | None]] | None = None,
) -> LoadResult:
    """Keep ``concurrency`` requests open until all of ``work`` is asked and answered.

    All connections are made before the first request is sent. ``look`` reads the engine's gauges now and then.

    Raises:
        ConnectError: not one request found a connection.
    """
    slots = [Slot(address, clock, timeout_s) for _ in range(min(concurrency, len(work)))]
    waiting = iter(work)
    outcomes: list[RequestOutcome] = []
    open_requests = OpenRequests()

    async def serve(slot: Slot) -> None:
        for asked in waiting:
            open_requests.change(1, clock())
            try:
                outcomes.append(await slot.ask(form, asked))
            finally:
                open_requests.change(-1, clock())

    try:
        await asyncio.gather(*(_connected(slot) for slot in slots))
        started = clock()
        async with _GaugeWatch(look) as watch, asyncio.TaskGroup() as group:
            for slot in slots:
                group.create_task(serve(slot))
        ended = open_requests.last_change or started
    finally:
        for slot in slots:
            slot.close()
    if outcomes and all(outcome.failure == CONNECT for outcome in outcomes):
        raise ConnectError(outcomes[0].detail)
    return LoadResult(tuple(outcomes), ended - started, open_requests.mean, watch.means())


async def _connected(slot: Slot) -> None:
    try:
        await slot.connect()
    except ConnectError:
        return  # it tries again for its first request, and that one counts


class _GaugeWatch:
    """Looks at the engine's gauges while the block runs."""

    def __init__(self, look: Callable[[], Awaitable[EngineReading | None]] | None) -> None:
        self._look = look
        self._task: asyncio.Task[None] | None = None
        self._running: list[int] = []
        self._waiting: list[int] = []

    async def __aenter__(self) -> _GaugeWatch:
        if self._look is not None:
            self._task = asyncio.create_task(self._run(self._look))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()

    async def _run(self, look: Callable[[], Awaitable[EngineReading | None]]) -> None:
        await asyncio.sleep(_FIRST_LOOK_S)
        while True:
            reading = await look()
            if reading is not None and reading.running is not None and reading.waiting is not None:
                self._running.append(reading.running)
                self._waiting.append(reading.waiting)
            await asyncio.sleep(_LOOK_EVERY_S)

    def means(self) -> GaugeMeans:
        """The means of what was seen."""
        looks = len(self._running)
        return GaugeMeans(looks, fmean(self._running), fmean(self._waiting)) if looks else GaugeMeans()
