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

    __slots__ = ("_clock", "_counts", "_seconds", "_since", "_state", "on_idle")

    def __init__(self, state: ReplicaState, clock: Callable[[], float]) -> None:
        self.on_idle: Callable[[], None] | None = None
        """Called each time the last open request ends."""
        self._state = state
        self._clock = clock
        self._counts: dict[str, int] = {}
        self._seconds: dict[str, float] = {}
        self._since = clock()

    @property
    def by_class(self) -> dict[str, int]:
        """Open requests now, by class; a class without any is absent."""
        return dict(self._counts)

    def seconds_by_class(self) -> dict[str, float]:
        """Request-seconds each class had open since :meth:`forget_seconds`.

        A sequence makes one draft per engine step whatever its class, so these are the classes' shares of the drafts
        in that time, short and long requests alike, as far as requests wait in the engine equally long.
        """
        self._accrue()
        return dict(self._seconds)

    def forget_seconds(self) -> None:
        """Start a new period."""
        self._accrue()
        self._seconds.clear()

    def opened(self, request_class: str) -> None:
        self._accrue()
        self._counts[request_class] = self._counts.get(request_class, 0) + 1
        self._state.in_flight += 1

    def closed(self, request_class: str) -> None:
        self._accrue()
        left = self._counts[request_class] - 1
        if left:
            self._counts[request_class] = left
        else:
            del self._counts[request_class]
        self._state.in_flight -= 1
        if self.on_idle is not None and not self._state.in_flight:
            self.on_idle()

    def _accrue(self) -> None:
        now = self._clock()
        passed = now - self._since
        if passed > 0:
            for name, count in self._counts.items():
                self._seconds[name] = self._seconds.get(name, 0.0) + count * passed
            self._since = now


class OpenRequest:
    """A request on its way: counted from ``with`` to the end of the block, however that ends."""

    __slots__ = ("_open", "_request_class", "_requests")

    def __init__(self, requests: OpenRequests, request_class: str) -> None:
        self._requests = requests
        self._request_class = request_class
        self._open = False

    def __enter__(self) -> OpenRequest:
        if self._open:
            raise RuntimeError("this request is open already")
        self._requests.opened(self._request_class)
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self._open = False
            self._requests.closed(self._request_class)
