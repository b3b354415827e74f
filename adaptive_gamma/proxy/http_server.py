"""Two uvicorn listeners, data and admin, in one process and one event loop, and how they stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import uvicorn

from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.proxy.admin_app import admin_app, live_feed
from adaptive_gamma.proxy.client_connection import ClientConnection
from adaptive_gamma.proxy.data_path import DataPath
from adaptive_gamma.proxy.data_plane import DataPlane

__all__ = ["AdminListener", "DataListener", "DataListenerConfig", "ProxyServer"]

_log = logging.getLogger("adaptive_gamma.proxy")

KEEP_ALIVE_S = 75
BACKLOG = 4096
_POLL_S = 0.05
_STREAMS_END_S = 0.5


def _bind(address: str, key: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, int(port)))
        # Two sockets may be bound to one port; only listening tells that it is taken.
        bound.listen(BACKLOG)
    except (OSError, ValueError, OverflowError) as error:
        bound.close()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigurationError("settings", key, f"cannot listen on {address}: {reason}") from error
    bound.setblocking(False)
    return bound


async def _no_application(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("the data port's connections serve themselves")


class DataListenerConfig(uvicorn.Config):
    """uvicorn's configuration with what the connections of the data port need to know.

    ``closing`` makes every further answer say ``Connection: close``. ``keep_alive_s`` is how long a head may be waited
    for, in seconds.
    """

    data_path: DataPath
    closing: bool = False
    keep_alive_s: float = KEEP_ALIVE_S


class _Listener:
    """One bound port.

    Raises ConfigurationError when the address cannot be bound.
    """

    def __init__(self, config: uvicorn.Config, address: str, key: str) -> None:
        self._socket = _bind(address, key)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self.port: int = port
        self._config = config
        self._server = uvicorn.Server(config)

    async def start(self) -> None:
        """Accept connections."""
        self._config.load()
        self._server.lifespan = self._config.lifespan_class(self._config)
        await self._server.startup(sockets=[self._socket])

    @property
    def connections(self) -> list[Any]:
        return list(self._server.server_state.connections)

    def begin_drain(self) -> None:
        """Close idle connections and close the others after their answers; new ones are still taken."""
        for connection in self.connections:
            connection.shutdown()

    def abandon(self) -> None:
        """Give the port up before ``start``."""
        self._socket.close()

    async def close(self) -> None:
        """Stop listening and wait for what runs to end."""
        for server in self._server.servers:
            server.close()
        self._socket.close()
        while self._server.server_state.tasks:
            await asyncio.wait(set(self._server.server_state.tasks))


class DataListener(_Listener):
    """The data port: uvicorn accepts the connections, ``ClientConnection`` serves them."""

    def __init__(self, path: DataPath, address: str) -> None:
        config = DataListenerConfig(
            _no_application, http=ClientConnection, loop="none", ws="none", lifespan="off", interface="asgi3",
            log_config=None, access_log=False, backlog=BACKLOG,
        )  # fmt: skip
        config.data_path = path
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


class AdminListener(_Listener):
    """The admin port: the FastAPI application on uvicorn's own HTTP, in the form that limits heads (h11)."""

    def __init__(self, plane: DataPlane, address: str) -> None:
        self._feed = live_feed(plane)
        config = uvicorn.Config(
            admin_app(plane, self._feed, self._cut_client), http="h11", loop="none", ws="none", lifespan="off",
            log_config=None, access_log=False, server_header=False, proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S, backlog=BACKLOG,
        )  # fmt: skip
        super().__init__(config, address, "admin")

    async def end_streams(self) -> None:
        """Let the event streams of live pages come to their end; those that are slow about it are left to ``cut``."""
        self._feed.close()
        await self._feed.emptied(_STREAMS_END_S)

    def cut(self) -> None:
        """Break every connection that is left."""
        for connection in self.connections:
            connection.transport.abort()

    def _cut_client(self, client: object) -> None:
        for connection in self.connections:
            if connection.client == client:
                connection.transport.abort()


class ProxyServer:
    """The data port and the admin port of one plane.

    ``start``, then ``drain`` once told to stop: not ready at once, while the data port goes on serving until nothing
    is open or the grace is over; what is left then is cut, and said so.
    """

    def __init__(self, plane: DataPlane) -> None:
        settings = plane.settings
        self._plane = plane
        self.data = DataListener(DataPath(plane), settings.listen)
        try:
            self.admin = AdminListener(plane, settings.admin)
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
        await self.admin.end_streams()
        for listener in (self.data, self.admin):
            listener.begin_drain()
            listener.cut()
            await listener.close()
        await self._plane.control.stop()
        await self._plane.fleet.stop()
        await self._plane.stop()
        return cut

    async def _wait_idle(self, grace_s: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + grace_s
        while self.data.open_requests and not self._at_once.is_set() and loop.time() < end:
            try:
                async with asyncio.timeout(min(_POLL_S, max(end - loop.time(), 0.0))):
                    await self._at_once.wait()
            except TimeoutError:
                continue
