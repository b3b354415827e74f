"""Counting the requests that are open on a replica. The one place where they are counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType

from adaptive_gamma.routing.replica import ReplicaState

__all__ = ["OpenOfClass", "OpenRequest", "OpenRequests"]


class OpenRequests:
    """The open requests of one replica, by class, and how long each class had how many of them open.

    Keeps ``state.in_flight``.
    """

    __slots__ = ("_classes", "_clock", "_state", "on_idle")

    def __init__(self, state: ReplicaState, clock: Callable[[], float]) -> None:
        self.on_idle: Callable[[], None] | None = None
        """Called each time the last open request ends."""
        self._state = state
        self._clock = clock
        self._classes: dict[str, OpenOfClass] = {}
        """Each that has any open, or had some since the period began."""

    @property
    def by_class(self) -> dict[str, int]:
        """Open requests now, by class; a class without any is absent."""
        return {name: of_class.count for name, of_class in self._classes.items() if of_class.count}

    def seconds_by_class(self) -> dict[str, float]:
        """Request-seconds each class had open since :meth:`forget_seconds`.

        A sequence makes one draft per engine step whatever its class, so these are the classes' shares of the drafts
        in that time, short and long requests alike, as far as requests wait in the engine equally long.
        """
        now = self._clock()
        return {name: seconds for name, each in self._classes.items() if (seconds := each.seconds_until(now)) > 0}

    def forget_seconds(self) -> None:
        """Start a new period."""
        now = self._clock()
        self._classes = {name: each for name, each in self._classes.items() if each.count}
        for each in self._classes.values():
            each.seconds, each.since = 0.0, now

    def opened(self, request_class: str) -> OpenOfClass:
        """One more is open, until ``closed`` of what is returned is called, which must be done once."""
        of_class = self._classes.get(request_class)
        if of_class is None:
            of_class = self._classes[request_class] = OpenOfClass(self, self._state, self._clock)
        of_class.change(1)
        return of_class

    def counted(self, counts: Mapping[str, int]) -> None:
        """So many are open now, by class, as another process counts them that carries the requests."""
        for name in counts.keys() | self._classes.keys():
            of_class = self._classes.get(name)
            by = counts.get(name, 0) - (0 if of_class is None else of_class.count)
            if not by:
                continue
            if of_class is None:
                of_class = self._classes[name] = OpenOfClass(self, self._state, self._clock)
            of_class.change(by)
        if self.on_idle is not None and not self._state.in_flight:
            self.on_idle()


class OpenOfClass:
    """How many requests of a class are open, and for how many request-seconds some were."""

    __slots__ = ("_clock", "_requests", "_state", "count", "seconds", "since")

    def __init__(self, requests: OpenRequests, state: ReplicaState, clock: Callable[[], float]) -> None:
        self._requests = requests
        self._state = state
        self._clock = clock
        self.count = 0
        self.since = clock()
        self.seconds = 0.0

    def seconds_until(self, now: float) -> float:
        return self.seconds + self.count * max(now - self.since, 0.0)

    def closed(self) -> None:
        """One of them is open no more."""
        self.change(-1)
        on_idle = self._requests.on_idle
        if on_idle is not None and not self._state.in_flight:
            on_idle()

    def change(self, by: int) -> None:
        """So many more are open from now on."""
        now, since = self._clock(), self.since
        if now > since:
            self.seconds += self.count * (now - since)
            self.since = now
        self.count += by
        self._state.in_flight += by


class OpenRequest:
    """A request on its way: counted from ``begin`` to ``end``, or as the block of a ``with`` statement."""

    __slots__ = ("_open", "_request_class", "_requests")

    def __init__(self, requests: OpenRequests, request_class: str) -> None:
        self._requests = requests
        self._request_class = request_class
        self._open: OpenOfClass | None = None

    def begin(self) -> OpenRequest:
        """Count it. Raises RuntimeError when it is counted already."""
        if self._open is not None:
            raise RuntimeError("this request is open already")
        self._open = self._requests.opened(self._request_class)
        return self

    def end(self) -> None:
        """Count it no more; harmless when it is not counted."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.closed()

    def __enter__(self) -> OpenRequest:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
