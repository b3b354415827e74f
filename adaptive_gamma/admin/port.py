"""Ports in the process's event loop: one that is bound and listens, and the admin port on it."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from typing import Any

import uvicorn
from fastapi import FastAPI

from adaptive_gamma.admin.guard import AdminConnection, HostGuard
from adaptive_gamma.errors import AddressError

__all__ = ["BACKLOG", "KEEP_ALIVE_S", "AdminPort", "Listener", "bind"]

KEEP_ALIVE_S = 75
BACKLOG = 4096
_NARROW_BYTES = 16_384
_TAKES_NOTHING_MS = 20_000
"""After this long without one byte taken the system cuts a narrow connection: it sees what waits in its buffers."""
_WAYS_OUT = {
    errno.EADDRINUSE: "another process, or another port of this one, is there; stop it or give another port",
    errno.EADDRNOTAVAIL: "this machine has no such address; 127.0.0.1 is reached from this machine only, 0.0.0.0 is "
    "every address it has",
    errno.EACCES: "ports below 1024 need a right of their own; give one from 1024 on",
}


def bind(address: str, key: str) -> socket.socket:
    """A socket that listens on ``host:port``; port 0 takes a free one.

    Raises AddressError, for the setting ``key``, where the address cannot be had.
    """
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
        raise AddressError(key, address, _reason(error)) from error
    bound.setblocking(False)
    return bound


def _reason(error: Exception) -> str:
    """Why not, and what to do about it."""
    if isinstance(error, socket.gaierror):
        return f"{error.strerror}; give a name that this machine resolves, or an address of it"
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    way_out = _WAYS_OUT.get(error.errno or 0)
    return error.strerror if way_out is None else f"{error.strerror}: {way_out}"


class Listener:
    """One bound port, served by uvicorn.

    Raises AddressError when the address cannot be bound.
    """

    def __init__(self, config: uvicorn.Config, address: str, key: str) -> None:
        self._socket = bind(address, key)
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
        """Those that are open now."""
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


class AdminPort(Listener):
    """The admin port: a FastAPI application on uvicorn's own HTTP, in the form that limits heads (h11).

    Args:
        app: the application.
        address: ``host:port``; port 0 takes a free one.
        names: further names under which it may be asked; see ``HostGuard``.

    Raises:
        AddressError: the address cannot be bound.
    """

    def __init__(self, app: FastAPI, address: str, names: Sequence[str] = ()) -> None:
        own = [address.rpartition(":")[0].lower(), *map(str.lower, names)]
        config = uvicorn.Config(
            HostGuard(app, own), http=AdminConnection, loop="none", ws="none", lifespan="off", log_config=None,
            access_log=False, server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_S,
            backlog=BACKLOG,
        )  # fmt: skip
        super().__init__(config, address, "admin")

    def narrow(self, client: object) -> None:
        """Hold little of what is sent to one client, its address as the application is told it: the system else keeps
        megabytes for one that takes nothing, which hides for minutes that it does not."""
        for transport in self._transports(client):
            its_socket = transport.get_extra_info("socket")
            its_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _NARROW_BYTES)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
                its_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TAKES_NOTHING_MS)
            transport.set_write_buffer_limits(high=0)

    def cut(self, client: object) -> None:
        """Break the connection of one client."""
        for transport in self._transports(client):
            transport.abort()

    def _transports(self, client: object) -> list[asyncio.Transport]:
        return [connection.transport for connection in self.connections if connection.client == client]

    async def stop(self) -> None:
        """Break every connection, and close the port."""
        self.begin_drain()
        for connection in self.connections:
            connection.transport.abort()
        await self.close()
