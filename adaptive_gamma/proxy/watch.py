"""Noticing that a client went away, in every phase of an exchange."""

from __future__ import annotations

import asyncio

from adaptive_gamma.proxy.request import Receive

__all__ = ["DisconnectWatch"]


class DisconnectWatch:
    """Cancels the task that made it when the client disconnects.

    Start it when the request's body has been read. Disarm it before the last send: a server reports a disconnect as
    soon as a response is complete, and a cancellation then would hit the release of the engine's connection.
    """

    __slots__ = ("_armed", "_owner", "_task", "gone")

    def __init__(self, receive: Receive) -> None:
        owner = asyncio.current_task()
        assert owner is not None
        self._owner = owner
        self._armed = True
        self.gone = False
        """Whether the client left while the watch was armed."""
        self._task = asyncio.get_running_loop().create_task(self._watch(receive))

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if self._armed:
            self._armed = False
            self.gone = True
            self._owner.cancel()

    def disarm(self) -> None:
        """Let the client go unnoticed from here on."""
        self._armed = False
        self._task.cancel()

    def absorb(self) -> bool:
        """After a CancelledError: True when it came from here; it then no longer counts as a cancellation."""
        if self.gone:
            self._owner.uncancel()
        return self.gone
