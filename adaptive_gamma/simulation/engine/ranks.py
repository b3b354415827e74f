"""The ranks of a simulated engine in real time: each steps its core as time passes, and hands out the tokens."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from adaptive_gamma.simulation.engine.acceptance import ScriptedAcceptance
from adaptive_gamma.simulation.engine.core import EngineCore
from adaptive_gamma.simulation.engine.metrics import EngineMetrics
from adaptive_gamma.simulation.engine.settings import EngineSettings
from adaptive_gamma.simulation.engine.steps import EngineRequest, FinishedRequest, TokenEvent

__all__ = ["Generation", "Ranks"]

_LAG_FORGIVEN_S = 0.25
"""Behind by more than this (real seconds) a rank gives up catching up with real time."""


class Generation:
    """One request under way: its events as they come."""

    def __init__(self, request: EngineRequest, rank: int) -> None:
        self.request = request
        self.rank = rank
        self._events: asyncio.Queue[TokenEvent] = asyncio.Queue()

    def put(self, event: TokenEvent) -> None:
        """Hand over an event; called by the rank."""
        self._events.put_nowait(event)

    async def next_event(self) -> TokenEvent:
        """The next event; after one with ``finished`` none comes."""
        return await self._events.get()


class Ranks:
    """All data-parallel ranks of one server.

    Args:
        settings: what to simulate.
        clock: real seconds, monotonic.
    """

    def __init__(self, settings: EngineSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._origin = clock()
        acceptance = ScriptedAcceptance(settings.acceptance)
        self.cores = [
            EngineCore(settings.limits, settings.step_clock, acceptance, settings.gamma)
            for _ in range(settings.engines)
        ]
        self.metrics = EngineMetrics(self.cores, settings.model)
        self._wake = [asyncio.Event() for _ in self.cores]
        self._latest_arrival = [0.0 for _ in self.cores]
        self._open: dict[str, Generation] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._count = 0

    @property
    def open_requests(self) -> int:
        """Requests in queue or batch."""
        return len(self._open)

    def start(self) -> None:
        """Start stepping; needs a running event loop."""
        self._tasks = [asyncio.create_task(self._step_forever(rank)) for rank in range(len(self.cores))]

    async def stop(self) -> None:
        """Abort everything and stop stepping."""
        self.abort_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def failed(self) -> bool:
        """Whether a rank has stopped by an error of its own."""
        return any(task.done() and not task.cancelled() and task.exception() is not None for task in self._tasks)

    def set_acceptance(self, acceptance: ScriptedAcceptance) -> None:
        """Script acceptance anew, for running requests too."""
        for core in self.cores:
            core.acceptance = acceptance

    def submit(
        self, request_id: str, prompt: str, prompt_tokens: int, max_tokens: int, *, ends_by_itself: bool
    ) -> Generation:
        """Queue a request on the rank that has the least to do."""
        self._count += 1
        seed = self._settings.seed * 1_000_003 + self._count
        mean = self._settings.answer_tokens
        length = random.Random(seed).randint(mean - mean // 2, mean + mean // 2) if ends_by_itself else None  # nosec B311  # a seed that the client gives
        rank = min(range(len(self.cores)), key=lambda r: (4 * self.cores[r].waiting + self.cores[r].running, r))
        request = EngineRequest(
            request_id=request_id,
            request_class=self._settings.classify(prompt),
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            stop_after=length,
            seed=seed,
        )
        generation = Generation(request, rank)
        self._latest_arrival[rank] = self._now()
        self.cores[rank].submit(request, self._latest_arrival[rank])
        self._open[request_id] = generation
        self._wake[rank].set()
        return generation

    def abort(self, generation: Generation) -> None:
        """Free what a request holds, at once; harmless when it has ended."""
        finished = self.cores[generation.rank].abort(generation.request.request_id, self._now())
        self._open.pop(generation.request.request_id, None)
        if finished is not None:
            self.metrics.observe_finished(generation.rank, finished)
            generation.put(_last(finished))

    def abort_all(self) -> None:
        """Abort every request; each gets a last event with the reason ``abort``."""
        for generation in list(self._open.values()):
            self.abort(generation)

    def _now(self) -> float:
        """Simulated seconds since the start."""
        return (self._clock() - self._origin) * self._settings.time_scale

    async def _step_forever(self, rank: int) -> None:
        core, wake = self.cores[rank], self._wake[rank]
        scale = self._settings.time_scale
        due = 0.0  # simulated time up to which this rank has worked
        while True:
            if not core.has_work:
                wake.clear()
                await wake.wait()
                due = max(due, self._now())
            if self._now() - due > _LAG_FORGIVEN_S * scale:
                due = self._now()
            due = max(due, self._latest_arrival[rank])
            plan = core.begin_step(due)
            if plan is None:
                continue
            due += plan.seconds
            # Timers are coarse: steps follow each other in simulated time, so that a late one shortens the next wait.
            await asyncio.sleep(max(self._origin + due / scale - self._clock(), 0.0))
            outcome = core.finish_step(due)
            self.metrics.observe_step(rank, outcome)
            for event in outcome.events:
                self._deliver(event)

    def _deliver(self, event: TokenEvent) -> None:
        generation = self._open.get(event.request_id)
        if generation is not None:
            generation.put(event)
            if event.finished is not None:
                del self._open[event.request_id]


def _last(finished: FinishedRequest) -> TokenEvent:
    return TokenEvent(finished.request.request_id, 0, finished)
