"""Two uvicorn listeners, data and admin, in one process and one event loop, and how they stop."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import uvicorn

from adaptive_gamma.admin import KEEP_ALIVE_S, AdminPort, Listener
from adaptive_gamma.admin.port import BACKLOG
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.proxy.admin_app import admin_app, live_feed
from adaptive_gamma.proxy.client_connection import ClientConnection
from adaptive_gamma.proxy.data_path import DataPath
from adaptive_gamma.proxy.data_plane import DataPlane
from adaptive_gamma.proxy.open_files import most_connections

__all__ = ["DataListener", "DataListenerConfig", "ProxyServer"]

_log = logging.getLogger("adaptive_gamma.proxy")

_POLL_S = 0.05
_STREAMS_END_S = 0.5


async def _no_application(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("the data port's connections serve themselves")


class DataListenerConfig(uvicorn.Config):
    """uvicorn's configuration with what the connections of the data port need to know.

    ``closing`` makes every further answer say ``Connection: close``. ``most_connections`` may be open at once.
    ``keep_alive_s`` is how long a head may be waited for, in seconds.
    """

    data_path: DataPath
    closing: bool = False
    most_connections: int
    keep_alive_s: float = KEEP_ALIVE_S


class DataListener(Listener):
    """The data port: uvicorn accepts the connections, ``ClientConnection`` serves them."""

    def __init__(self, path: DataPath, address: str) -> None:
        config = DataListenerConfig(
            _no_application, http=ClientConnection, loop="none", ws="none", lifespan="off", interface="asgi3",
            log_config=None, access_log=False, backlog=BACKLOG,
        )  # fmt: skip
        config.data_path = path
        config.most_connections = most_connections()
        self._data_config = config
        super().__init__(config, address, "listen")

    @property
    def open_requests(self) -> int:
        """Requests whose answer has not been written out to the last byte."""
        return sum(connection.busy for connection in self.connections)

    def begin_drain(self) -> None:
        self._data_config.closing = True
        super().begin_drain()

    def cut(self) -> None:
        """Break every connection that is left."""
        for connection in self.connections:
            connection.cut()


class ProxyServer:
    """The data port and the admin port of one plane.

    ``start``, then ``drain`` once told to stop: not ready at once, while the data port goes on serving until nothing
    is open or the grace is over; what is left then is cut, and said so.
    """

    def __init__(self, plane: DataPlane) -> None:
        settings = plane.settings
        self._plane = plane
        self.feed = live_feed(plane)
        """What live pages are told."""
        self.data = DataListener(DataPath(plane), settings.listen)
        try:
            self.admin = AdminPort(admin_app(plane, self.feed, self), settings.admin, settings.admin_hosts)
        except ConfigurationError:
            self.data.abandon()
            raise
        self._at_once = asyncio.Event()

    async def start(self) -> None:
        """Start the fleet's loops and accept connections."""
        self._plane.start()
        await self._plane.fleet.start()
        await self._plane.control.start()
        await self.admin.start()
        await self.data.start()

    def hurry(self) -> None:
        """Let a drain end now."""
        self._at_once.set()

    async def drain(self) -> int:
        """Finish what is open and stop; the number of requests that had to be cut."""
        self._plane.draining = True
        grace_s = self._plane.settings.drain.grace_s
        self.data.begin_drain()
        _log.info("draining: %d requests open, at most %g s", self.data.open_requests, grace_s)
        await self._wait_idle(grace_s)
        cut = self.data.open_requests
        if cut:
            _log.warning("drain: %d requests were still open and are cut", cut)
        self.feed.close()
        await self.feed.emptied(_STREAMS_END_S)
        self.data.begin_drain()
        self.data.cut()
        await self.data.close()
        await self.admin.stop()
        await self._plane.control.stop()
        await self._plane.fleet.stop()
        await self._plane.stop()
        return cut

    def narrow(self, client: object) -> None:
        """Hold little for a client of the admin port."""
        self.admin.narrow(client)

    def cut(self, client: object) -> None:
        """Break the connection of a client of the admin port."""
        self.admin.cut(client)

    async def _wait_idle(self, grace_s: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + grace_s
        while self.data.open_requests and not self._at_once.is_set() and loop.time() < end:
            try:
                async with asyncio.timeout(min(_POLL_S, max(end - loop.time(), 0.0))):
                    await self._at_once.wait()
            except TimeoutError:
                continue
