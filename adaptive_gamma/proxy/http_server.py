"""Two uvicorn listeners, data and admin, in one process and one event loop, and how they stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import uvicorn

from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.proxy.admin_app import admin_app
from adaptive_gamma.proxy.data_app import DataApp
from adaptive_gamma.proxy.data_plane import DataPlane
from adaptive_gamma.proxy.http_protocol import ListenerConfig, StrictHttpProtocol

__all__ = ["Listener", "ProxyServer"]

_log = logging.getLogger("adaptive_gamma.proxy")

KEEP_ALIVE_S = 75
BACKLOG = 4096
_POLL_S = 0.05


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


class Listener:
    """One bound port and its application.

    Raises ConfigurationError when the address cannot be bound.
    """

    def __init__(self, app: Any, address: str, key: str, *, stall_s: float) -> None:
        self._socket = _bind(address, key)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self.port: int = port
        self._config = ListenerConfig(
            app,
            http=StrictHttpProtocol,
            loop="none",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            backlog=BACKLOG,
        )
        self._config.stall_s = stall_s
        self._server = uvicorn.Server(self._config)

    async def start(self) -> None:
        """Accept connections."""
        self._config.load()
        self._server.lifespan = self._config.lifespan_class(self._config)
        await self._server.startup(sockets=[self._socket])

    @property
    def open_requests(self) -> int:
        """Requests whose answer has not been written out to the last byte."""
        connections = self._server.server_state.connections
        return sum(isinstance(connection, StrictHttpProtocol) and connection.busy for connection in connections)

    def begin_drain(self) -> None:
        """Close idle connections and close the others after their answers; new ones are still taken."""
        self._config.closing = True
        for connection in list(self._server.server_state.connections):
            connection.shutdown()

    def cut(self) -> None:
        """Break every connection that is left."""
        for connection in list(self._server.server_state.connections):
            if isinstance(connection, StrictHttpProtocol):
                connection.cut()

    def abandon(self) -> None:
        """Give the port up before ``start``."""
        self._socket.close()

    async def close(self) -> None:
        """Stop listening and wait for the requests to end; call ``cut`` before to have that soon."""
        for server in self._server.servers:
            server.close()
        self._socket.close()
        while self._server.server_state.tasks:
            await asyncio.wait(set(self._server.server_state.tasks))


class ProxyServer:
    """The data port and the admin port of one plane.

    ``start``, then ``drain`` once told to stop: not ready at once, while the data port goes on serving until nothing
    is open or the grace is over; what is left then is cut, and said so.
    """

    def __init__(self, plane: DataPlane) -> None:
        settings = plane.settings
        self._plane = plane
        stall_s = settings.limits.idle_timeout_s
        self.data = Listener(DataApp(plane), settings.listen, "listen", stall_s=stall_s)
        try:
            self.admin = Listener(admin_app(plane), settings.admin, "admin", stall_s=stall_s)
        except ConfigurationError:
            self.data.abandon()
            raise
        self._at_once = asyncio.Event()

    async def start(self) -> None:
        """Start the fleet's loops and accept connections."""
        await self._plane.fleet.start()
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
        for listener in (self.data, self.admin):
            listener.begin_drain()
            listener.cut()
            await listener.close()
        await self._plane.fleet.stop()
        self._plane.close()
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
