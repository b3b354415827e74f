"""Counting the requests that are open on a replica. The one place where they are counted."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from adaptive_gamma.routing.replica import ReplicaState

__all__ = ["OpenRequest", "OpenRequests"]


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
        self._classes: dict[str, _OpenOfClass] = {}

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
        self._classes = {name: _OpenOfClass(each.count, now) for name, each in self._classes.items() if each.count}

    def opened(self, request_class: str) -> None:
        now = self._clock()
        of_class = self._classes.get(request_class)
        if of_class is None:
            self._classes[request_class] = _OpenOfClass(1, now)
        else:
            of_class.change(now, 1)
        self._state.in_flight += 1

    def closed(self, request_class: str) -> None:
        self._classes[request_class].change(self._clock(), -1)
        state = self._state
        state.in_flight -= 1
        if self.on_idle is not None and not state.in_flight:
            self.on_idle()


class _OpenOfClass:
    """How many requests of a class are open, and for how many request-seconds some were."""

    __slots__ = ("count", "seconds", "since")

    def __init__(self, count: int, since: float) -> None:
        self.count = count
        self.since = since
        self.seconds = 0.0

    def seconds_until(self, now: float) -> float:
        return self.seconds + self.count * max(now - self.since, 0.0)

    def change(self, now: float, by: int) -> None:
        """So many more are open from now on."""
        if now > self.since:
            self.seconds += self.count * (now - self.since)
            self.since = now
        self.count += by


class OpenRequest:
    """A request on its way: counted from ``begin`` to ``end``, or as the block of a ``with`` statement."""

    __slots__ = ("_open", "_request_class", "_requests")

    def __init__(self, requests: OpenRequests, request_class: str) -> None:
        self._requests = requests
        self._request_class = request_class
        self._open = False

    def begin(self) -> OpenRequest:
        """Count it. Raises RuntimeError when it is counted already."""
        if self._open:
            raise RuntimeError("this request is open already")
        self._requests.opened(self._request_class)
        self._open = True
        return self

    def end(self) -> None:
        """Count it no more; harmless when it is not counted."""
        if self._open:
            self._open = False
            self._requests.closed(self._request_class)

    def __enter__(self) -> OpenRequest:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
